from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.index.entries import StreamColumns
from lakelog.model.ids import TopicId
from lakelog.pipeline.planning.wal_ranges import (
    BackfillDue,
    NothingDue,
    PendingSwap,
    PlanOptions,
    Problem,
    chosen,
    plan_present,
    plan_stream,
)
from lakelog.pipeline.saga.values import DataFile, PlannedTask, StreamName, TaskTarget, Trigger
from lakelog.streams.objects import FileKind

NAME = StreamName(stream=7, topic_id=TopicId(bytes(16)), topic="t", partition=3)
OPTIONS = PlanOptions(
    freshness_ms=1000,
    object_age_ms_max=5000,
    bytes_min=100,
    bytes_target=200,
    bytes_max=400,
    entries_due=10,
)
WAL, SEGMENT, PARQUET = FileKind.WAL, FileKind.SEGMENT, FileKind.PARQUET
NOW_MS = 10_000


def columns(
    *entries: tuple[int, int, FileKind], size: int = 10, time_ms: int = NOW_MS
) -> StreamColumns:
    return StreamColumns(
        starts=np.array([one[0] for one in entries], dtype=np.int64),
        ends=np.array([one[1] for one in entries], dtype=np.int64),
        kinds=np.array([one[2] for one in entries], dtype=np.int64),
        byte_lengths=np.full(len(entries), size, dtype=np.int64),
        object_times_ms=np.full(len(entries), time_ms, dtype=np.int64),
    )


def run_of(count: int, *, size: int = 10, time_ms: int = 0) -> StreamColumns:
    return columns(*((2 * at, 2 * at + 2, WAL) for at in range(count)), size=size, time_ms=time_ms)


def plan(
    made: StreamColumns,
    vector: int | None = None,
    quarantine: tuple[tuple[int, int], ...] = (),
    options: PlanOptions = OPTIONS,
) -> PlannedTask | NothingDue | PendingSwap | BackfillDue | Problem:
    return plan_stream(
        NAME, made, vector=vector, quarantine=quarantine, options=options, now_ms=NOW_MS
    )


def task(
    made: StreamColumns, vector: int | None = None, quarantine: tuple[tuple[int, int], ...] = ()
) -> PlannedTask:
    found = plan(made, vector, quarantine)
    assert isinstance(found, PlannedTask), found
    return found


def test_an_empty_stream_and_one_without_wal_entries_have_nothing_due() -> None:
    assert plan(columns()) == NothingDue()
    assert plan(columns((0, 4, PARQUET), time_ms=0), vector=4) == NothingDue()


def test_a_young_small_backlog_waits() -> None:
    assert plan(run_of(3, time_ms=NOW_MS - 999)) == NothingDue()


def test_a_backlog_is_due_by_age() -> None:
    found = task(run_of(3, time_ms=NOW_MS - 1000))
    assert (found.start, found.end, found.trigger) == (0, 6, Trigger.AGE)
    assert (found.entry_count, found.input_bytes, found.expected) == (3, 30, None)


def test_a_quiet_stream_does_not_pin_an_old_object_however_long_its_table_may_wait() -> None:
    patient = replace(OPTIONS, freshness_ms=1_000_000)
    found = plan(run_of(1, time_ms=NOW_MS - 5000), options=patient)
    assert isinstance(found, PlannedTask)
    assert found.trigger is Trigger.OBJECT_AGE
    assert plan(run_of(1, time_ms=NOW_MS - 4999), options=patient) == NothingDue()


def test_a_backlog_is_due_by_size_and_by_count() -> None:
    assert task(run_of(2, size=100, time_ms=NOW_MS)).trigger is Trigger.SIZE
    assert task(run_of(10, size=1, time_ms=NOW_MS)).trigger is Trigger.COUNT


def test_a_large_backlog_is_cut_at_the_target_where_an_entry_ends() -> None:
    assert task(run_of(100, size=60)).end == 8  # 4 * 60 is the first sum at 200 or more


def test_a_rest_too_small_for_a_file_comes_along() -> None:
    assert task(run_of(5, size=60)).end == 10


def test_an_entry_that_would_burst_the_file_waits_for_the_next() -> None:
    made = columns((0, 2, WAL), (2, 4, WAL), time_ms=0)
    made.byte_lengths[:] = (150, 300)
    assert task(made).end == 2


def test_one_entry_larger_than_a_file_is_still_planned() -> None:
    assert task(run_of(2, size=5000)).end == 2


def test_a_range_has_no_more_pieces_than_a_swap_can_name() -> None:
    found = plan(run_of(50, size=1), options=replace(OPTIONS, pieces_max=7))
    assert isinstance(found, PlannedTask)
    assert found.entry_count == 7


def test_the_range_begins_at_the_first_wal_entry_where_the_vector_is() -> None:
    made = columns((0, 4, PARQUET), (4, 6, WAL), (6, 9, WAL), time_ms=0)
    found = task(made, vector=4)
    assert (found.start, found.end, found.expected) == (4, 9, 4)


def test_what_was_trimmed_before_it_was_compacted_is_a_gap_of_the_table() -> None:
    found = task(columns((6, 9, WAL), time_ms=0), vector=4)
    assert (found.start, found.expected) == (6, 4)


@pytest.mark.parametrize("vector", [None, 4, 5])
def test_the_rows_of_a_segment_come_before_those_of_what_follows_it(vector: int | None) -> None:
    made = columns((4, 6, SEGMENT), (6, 9, WAL), time_ms=0)
    assert plan(made, vector) == BackfillDue()
    assert task(made, vector=6).start == 6
    fresh = columns((4, 6, SEGMENT), (6, 9, WAL))
    assert plan(fresh, vector) == NothingDue()


def test_what_becomes_a_segment_waits_for_no_other_because_the_vector_stays() -> None:
    made = columns((0, 4, PARQUET), (4, 6, SEGMENT), (6, 8, WAL), (8, 9, WAL), time_ms=0)
    found = task(made, vector=4, quarantine=((6, 7),))
    assert (found.target, found.start, found.end) == (TaskTarget.LOG, 6, 8)
    made = columns((0, 4, PARQUET), (4, 6, SEGMENT), (6, 8, SEGMENT), (8, 9, WAL), time_ms=0)
    assert plan(made, 4, ((6, 7),)) == BackfillDue()


def test_a_range_ends_before_a_file() -> None:
    made = columns((0, 2, WAL), (2, 4, PARQUET), (4, 6, WAL), time_ms=0)
    assert task(made).end == 2


@pytest.mark.parametrize("vector", [None, 2])
def test_an_index_that_names_files_which_the_table_lacks_is_a_problem(vector: int | None) -> None:
    made = columns((0, 4, PARQUET), (4, 6, WAL), time_ms=0)
    assert isinstance(plan(made, vector), Problem)


def test_a_table_ahead_of_the_index_is_not_written_again() -> None:
    assert plan(run_of(3), vector=4) == PendingSwap(0, 4)


def test_what_does_not_decode_goes_its_own_way_and_its_neighbours_to_the_table() -> None:
    bad = ((3, 4),)
    first = task(run_of(4), None, bad)
    assert (first.target, first.start, first.end) == (TaskTarget.TABLE, 0, 2)
    rest = columns((0, 2, PARQUET), (2, 4, WAL), (4, 6, WAL), time_ms=NOW_MS)
    second = task(rest, 2, bad)
    assert (second.target, second.start, second.end) == (TaskTarget.LOG, 2, 4)


def present(start: int, end: int) -> DataFile:
    return DataFile("f", FileKind.PARQUET, start, end, end - start, 50, 9)


def test_a_file_that_the_table_has_is_swapped_in_as_it_is() -> None:
    found = plan_present(NAME, run_of(3), present(0, 4), now_ms=NOW_MS)
    assert isinstance(found, PlannedTask)
    assert (found.start, found.end, found.present) == (0, 4, present(0, 4))
    trimmed = columns((2, 4, WAL), (4, 6, WAL))
    assert isinstance(plan_present(NAME, trimmed, present(0, 4), now_ms=NOW_MS), PlannedTask)


@pytest.mark.parametrize(
    ("made", "file"),
    [
        (run_of(3), present(0, 3)),
        (run_of(3), present(1, 4)),
        (run_of(3), present(6, 8)),
        (columns((0, 2, PARQUET), (2, 4, WAL)), present(0, 4)),
    ],
    ids=["half an end", "half a start", "nothing there", "a file there"],
)
def test_a_file_of_the_table_that_fits_no_entries_is_a_problem(
    made: StreamColumns, file: DataFile
) -> None:
    assert isinstance(plan_present(NAME, made, file, now_ms=NOW_MS), Problem)


def test_a_round_takes_the_oldest_first_and_one_at_least() -> None:
    made = [replace(task(run_of(2)), stream=at, oldest_ms=9 - at) for at in range(1, 6)]
    picked = chosen(made, tasks_max=3, input_bytes_max=1000)
    assert [one.stream for one in picked] == [5, 4, 3]
    assert [one.stream for one in chosen(made, tasks_max=9, input_bytes_max=45)] == [5, 4]
    assert [one.stream for one in chosen(made, tasks_max=9, input_bytes_max=1)] == [5]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 500)), min_size=1, max_size=40))
def test_ranges_one_after_another_cover_the_backlog_without_gap_or_overlap(
    entries: list[tuple[int, int]],
) -> None:
    ends = np.cumsum([length for length, _ in entries])
    starts = ends - np.array([length for length, _ in entries])
    sizes = np.array([size for _, size in entries], dtype=np.int64)
    done = 0
    vector: int | None = None
    while done < len(entries):
        kinds = np.where(np.arange(len(entries)) < done, PARQUET, WAL).astype(np.int64)
        found = task(StreamColumns(starts, ends, kinds, sizes, np.zeros_like(ends)), vector)
        assert found.start == (vector or 0)
        taken = sizes[done : done + found.entry_count]
        assert found.input_bytes == int(taken.sum())
        assert found.input_bytes <= OPTIONS.bytes_max or found.entry_count == 1
        done += found.entry_count
        vector = found.end
        assert vector == int(ends[done - 1])
