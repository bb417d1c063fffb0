"""Which segments come next for the table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.index.entries import StreamColumns
from lakelog.model.ids import TopicId
from lakelog.pipeline.planning.backfill import ends_in_segment, plan_backfill
from lakelog.pipeline.planning.wal_ranges import PlanOptions, Problem
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget
from lakelog.streams.objects import FileKind

NAME = StreamName(7, TopicId(bytes(16)), "t", 0)
OPTIONS = PlanOptions(bytes_min=0, bytes_target=100, bytes_max=250)
KINDS = {"w": FileKind.WAL, "s": FileKind.SEGMENT, "p": FileKind.PARQUET}


def columns(kinds: str, *, first: int = 0) -> StreamColumns:
    """Entries of ten offsets and a hundred bytes each, by the letters of their kinds."""
    starts = np.arange(first, first + len(kinds), dtype=np.int64) * 10
    return StreamColumns(
        starts=starts,
        ends=starts + 10,
        kinds=np.array([KINDS[kind] for kind in kinds], dtype=np.int64),
        byte_lengths=np.full(len(kinds), 100, dtype=np.int64),
        object_times_ms=np.zeros(len(kinds), dtype=np.int64),
    )


def plan(kinds: str, vector: int | None) -> PlannedTask | Problem | None:
    return plan_backfill(NAME, columns(kinds), vector=vector, options=OPTIONS, now_ms=99)


@pytest.mark.parametrize(
    ("kinds", "vector", "expected"),
    [
        ("", None, None),
        ("www", None, None),
        ("s", None, (0, 10)),
        ("s", 0, (0, 10)),
        ("s", 10, None),
        ("ps", 10, (10, 20)),
        ("pssw", 10, (10, 30)),
        ("psw", 20, None),
        ("wsw", None, None),  # rows are appended in order
        ("pwsw", 10, None),
        ("spsw", 20, (20, 30)),
        ("ssss", None, (0, 20)),  # as much as a file may hold
        ("ssss", 20, (20, 40)),
        ("ps", None, None),  # a table file that the table lacks is not for here
    ],
)
def test_the_first_segments_above_the_vector_are_due(
    kinds: str, vector: int | None, expected: tuple[int, int] | None
) -> None:
    found = plan(kinds, vector)
    if expected is None:
        assert found is None
        return
    assert isinstance(found, PlannedTask)
    assert (found.start, found.end) == expected
    assert (found.target, found.expected, found.planned_ms) == (TaskTarget.TABLE, vector, 99)
    assert found.input_bytes == found.entry_count * 100 == (found.end - found.start) * 10


def test_a_table_that_ends_within_a_segment_is_a_problem() -> None:
    assert isinstance(plan("ss", 5), Problem)


def test_one_segment_is_taken_however_large_it_is() -> None:
    small = PlanOptions(bytes_min=0, bytes_target=1, bytes_max=1)
    found = plan_backfill(NAME, columns("ss"), vector=None, options=small, now_ms=0)
    assert isinstance(found, PlannedTask)
    assert (found.start, found.end) == (0, 10)


def test_it_is_as_urgent_as_what_waits_behind_it() -> None:
    waits, alone = plan("sw", None), plan("s", None)
    assert isinstance(waits, PlannedTask)
    assert isinstance(alone, PlannedTask)
    assert (waits.oldest_ms, alone.oldest_ms) == (0, 99)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [("", False), ("w", False), ("s", True), ("psw", True), ("spw", False), ("p", False)],
)
def test_segments_may_be_lacking_where_no_data_file_follows_them(
    kinds: str, expected: bool
) -> None:
    assert ends_in_segment(columns(kinds)) is expected


@given(st.text("wsp", max_size=12))
def test_the_vector_walks_over_every_segment_once_and_only_where_it_stands_before_it(
    kinds: str,
) -> None:
    """With somebody else who moves the vector over the other kinds."""
    vector: int | None = None
    seen: list[int] = []
    for _ in range(2 * len(kinds) + 1):
        found = plan(kinds, vector)
        assert not isinstance(found, Problem)
        if found is None:
            vector = (-10 if vector is None else vector) + 10
            vector = vector if vector > 0 else 10
            continue
        seen += range(found.start // 10, found.end // 10)
        vector = found.end
    segments = [at for at, kind in enumerate(kinds) if kind == "s"]
    assert seen == segments
