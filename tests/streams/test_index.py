"""The offset index: finding entries near the end, far back, and after trims and swaps."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import TopicId
from lakelog.streams import table as columns_module
from lakelog.streams.index import TAIL_STEPS_MAX, EntryRow, Index
from lakelog.streams.table import NONE, StreamTable

COUNT = TAIL_STEPS_MAX * 3


def table_of(streams: int) -> StreamTable:
    made = StreamTable()
    made.add(list(range(streams)), topic=TopicId(bytes(16)), first_partition=0, position=1)
    return made


def filled(streams: StreamTable, count: int) -> Index:
    """Entries [0, 10), [10, 20), … of streams 0 and 1, alternating."""
    index = Index()
    for number in range(count):
        for row in (0, 1):
            entry = EntryRow(number * 10, number * 10 + 10, number, 0, 100, number)
            index.append_one(streams, row, entry)
    return index


def test_the_memory_of_an_index_is_that_of_its_rows_and_views() -> None:
    streams = table_of(2)
    index = filled(streams, COUNT)
    row_bytes = sum(array.itemsize for array in index.columns.arrays.values())
    assert index.held_bytes() == 2 * COUNT * row_bytes
    index.rows(streams, 0)
    index.rows(streams, 0)
    assert index.held_bytes() == 2 * COUNT * row_bytes + COUNT * 16
    index.trim(streams, 0, 10)  # dead rows are there until the index is packed
    assert index.held_bytes() == 2 * COUNT * row_bytes + COUNT * 16
    index.trim(streams, 0, COUNT * 10)
    assert index.held_bytes() == 2 * COUNT * row_bytes
    index.rows(streams, 1)
    index.pack(streams, np.arange(2, dtype=np.int64), np.arange(COUNT, dtype=np.int64))
    assert index.held_bytes() == COUNT * row_bytes


def start_of(index: Index, row: int) -> int:
    return index.entry(row).start


@pytest.mark.parametrize("offset", [0, 5, 9, 10, COUNT * 5, COUNT * 10 - 1])
def test_every_offset_is_found_in_its_entry(offset: int) -> None:
    streams = table_of(2)
    index = filled(streams, COUNT)
    found = index.entry(index.find(streams, 1, offset))
    assert found.start <= offset < found.end


def test_an_offset_beyond_the_last_entry_and_an_empty_stream_find_nothing() -> None:
    streams = table_of(3)
    index = filled(streams, 2)
    assert index.find(streams, 0, 20) == NONE
    assert index.find(streams, 2, 0) == NONE


def test_an_offset_below_the_first_entry_finds_the_first_entry() -> None:
    for count in (3, COUNT):
        streams = table_of(2)
        index = filled(streams, count)
        index.trim(streams, 0, 20)
        assert start_of(index, index.find(streams, 0, 3)) == 20


@given(st.integers(0, COUNT - 1), st.integers(1, COUNT))
def test_following_entries_are_the_next_ones_in_order(first: int, limit: int) -> None:
    streams = table_of(2)
    index = filled(streams, COUNT)
    row = index.find(streams, 0, first * 10)
    starts = [start_of(index, one) for one in index.following(streams, 0, row, limit)]
    assert starts == [number * 10 for number in range(first, min(first + limit, COUNT))]


def test_a_view_made_once_sees_entries_added_later() -> None:
    streams = table_of(2)
    index = filled(streams, COUNT)
    assert start_of(index, index.find(streams, 0, 0)) == 0
    index.append_one(streams, 0, EntryRow(COUNT * 10, COUNT * 10 + 1, 9, 0, 1, 0))
    assert len(index.rows(streams, 0)) == COUNT + 1
    assert len(index.rows(streams, 1)) == COUNT


def test_trim_keeps_the_entry_that_straddles_the_offset_and_counts_bytes() -> None:
    streams = table_of(2)
    index = filled(streams, 4)
    assert index.trim(streams, 0, 25) == 200
    assert [start_of(index, row) for row in index.rows(streams, 0)] == [20, 30]
    assert index.trim(streams, 0, 25) == 0
    assert len(index.rows(streams, 1)) == 4
    assert index.trim(streams, 0, 40) == 200
    assert len(index.rows(streams, 0)) == 0


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 3), (1, 3), (2, 4), (0, 4), (3, 4)])
def test_replaced_entries_leave_a_chain_without_gap(first: int, end: int) -> None:
    streams = table_of(2)
    index = filled(streams, 4)
    old = index.rows(streams, 0)[first:end]
    new = {"stream": 0, "start": first * 10, "end": end * 10, "object": 99, "byte_length": 7}
    index.replace(streams, 0, old, new)
    bounds = [(index.entry(row).start, index.entry(row).end) for row in index.rows(streams, 0)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 40
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))
    assert (first * 10, end * 10) in bounds
    assert len(index.rows(streams, 1)) == 4


def test_objects_of_dead_entries_are_not_referenced() -> None:
    streams = table_of(2)
    index = filled(streams, 3)
    index.trim(streams, 0, 20)
    assert index.referenced().tolist() == [0, 1, 2]
    index.trim(streams, 1, 10)
    assert index.referenced().tolist() == [1, 2]


def test_packing_pays_when_most_rows_are_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "DEAD_ROWS_MIN", 2)
    streams = table_of(2)
    index = filled(streams, 4)
    index.trim(streams, 0, 40)
    assert not index.is_sparse()
    index.trim(streams, 1, 10)
    assert index.is_sparse()
    rows = np.arange(4, dtype=np.int64)
    index.pack(streams, rows, rows)
    assert index.columns.count == 3
    assert [start_of(index, row) for row in index.rows(streams, 1)] == [10, 20, 30]
    assert not index.is_sparse()
