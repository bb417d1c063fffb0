"""What of a topic is read for a condition: all that can fulfil it, and little else."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.index.entries import UNKNOWN_MS, Entries
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.sql.duckdb_engine import BLOCK_ENTRIES, blocks_of, chosen
from lakelog.wal.layout import WAL_ID_BYTES

COUNT = BLOCK_ENTRIES * 3
ZONED = pa.timestamp("us", tz="UTC")
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def hinted(partition: int, *, times_ms: list[int] | None = None) -> PlannedRange:
    """Entries of one offset each, at one millisecond after another."""
    entries = Entries(
        0,
        np.arange(COUNT + 1, dtype=np.int64),
        np.zeros(COUNT, np.uint8),
        np.zeros(COUNT, np.int64),
        np.ones(COUNT, np.int64),
        np.arange(COUNT, dtype=np.int64) if times_ms is None else np.array(times_ms, np.int64),
        np.zeros((COUNT, WAL_ID_BYTES), np.uint8),
        np.zeros(COUNT, np.int32),
        ("z",),
    )
    return PlannedRange(PinnedRange("t", b"", partition, partition + 1, 0, COUNT), entries)


def places(wanted: ds.Expression | None, ranges: list[PlannedRange]) -> list[tuple[int, int, int]]:
    found = chosen(ranges, list(blocks_of(ranges)), wanted)
    return [(one.pinned.partition, one.pinned.start, one.pinned.end) for one in found]


def test_without_a_condition_everything_is_read() -> None:
    assert places(None, [hinted(0), hinted(1)]) == [(0, 0, COUNT), (1, 0, COUNT)]


def test_blocks_that_cannot_hold_a_row_are_not_read() -> None:
    ranges = [hinted(0), hinted(1)]
    step = BLOCK_ENTRIES
    assert places(ds.field("partition") == 1, ranges) == [(1, 0, COUNT)]
    assert places(ds.field("offset") == step, ranges) == [
        (0, step, 2 * step),
        (1, step, 2 * step),
    ]
    late = ds.field("timestamp") >= pa.scalar((2 * step) * 1000, ZONED)
    assert places(late & (ds.field("partition") < 1), ranges) == [(0, 2 * step, COUNT)]
    either = (ds.field("offset") < 1) | (ds.field("offset") >= COUNT - 1)
    assert places(either, ranges[:1]) == [(0, 0, step), (0, 2 * step, COUNT)]
    assert places(ds.field("partition") == 5, ranges) == []


@pytest.mark.parametrize("time_ms", [UNKNOWN_MS, (1 << 63) - 1, (1 << 63) // 1000])
def test_a_time_that_no_column_holds_rules_nothing_out(time_ms: int) -> None:
    one = hinted(0, times_ms=[time_ms] * COUNT)
    last = ds.field("timestamp") > pa.scalar((1 << 63) - 1000, ZONED)
    assert places(last, [one]) == [(0, 0, COUNT)]


def test_a_time_before_all_columns_is_shown_as_the_first_that_they_hold() -> None:
    one = hinted(0, times_ms=[-(1 << 63)] * COUNT)
    first = -((1 << 63) // 1000) * 1000
    assert places(ds.field("timestamp") <= pa.scalar(first, ZONED), [one]) == [(0, 0, COUNT)]
    assert places(ds.field("timestamp") > pa.scalar(first, ZONED), [one]) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["partition", "offset", "timestamp"]),
            st.sampled_from(sorted(RELATIONS)),
            st.integers(-1, COUNT + 1),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_no_row_that_fulfils_a_condition_is_left_out(
    terms: list[tuple[str, str, int]], both: bool
) -> None:
    def holds(partition: int, offset: int) -> bool:
        row = {"partition": partition, "offset": offset, "timestamp": offset}
        kept = [bool(RELATIONS[relation](row[name], value)) for name, relation, value in terms]
        return all(kept) if both else any(kept)

    wanted = None
    for name, relation, value in terms:
        scalar = pa.scalar(value * 1000, ZONED) if name == "timestamp" else pa.scalar(value)
        term = RELATIONS[relation](ds.field(name), scalar)
        wanted = term if wanted is None else (wanted & term if both else wanted | term)
    ranges = [hinted(0), hinted(2)]
    read = {(p, at) for p, start, end in places(wanted, ranges) for at in range(start, end)}
    needed = {(p, at) for p in (0, 2) for at in range(COUNT) if holds(p, at)}
    assert needed <= read
