"""Packed entries: the same as a list of entries, whatever part is taken."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.lake.packed import entries

from lakelog.index.entries import (
    Entries,
    LocatedRange,
    is_sound,
    joined,
    no_entries,
    packed_range,
    unpacked_range,
)
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import parse_object_key

_shapes = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(FileKind)), min_size=1, max_size=12)


def made(shape: list[tuple[int, FileKind]]) -> Entries:
    edges = list(accumulate((step for step, _ in shape), initial=5))
    return entries(edges, kinds=[kind for _, kind in shape])


@given(_shapes, st.data())
def test_what_overlaps_a_range_is_what_holds_an_offset_of_it(
    shape: list[tuple[int, FileKind]], data: st.DataObject
) -> None:
    found = made(shape)
    start = data.draw(st.integers(5, found.end - 1))
    end = data.draw(st.integers(start + 1, found.end))
    part = found.overlapping(start=start, end=end)
    assert list(part) == [one for one in found if one.end > start and one.start < end]
    assert is_sound(part)
    assert part.start <= start
    assert part.end >= end


@given(_shapes, st.data())
def test_parts_that_follow_each_other_are_the_whole_again(
    shape: list[tuple[int, FileKind]], data: st.DataObject
) -> None:
    found = made(shape)
    cut = data.draw(st.integers(0, len(found)))
    again = joined([found.part(0, cut), found.part(cut, len(found))])
    assert list(again) == list(found)
    assert is_sound(again)


@given(_shapes)
def test_what_was_packed_is_the_same_again(shape: list[tuple[int, FileKind]]) -> None:
    found = LocatedRange(5, 3, 200, made(shape))
    again = unpacked_range(packed_range(found))
    assert list(again.entries) == list(found.entries)
    assert (again.log_start, again.first_start, again.head) == (5, 3, 200)
    assert [again.entries.entry(number) for number in range(len(shape))] == list(found.entries)


def test_an_entry_names_its_object() -> None:
    found = list(entries([0, 3, 9], kinds=[FileKind.WAL, FileKind.PARQUET]))
    place = parse_object_key(found[0].key)
    assert place is not None
    assert (place.zone, place.domain) == ("z", 3)
    assert found[1].key == "compaction/v1/1"
    assert (found[1].start, found[1].end, found[1].byte_start) == (3, 9, 7)


def test_weights_count_a_part_of_an_entry_by_its_share() -> None:
    edges, sums = entries([0, 10, 20], [100, 300]).weights(start=5, end=15)
    assert edges.tolist() == [5, 10, 15]
    assert sums.tolist() == [0, 50, 200]


def test_columns_that_do_not_fit_are_no_entries() -> None:
    good = entries([0, 3, 9])
    assert is_sound(good)
    assert is_sound(no_entries(0, 7))
    for bad in (
        replace(good, edges=np.array([0, 3, 3])),
        replace(good, edges=np.array([-1, 3, 9])),
        replace(good, edges=good.edges[:2]),
        replace(good, labels=np.array([0, 1], np.int32)),
        replace(good, labels=np.array([-1, 0], np.int32)),
        replace(good, kinds=np.array([0, 9], np.uint8)),
        replace(good, byte_lengths=np.array([1, 0])),
        replace(good, byte_starts=np.array([-1, 0])),
        replace(good, wal_ids=good.wal_ids[:1]),
    ):
        assert not is_sound(bad)
