"""Looking before each step: table, then index, then the record, last (`saga.steps`).

A table is loaded only for tasks whose next step it decides. What is known of a record before the
look says whether that is so; when the record, read last, turns out to be further or elsewhere, the
look is made again with the table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakelog.catalog.port import TableView as CatalogView
from lakelog.index.ports import StreamRange
from lakelog.pipeline.options import together
from lakelog.pipeline.ports import LimitedPorts
from lakelog.pipeline.saga.record_store import StoredRecord, StoredRecords
from lakelog.pipeline.saga.steps import Observation
from lakelog.pipeline.saga.table_view import partition_view
from lakelog.pipeline.saga.task_record import LeaseId, TaskRecord, TaskState, lease_of
from lakelog.pipeline.saga.values import Fact, TaskTarget


class LeasedTask:
    """A task that this pipeline holds: its lease, and what its last step achieved for certain."""

    __slots__ = ("fact", "given_up", "held", "record", "unknown", "version")

    def __init__(self, stored: StoredRecord) -> None:
        self.held: LeaseId = lease_of(stored.record)
        self.record: TaskRecord = stored.record
        """As it was read or put last; another may have changed it since."""
        self.version = stored.version
        self.fact: Fact | None = None
        self.given_up = ""
        """Why its file is not written by anybody who knows what it needs, if so."""
        self.unknown = 0
        """How many outcomes in a row stayed unknown, or were a refusal that explains nothing."""

    @property
    def stream(self) -> int:
        """The stream that the task is of."""
        return self.record.stream

    def put(self, record: TaskRecord, version: int) -> None:
        """The record was changed by this holder."""
        self.record = record
        self.version = version


@dataclass(frozen=True, slots=True)
class ObservedTask:
    """A held task and what was seen of it."""

    leased: LeasedTask
    observation: Observation
    version: int
    """Of the record's key; 0 when there is none."""


async def observe(
    ports: LimitedPorts, topic: str, leased_tasks: Sequence[LeasedTask]
) -> list[ObservedTask]:
    """Look at tasks of one topic."""
    wants_table = any(_needs_table(leased.record) for leased in leased_tasks)
    while True:
        table = await ports.table(topic) if wants_table else None
        files = await _files(ports, topic, leased_tasks) if table is not None else {}
        observed = await observe_index(ports, leased_tasks, table, files)
        if wants_table or not any(_needs_table(task.observation.record) for task in observed):
            return observed
        wants_table = True  # a record moved meanwhile: once more, for the table comes first


async def _files(
    ports: LimitedPorts, topic: str, leased_tasks: Sequence[LeasedTask]
) -> dict[int, tuple[str, ...]]:
    """The table's files in the range of each replacing task: they, not the vector, decide."""
    keys: dict[int, tuple[str, ...]] = {}

    async def load(record: TaskRecord) -> None:
        files = await ports.ask_table(
            lambda tables: tables.files(
                ports.table_name(topic),
                partition=record.partition,
                start=record.start,
                end=record.end,
            )
        )
        keys[record.stream] = tuple(file.key for file in files)

    replacing = [leased.record for leased in leased_tasks if leased.record.is_replacing]
    await together(load(record) for record in replacing)
    return keys


async def observe_index(
    ports: LimitedPorts,
    leased_tasks: Sequence[LeasedTask],
    table: CatalogView | None = None,
    files: Mapping[int, tuple[str, ...]] | None = None,
) -> list[ObservedTask]:
    """Look at index and records, after the table was loaded or where none is needed."""
    ranges = [
        StreamRange(leased.stream, leased.record.start, leased.record.end)
        for leased in leased_tasks
    ]
    streams = await ports.views(ranges)
    records = await ports.records.load([leased.stream for leased in leased_tasks])
    observed = []
    for leased, stream in zip(leased_tasks, streams, strict=True):
        stored = _same_range(records, leased)
        record = None if stored is None else stored.record
        named = (files or {}).get(leased.stream)
        observation = Observation(
            partition_view(table, leased.record.partition, named), stream, record
        )
        observed.append(ObservedTask(leased, observation, 0 if stored is None else stored.version))
    return observed


def _same_range(records: StoredRecords, leased: LeasedTask) -> StoredRecord | None:
    """The record, unless it is of a later task: its index view was of another range."""
    stored = records.found.get(leased.stream)
    if stored is None or stored.record.task != leased.record.task:
        return None
    return stored


def _needs_table(record: TaskRecord | None) -> bool:
    """Whether the table decides the next step."""
    if record is None or record.target is TaskTarget.LOG:
        return False
    return record.state in (TaskState.PARQUET_WRITTEN, TaskState.ABORTED)
