from dataclasses import replace

import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import (
    CREATED,
    LEASE,
    PIECES,
    SEGMENT,
    at,
    file_entry,
    file_of,
    stream_of,
    table_at,
    wal_entry,
)

from lakelog.domain.events import Swap
from lakelog.index.ports import StreamView
from lakelog.model.ids import TopicId
from lakelog.pipeline.saga.steps import (
    EFFECTS,
    AppendSwap,
    CommitTable,
    Finished,
    Forget,
    LeaseLost,
    Mark,
    MoveTable,
    Observation,
    Step,
    TaskBlocked,
    WriteFile,
    abandon,
    next_step,
)
from lakelog.pipeline.saga.table_view import PartitionTableView
from lakelog.pipeline.saga.task_record import LeaseId, TaskRecord, TaskState, claim, lease_of
from lakelog.pipeline.saga.values import Fact, FileWritten, InputNotFound, TableMoved, Unreadable
from lakelog.streams.objects import FileKind, FileName, digest

LIVE = stream_of(*PIECES)
WRITTEN = at(TaskState.PARQUET_WRITTEN)
COMMITTED = at(TaskState.ICEBERG_COMMITTED)
ABORTED = at(TaskState.ABORTED)


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
    assert found.effect in EFFECTS
    return found.record.state, found.effect


def test_a_holder_of_another_lease_stops() -> None:
    for state in TaskState:
        for held in (LeaseId(2, "one"), LeaseId(1, "two")):
            assert next_step(Observation(table_at(4), LIVE, at(state)), held=held) == LeaseLost()
    assert next_step(Observation(table_at(4), LIVE, None), held=LeaseId(1, "one")) == LeaseLost()


# CREATED


IN_SEGMENTS = tuple(
    replace(one, name=FileName(FileKind.SEGMENT, f"s{one.start}")) for one in PIECES
)


def test_a_task_for_the_table_reads_segments_and_leaves_them_in_the_index() -> None:
    there = stream_of(*IN_SEGMENTS, wal_entry(10, 12))
    assert step(CREATED, stream=there) == WriteFile(CREATED, IN_SEGMENTS)
    assert isinstance(step(WRITTEN, table=table_at(4), stream=there), CommitTable)
    assert marked(step(COMMITTED, stream=there)) == (TaskState.INDEX_SWAPPED, "mark swapped")
    swapped = at(TaskState.INDEX_SWAPPED)
    assert marked(step(swapped, stream=there)) == (TaskState.WAL_GC_READY, "mark ready")
    trimmed = stream_of(*IN_SEGMENTS[1:])
    assert marked(step(CREATED, stream=trimmed)) == (TaskState.CLOSED, "mark closed")


def test_segments_are_no_input_of_a_segment_nor_beside_wal_entries() -> None:
    assert isinstance(step(SEGMENT, stream=stream_of(*IN_SEGMENTS)), TaskBlocked)
    mixed = stream_of(IN_SEGMENTS[0], *PIECES[1:])
    assert isinstance(step(CREATED, stream=mixed), TaskBlocked)


def test_a_new_task_writes_the_entries_of_its_range() -> None:
    more = stream_of(wal_entry(0, 4), *PIECES, wal_entry(10, 12))
    assert step(CREATED, stream=more) == WriteFile(CREATED, PIECES)


def test_a_file_that_was_put_is_marked() -> None:
    file = file_of(CREATED)
    found = step(CREATED, fact=FileWritten(file))
    assert marked(found) == (TaskState.PARQUET_WRITTEN, "mark written")
    assert isinstance(found, Mark)
    assert found.record.file == file


def test_a_file_of_an_older_lease_or_another_range_is_not_used() -> None:
    claimed = claim(CREATED, LEASE)
    assert step(claimed, fact=FileWritten(file_of(CREATED))) == WriteFile(claimed, PIECES)
    short = structs.replace(file_of(CREATED), end=8)
    assert step(CREATED, fact=FileWritten(short)) == WriteFile(CREATED, PIECES)


def test_a_range_that_was_trimmed_before_it_was_written_is_given_up() -> None:
    trimmed = stream_of(*PIECES[1:], first_start=6)
    assert marked(step(CREATED, stream=trimmed)) == (TaskState.CLOSED, "mark closed")
    assert marked(step(CREATED, stream=stream_of(first_start=10)))[0] is TaskState.CLOSED
    assert marked(step(CREATED, stream=None))[0] is TaskState.CLOSED


def test_a_file_of_the_whole_range_counts_although_it_was_trimmed_meanwhile() -> None:
    trimmed = stream_of(*PIECES[1:], first_start=6)
    found = step(CREATED, stream=trimmed, fact=FileWritten(file_of(CREATED)))
    assert marked(found)[0] is TaskState.PARQUET_WRITTEN


def test_inputs_that_are_gone_are_a_failure_unless_they_were_trimmed() -> None:
    gone = InputNotFound("no such object")
    lost = step(CREATED, fact=gone)
    trimmed = step(CREATED, stream=stream_of(*PIECES[1:], first_start=6), fact=gone)
    assert marked(lost) == marked(trimmed) == (TaskState.CLOSED, "mark closed")
    assert isinstance(lost, Mark)
    assert isinstance(trimmed, Mark)
    assert (lost.record.failures, trimmed.record.failures) == (1, 0)
    assert lost.record.problem == "no such object"


def test_what_does_not_decode_is_remembered() -> None:
    found = step(CREATED, fact=Unreadable("bad batch", (6, 8)))
    assert isinstance(found, Mark)
    assert (found.record.failures, found.record.quarantine) == (1, ((6, 8),))
    assert found.record.state is TaskState.CLOSED


def test_a_range_that_somebody_else_swapped_is_reported() -> None:
    strange = stream_of(file_entry(file_of(CREATED), start=4))
    assert isinstance(step(CREATED, stream=strange), TaskBlocked)


# PARQUET_WRITTEN


def test_a_written_file_is_committed_on_the_snapshot_that_was_seen() -> None:
    found = step(WRITTEN, table=table_at(4))
    assert WRITTEN.file is not None
    assert found == CommitTable(WRITTEN, WRITTEN.file, "s1", before=4, after=10)


def test_a_successor_commits_the_file_of_its_predecessor() -> None:
    found = step(claim(WRITTEN, LEASE), table=table_at(4))
    assert isinstance(found, CommitTable)
    assert found.file == file_of(CREATED)


@pytest.mark.parametrize("record", [WRITTEN, ABORTED], ids=["written", "aborted"])
@pytest.mark.parametrize("offset", [10, 12])
def test_a_file_that_the_table_has_is_not_committed_again(record: TaskRecord, offset: int) -> None:
    found = step(record, table=table_at(offset))
    assert marked(found) == (TaskState.ICEBERG_COMMITTED, "mark committed")
    assert isinstance(found, Mark)
    assert found.record.file == structs.replace(file_of(CREATED), facts=None)


@pytest.mark.parametrize("offset", [None, 0, 3, 5, 9])
def test_a_vector_that_does_not_fit_changes_nothing(offset: int | None) -> None:
    assert isinstance(step(WRITTEN, table=table_at(offset)), TaskBlocked)


def test_without_its_table_a_task_waits_while_the_stream_lives() -> None:
    other = replace(table_at(4), topic_id=TopicId(bytes(16)))
    for table in (None, other):
        assert isinstance(step(WRITTEN, table=table), TaskBlocked)
        assert marked(step(WRITTEN, table=table, stream=None))[0] is TaskState.ABORTED
        assert marked(step(ABORTED, table=table, stream=None))[0] is TaskState.CLOSED


def test_a_stream_that_was_dropped_is_not_committed() -> None:
    dropped = step(WRITTEN, table=table_at(4), stream=None)
    assert marked(dropped) == (TaskState.ABORTED, "mark aborted")
    assert marked(step(WRITTEN, table=table_at(10), stream=None))[1] == "mark committed"


# ABORTED


def test_an_aborted_file_is_let_go_only_after_the_table_moved() -> None:
    assert step(ABORTED, table=table_at(4)) == MoveTable("s1")
    found = step(ABORTED, table=table_at(4), fact=TableMoved())
    assert marked(found) == (TaskState.CLOSED, "mark closed")
    assert isinstance(found, Mark)
    assert found.record.file is None


def test_a_task_is_given_up_only_before_the_table_may_have_it() -> None:
    given_up = {state: abandon(at(state), "x" * 900) for state in TaskState}
    states = {state: mark and mark.record.state for state, mark in given_up.items()}
    assert states.pop(TaskState.CREATED) is TaskState.CLOSED
    assert states.pop(TaskState.PARQUET_WRITTEN) is TaskState.ABORTED
    assert set(states.values()) == {None}
    assert abandon(at(TaskState.PARQUET_WRITTEN, SEGMENT), "") is None


# ICEBERG_COMMITTED and after


def swap_of(record: TaskRecord, *pieces: int) -> Swap:
    assert record.file is not None
    replaces = tuple(sorted(digest(PIECES[piece].name) for piece in pieces))
    return Swap(7, 4, 10, record.file.name, 500, 9, replaces)


def test_a_committed_file_is_swapped_for_the_entries_that_are_there() -> None:
    assert step(COMMITTED) == AppendSwap(swap_of(COMMITTED, 0, 1, 2))


def test_a_swap_covers_what_trimming_left() -> None:
    trimmed = stream_of(*PIECES[1:], first_start=6)
    assert step(COMMITTED, stream=trimmed) == AppendSwap(swap_of(COMMITTED, 1, 2))


@pytest.mark.parametrize(
    "stream",
    [None, stream_of(first_start=12), stream_of(file_entry(file_of(CREATED), start=6))],
    ids=["dropped", "trimmed", "swapped"],
)
def test_with_no_wal_entry_left_the_task_goes_on_to_its_end(stream: StreamView | None) -> None:
    assert marked(step(COMMITTED, stream=stream)) == (TaskState.INDEX_SWAPPED, "mark swapped")
    ready = step(at(TaskState.INDEX_SWAPPED), stream=stream)
    assert marked(ready) == (TaskState.WAL_GC_READY, "mark ready")


@pytest.mark.parametrize(
    "stream",
    [
        stream_of(*PIECES[1:], first_start=4),
        stream_of(*PIECES[:2]),
        stream_of(wal_entry(3, 6), *PIECES[1:], first_start=3),
        stream_of(*PIECES[:2], file_entry(file_of(CREATED), start=8)),
    ],
    ids=["a hole in front", "a hole behind", "half an entry", "mixed"],
)
def test_entries_that_do_not_fit_are_reported(stream: StreamView) -> None:
    assert isinstance(step(COMMITTED, stream=stream), TaskBlocked)


def test_an_index_that_went_back_is_reported() -> None:
    assert isinstance(step(at(TaskState.INDEX_SWAPPED)), TaskBlocked)


def test_a_segment_is_swapped_without_the_table() -> None:
    written = at(TaskState.PARQUET_WRITTEN, SEGMENT)
    found = step(written, table=table_at(4))
    assert isinstance(found, AppendSwap)
    assert found.swap.file.key.endswith(".kfs")


def test_an_ended_record_is_forgotten_only_with_its_stream() -> None:
    for state in (TaskState.WAL_GC_READY, TaskState.CLOSED):
        assert step(at(state)) == Finished()
        assert step(at(state), stream=None) == Forget()
