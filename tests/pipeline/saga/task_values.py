"""Short ways to say tasks, files and views in tests of the saga."""

from dataclasses import replace

from msgspec import structs

from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.model.ids import TopicId
from lakelog.pipeline.saga.table_view import PartitionTableView
from lakelog.pipeline.saga.task_record import Lease, TaskRecord, TaskState, create, output_key
from lakelog.pipeline.saga.values import DataFile, PlannedTask, TaskTarget, Trigger
from lakelog.records.table_schema import ColumnFacts, RowGroup, TableFileFacts, TableFileOrigin
from lakelog.streams.objects import WalName
from lakelog.wal.layout import make_wal_id

TOPIC = TopicId(bytes(range(16)))
LEASE = Lease("one", 5000)
PLANNED = PlannedTask(
    stream=7,
    topic_id=TOPIC,
    topic="t",
    partition=3,
    target=TaskTarget.TABLE,
    start=4,
    end=10,
    expected=4,
    input_bytes=300,
    entry_count=3,
    oldest_ms=1,
    planned_ms=1000,
    trigger=Trigger.AGE,
)
FACTS = TableFileFacts(
    TableFileOrigin(7, TOPIC, 3, "7-1", 4, 10, 1000),
    size_bytes=500,
    row_count=6,
    min_timestamp_ms=1,
    max_timestamp_ms=9,
    row_groups=(RowGroup(4, 10, 4, 400, 6, 4, 9000),),
    columns=(ColumnFacts("offset", 2, 40, 6, 0, 4, 9),),
)
CREATED = create(None, PLANNED, LEASE)
SEGMENT = create(None, replace(PLANNED, target=TaskTarget.LOG), LEASE)


def file_of(record: TaskRecord, *, attempt: str = "a") -> DataFile:
    key = output_key(record, attempt=attempt)
    return DataFile(key, record.output_kind, record.start, record.end, 6, 500, 9, FACTS)


def at(state: TaskState, record: TaskRecord = CREATED) -> TaskRecord:
    """The record in that state, with its file where it has one."""
    named = state not in (TaskState.CREATED, TaskState.CLOSED)
    return structs.replace(record, state=state, file=file_of(record) if named else None)


def wal_entry(start: int, end: int) -> Entry:
    name = WalName(make_wal_id(start, bytes(10)), "z")
    return Entry(start, end, name, 0, 100, 5, domain=0)


def file_entry(file: DataFile, *, start: int) -> Entry:
    return Entry(start, file.end, file.name, 0, file.size_bytes, 5, domain=0)


def stream_of(*entries: Entry, first_start: int = 0) -> StreamView:
    return StreamView(7, first_start, first_start, entries)


def table_at(offset: int | None) -> PartitionTableView:
    return PartitionTableView(TOPIC, "s1", offset)


PIECES = (wal_entry(4, 6), wal_entry(6, 8), wal_entry(8, 10))
