"""Streams by id: added once, removed for good, found singly and by the thousand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.model.ids import TopicId
from lakelog.streams.table import NONE, StreamTable

TOPIC = TopicId(b"t" * 16)


def table_of(*streams: int) -> StreamTable:
    made = StreamTable()
    made.add(list(streams), topic=TOPIC, first_partition=3, position=7)
    return made


def test_a_new_stream_is_empty_and_knows_its_partition() -> None:
    facts = table_of(5, 9).facts(9)
    assert facts is not None
    assert (facts.topic, facts.partition, facts.log_start, facts.head) == (TOPIC, 4, 0, 0)


def test_adding_a_stream_again_keeps_it() -> None:
    table = table_of(5)
    table.columns.arrays["head"][table.row_of[5]] = 12
    table.add([4, 5], topic=TopicId(b"u" * 16), first_partition=0, position=8)
    facts = table.facts(5)
    assert facts is not None
    assert (facts.topic, facts.head, len(table)) == (TOPIC, 12, 2)


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.lists(st.integers(-2, 45)))
def test_rows_are_found_together_as_they_are_one_by_one(
    added: set[int], removed: set[int], asked: list[int]
) -> None:
    table = table_of(*sorted(added, key=lambda stream: -stream % 7))
    for stream in sorted(added & removed):
        table.remove(stream, position=9)
    for _ in range(2):
        rows = table.rows(np.array(asked, dtype=np.int64)).tolist()
        assert rows == [table.row_of.get(stream, NONE) for stream in asked]
        live = table.columns["id"][table.live_rows()].tolist()
        assert live == sorted(added - removed)
        table.pack()


def test_buckets_change_when_a_stream_in_them_does() -> None:
    table = table_of(1, 64, 200)
    assert table.buckets() == [0, 1, 3]
    assert table.changed_buckets(since=6) == {0, 1, 3}
    assert table.changed_buckets(since=7) == set()
    table.columns.arrays["changed"][table.row_of[200]] = 9
    table.remove(64, position=8)
    assert table.changed_buckets(since=7) == {1, 3}
    assert table.copied().changed_buckets(since=7) == {1, 3}
