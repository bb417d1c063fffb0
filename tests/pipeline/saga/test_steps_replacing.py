"""The saga of tasks whose inputs are files of the table."""

from dataclasses import replace

import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import (
    LEASE,
    PLANNED,
    at,
    file_entry,
    file_of,
    stream_of,
    table_at,
    wal_entry,
)

from lakelog.domain.events import Swap
from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.pipeline.saga.steps import (
    AppendSwap,
    Mark,
    MoveTable,
    Observation,
    ReplaceFiles,
    Step,
    TaskBlocked,
    WriteFile,
    abandon,
    next_step,
)
from lakelog.pipeline.saga.table_view import PartitionTableView
from lakelog.pipeline.saga.task_record import TaskRecord, TaskState, claim, create, lease_of
from lakelog.pipeline.saga.values import (
    DataFile,
    Fact,
    FileWritten,
    InputNotFound,
    TableMoved,
    TaskTarget,
    Unreadable,
)
from lakelog.streams.objects import FileKind, FileName, digest

REWRITE = create(
    None,
    replace(PLANNED, target=TaskTarget.REWRITE, expected=None, inputs=("b", "c")),
    LEASE,
)


def input_of(key: str, start: int, end: int) -> Entry:
    return Entry(start, end, FileName(FileKind.PARQUET, key), 0, 100, 5, domain=0)


B, C = input_of("b", 4, 6), input_of("c", 6, 10)
LIVE = stream_of(input_of("a", 0, 4), B, C, wal_entry(10, 12))
WRITTEN = at(TaskState.PARQUET_WRITTEN, REWRITE)
ABORTED = at(TaskState.ABORTED, REWRITE)
COMMITTED = at(TaskState.ICEBERG_COMMITTED, REWRITE)
FILE = file_of(REWRITE)


def has(*keys: str) -> PartitionTableView:
    return replace(table_at(10), files=keys)


def emptied(record: TaskRecord) -> TaskRecord:
    """The same of a task whose file has no rows."""
    assert record.file is not None
    return structs.replace(
        record, target=TaskTarget.CLEAN, file=structs.replace(record.file, row_count=0)
    )


def step(
    record: TaskRecord,
    *,
    table: PartitionTableView | None = None,
    stream: StreamView | None = LIVE,
    fact: Fact | None = None,
) -> Step:
    return next_step(Observation(table, stream, record), held=lease_of(record), fact=fact)


def marked(found: Step) -> tuple[TaskState, str]:
    assert isinstance(found, Mark), found
    return found.record.state, found.effect


def test_it_writes_the_files_of_its_range() -> None:
    assert step(REWRITE) == WriteFile(REWRITE, (B, C))


def test_a_file_that_begins_before_its_entry_is_written_whole() -> None:
    record = structs.replace(REWRITE, start=2)
    trimmed = stream_of(B, C, first_start=4)
    assert step(record, stream=trimmed) == WriteFile(record, (B, C), log_start=4)


def test_an_input_without_rows_may_be_trimmed_away() -> None:
    record = structs.replace(REWRITE, inputs=("c",))
    assert step(record) == WriteFile(record, (B, C))
    trimmed = stream_of(C, first_start=6)
    assert step(record, stream=trimmed) == WriteFile(record, (C,), log_start=6)


@pytest.mark.parametrize(
    "stream",
    [None, stream_of(C, first_start=6), stream_of(first_start=12)],
    ids=["dropped", "trimmed", "trimmed away"],
)
def test_a_range_that_lost_an_input_is_given_up(stream: StreamView | None) -> None:
    assert marked(step(REWRITE, stream=stream)) == (TaskState.CLOSED, "mark closed")


def test_a_range_that_is_no_longer_files_is_reported() -> None:
    record = structs.replace(REWRITE, inputs=("b",))
    assert isinstance(step(record, stream=stream_of(B, wal_entry(6, 10))), TaskBlocked)
    assert isinstance(step(record, stream=stream_of(B, input_of("c", 6, 9))), TaskBlocked)


def test_what_cannot_be_read_is_left_alone_and_holds_nothing_up() -> None:
    for fact, expected in (
        (Unreadable("bad", (4, 6)), (4, 6)),
        (Unreadable("bad"), (4, 10)),
        (InputNotFound("lost"), (4, 10)),
    ):
        found = step(REWRITE, fact=fact)
        assert isinstance(found, Mark)
        assert marked(found) == (TaskState.CLOSED, "mark closed")
        assert (found.record.quarantine, found.record.failures) == ((expected,), 0)
    trimmed = step(REWRITE, stream=stream_of(C, first_start=6), fact=InputNotFound("lost"))
    assert isinstance(trimmed, Mark)
    assert trimmed.record.quarantine == ()


def test_its_file_is_marked() -> None:
    assert marked(step(REWRITE, fact=FileWritten(FILE)))[0] is TaskState.PARQUET_WRITTEN
    claimed = claim(REWRITE, LEASE)
    assert isinstance(step(claimed, fact=FileWritten(FILE)), WriteFile)


def test_inputs_that_the_table_has_are_replaced_on_the_snapshot_that_was_seen() -> None:
    assert step(WRITTEN, table=has("b", "c")) == ReplaceFiles(WRITTEN, FILE, "s1", ("b", "c"))
    empty = emptied(WRITTEN)
    assert empty.file is not None
    assert step(empty, table=has("b", "c")) == ReplaceFiles(empty, empty.file, "s1", ("b", "c"))


@pytest.mark.parametrize("record", [WRITTEN, ABORTED], ids=["written", "aborted"])
def test_a_file_that_the_table_has_is_not_committed_again(record: TaskRecord) -> None:
    found = step(record, table=has(FILE.name.key))
    assert marked(found) == (TaskState.ICEBERG_COMMITTED, "mark committed")
    assert marked(step(emptied(record), table=has()))[0] is TaskState.ICEBERG_COMMITTED


@pytest.mark.parametrize("keys", [(), ("b",), ("c",), ("c", "b"), ("b", "x", "c"), ("x",)])
def test_a_table_that_has_other_files_makes_it_give_up(keys: tuple[str, ...]) -> None:
    assert marked(step(WRITTEN, table=has(*keys))) == (TaskState.ABORTED, "mark aborted")
    assert step(ABORTED, table=has(*keys)) == MoveTable("s1")
    closed = step(ABORTED, table=has(*keys), fact=TableMoved())
    assert marked(closed) == (TaskState.CLOSED, "mark closed")


def test_inputs_without_any_row_are_no_business_of_the_table() -> None:
    record = structs.replace(emptied(WRITTEN), inputs=())
    assert marked(step(record, table=has()))[0] is TaskState.ICEBERG_COMMITTED


def test_a_stream_that_was_dropped_is_not_committed() -> None:
    assert marked(step(WRITTEN, table=has("b", "c"), stream=None))[0] is TaskState.ABORTED
    assert marked(step(WRITTEN, table=None, stream=None))[0] is TaskState.ABORTED
    assert isinstance(step(WRITTEN, table=None), TaskBlocked)
    mark = abandon(WRITTEN, "enough")
    assert mark is not None
    assert mark.record.state is TaskState.ABORTED


def swap_of(*entries: Entry) -> Swap:
    replaces = tuple(sorted(digest(one.name) for one in entries))
    return Swap(7, 4, 10, FILE.name, 500, 9, replaces)


def test_its_file_is_swapped_for_the_inputs_that_are_there() -> None:
    assert step(COMMITTED) == AppendSwap(swap_of(B, C))
    assert step(COMMITTED, stream=stream_of(C, first_start=6)) == AppendSwap(swap_of(C))


@pytest.mark.parametrize(
    "stream",
    [None, stream_of(first_start=12), stream_of(file_entry(FILE, start=4), wal_entry(10, 12))],
    ids=["dropped", "trimmed", "swapped"],
)
def test_with_no_input_left_the_task_goes_on_to_its_end(stream: StreamView | None) -> None:
    assert marked(step(COMMITTED, stream=stream)) == (TaskState.INDEX_SWAPPED, "mark swapped")
    swapped = at(TaskState.INDEX_SWAPPED, REWRITE)
    assert marked(step(swapped, stream=stream)) == (TaskState.WAL_GC_READY, "mark ready")


def test_an_index_that_went_back_or_does_not_fit_is_reported() -> None:
    assert isinstance(step(at(TaskState.INDEX_SWAPPED, REWRITE)), TaskBlocked)
    half = DataFile(FILE.key, FILE.kind, 4, 6, 2, 1, 0)
    assert isinstance(step(COMMITTED, stream=stream_of(file_entry(half, start=4), C)), TaskBlocked)
