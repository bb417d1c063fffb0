"""Splits: every offset once and in order, about as many as wanted, small when they travel."""

import pickle
import time
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lake.packed import entries, hinted

from lakelog.index.entries import UNKNOWN_MS
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.splits import (
    ROW_BYTES,
    SPLIT_BYTES,
    SPLIT_BYTES_MAX,
    SPLIT_BYTES_MIN,
    PackOptions,
    Split,
    pack,
    split_count,
)
from lakelog.streams.objects import FileKind


def spans(splits: tuple[Split, ...]) -> list[list[str]]:
    return [[str(one.pinned) for one in split.ranges] for split in splits]


@st.composite
def ranges(draw: st.DrawFn) -> list[PlannedRange]:
    found = []
    for partition in range(draw(st.integers(0, 5))):
        steps = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
        edges = list(accumulate(steps, initial=draw(st.integers(0, 9))))
        sizes = draw(st.lists(st.integers(1, 500), min_size=len(steps), max_size=len(steps)))
        kinds = draw(st.lists(st.sampled_from(FileKind), min_size=len(steps), max_size=len(steps)))
        start = draw(st.integers(edges[0], edges[1] - 1))
        end = draw(st.integers(max(start + 1, edges[-2]), edges[-1]))
        one = entries(edges, sizes, kinds=kinds)
        found.append(hinted(partition, start, end, one.overlapping(start=start, end=end)))
    return found


@given(
    ranges(),
    st.integers(1, 4),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(1, 30),
    st.integers(1, 2000),
)
def test_every_offset_is_in_one_split_and_in_order(
    given: list[PlannedRange],
    slots: int,
    min_splits: int | None,
    max_records: int | None,
    split_bytes: int,
) -> None:
    splits = pack(given, PackOptions(slots, min_splits, max_records, split_bytes))
    again = pickle.loads(pickle.dumps(splits))
    for found in (splits, again):
        read = [
            (one.pinned.partition, offset)
            for split in found
            for one in split.ranges
            for offset in range(one.pinned.start, one.pinned.end)
        ]
        assert read == [
            (one.pinned.partition, offset)
            for one in given
            for offset in range(one.pinned.start, one.pinned.end)
        ]
        for split in found:
            assert split.ranges
            assert max_records is None or split.offset_count <= max_records
            for one in split.ranges:
                assert one.entries.start <= one.pinned.start
                assert one.entries.end >= one.pinned.end
    for split, travelled in zip(splits, again, strict=True):
        for one, other in zip(split.ranges, travelled.ranges, strict=True):
            assert one.pinned == other.pinned
            known = [replace(entry, max_timestamp_ms=UNKNOWN_MS) for entry in one.entries]
            assert list(other.entries) == known


def test_the_number_of_splits_goes_by_bytes_and_slots() -> None:
    assert split_count(100, PackOptions()) == 1
    assert split_count(3 * SPLIT_BYTES, PackOptions(slots=2)) == 3
    assert split_count(60 * SPLIT_BYTES, PackOptions(slots=2)) == 8
    assert split_count(100 * SPLIT_BYTES_MAX, PackOptions(slots=2)) == 100
    assert split_count(2 * SPLIT_BYTES_MIN, PackOptions(slots=8)) == 2
    assert split_count(100, PackOptions(slots=8)) == 1
    assert split_count(100, PackOptions(min_splits=7)) == 7
    assert split_count(100 * SPLIT_BYTES, PackOptions(slots=2, min_splits=30)) == 30


def test_many_rows_in_few_bytes_are_work_for_all_slots() -> None:
    rows = 2 * SPLIT_BYTES_MIN // ROW_BYTES
    dense = [hinted(0, 0, rows, entries([0, rows], [1000], kinds=[FileKind.PARQUET]))]
    assert len(pack(dense, PackOptions(slots=2))) == 2
    few = [hinted(0, 0, 1000, entries([0, 1000], [1000], kinds=[FileKind.PARQUET]))]
    assert len(pack(few, PackOptions(slots=2))) == 1


def test_many_small_partitions_share_a_split() -> None:
    given = [hinted(at, 0, 10, entries([0, 10])) for at in range(100)]
    splits = pack(given, PackOptions(min_splits=4))
    assert [len(split.ranges) for split in splits] == [25, 25, 25, 25]


def test_a_large_file_is_cut_and_a_small_object_is_not() -> None:
    large = hinted(0, 0, 1000, entries([0, 1000], [1000], kinds=[FileKind.PARQUET]))
    assert spans(pack([large], PackOptions(min_splits=4))) == [
        ["t-0 [0, 250)"],
        ["t-0 [250, 500)"],
        ["t-0 [500, 750)"],
        ["t-0 [750, 1000)"],
    ]
    small = hinted(0, 0, 30, entries(list(range(0, 31, 3))))
    assert spans(pack([small], PackOptions(min_splits=3))) == [
        ["t-0 [0, 9)"],
        ["t-0 [9, 21)"],
        ["t-0 [21, 30)"],
    ]


def test_no_split_has_more_records_than_allowed() -> None:
    given = [hinted(0, 0, 10, entries([0, 10])), hinted(1, 0, 3, entries([0, 3]))]
    assert spans(pack(given, PackOptions(max_records=4))) == [
        ["t-0 [0, 4)"],
        ["t-0 [4, 8)"],
        ["t-0 [8, 10)", "t-1 [0, 2)"],
        ["t-1 [2, 3)"],
    ]


def test_nothing_to_read_is_no_split() -> None:
    assert pack([], PackOptions(min_splits=5)) == ()


@pytest.mark.parametrize(("partitions", "each"), [(1, 100_000), (10_000, 10)])
def test_a_hundred_thousand_entries_are_packed_in_a_moment_and_a_few_megabytes(
    partitions: int, each: int
) -> None:
    edges = np.arange(each + 1) * 10
    given = [hinted(at, 0, each * 10, entries(edges.tolist())) for at in range(partitions)]
    began = time.process_time()
    splits = pack(given, PackOptions(slots=2, min_splits=8))
    data = pickle.dumps(splits)
    took_s = time.process_time() - began
    assert len(splits) == 8
    assert len(data) < 6_000_000
    assert took_s < 2, took_s
