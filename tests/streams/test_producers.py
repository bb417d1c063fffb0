"""Producer windows: five batches, found by stream and id, the same by value and as columns."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.streams.producers import (
    BATCH_FIELDS,
    WINDOW_BATCHES,
    Batch,
    ProducerTable,
    advanced,
)
from lakelog.streams.table import NONE


def batch_of(first: int, count: int = 1) -> Batch:
    return Batch(first, count, first * 10, first + 5)


def test_the_sequence_after_the_greatest_is_zero() -> None:
    assert advanced(2**31 - 1, 1) == 0
    assert advanced(2**31 - 2, 4) == 2
    assert advanced(0, 7) == 7


def test_producers_of_one_id_on_two_streams_are_strangers() -> None:
    table = ProducerTable()
    table.accept(0, 9, 0, batch_of(0), time_ms=1)
    table.accept(1, 9, 4, batch_of(8), time_ms=1)
    assert table.epoch(table.row(0, 9)) == 0
    assert table.epoch(table.row(1, 9)) == 4
    assert table.row(2, 9) == NONE
    assert len(table) == 2


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_a_window_holds_the_newest_five_whichever_way_they_came(counts: list[int]) -> None:
    one_by_one, pushed = ProducerTable(), ProducerTable()
    first = 0
    batches = []
    for count in counts:
        batches.append(batch_of(first, count))
        first = advanced(first, count)
    for batch in batches:
        one_by_one.accept(0, 9, 0, batch, time_ms=3)
    row = pushed.accept(0, 9, 0, batches[0], time_ms=3)
    for batch in batches[1:]:
        columns = {name: np.array([getattr(batch, name)]) for name in BATCH_FIELDS}
        pushed.push(np.array([row]), columns, time_ms=3)
    for table in (one_by_one, pushed):
        assert table.window(row) == tuple(batches[-WINDOW_BATCHES:])
        assert table.expected(row) == first
        ordered = table.ordered_windows(np.array([row], dtype=np.intp))
        padding = [0] * max(0, WINDOW_BATCHES - len(batches))
        expected = padding + [batch.first for batch in batches[-WINDOW_BATCHES:]]
        assert ordered["first"][0].tolist() == expected


def test_a_new_epoch_forgets_the_batches_of_the_older_one() -> None:
    table = ProducerTable()
    row = table.accept(0, 9, 0, batch_of(0), time_ms=1)
    table.accept(0, 9, 1, batch_of(0, 3), time_ms=1)
    assert table.window(row) == (batch_of(0, 3),)
    assert table.epoch(row) == 1


def test_the_time_of_a_producer_never_goes_back() -> None:
    table = ProducerTable()
    table.accept(0, 9, 0, batch_of(0), time_ms=50)
    table.accept(0, 9, 0, batch_of(1), time_ms=40)
    assert table.older_than(50).tolist() == []
    assert table.older_than(51).tolist() == [0]


def test_the_greatest_id_that_expired_is_remembered_but_not_one_that_was_dropped() -> None:
    table = ProducerTable()
    for producer in (3, 8, 9):
        table.accept(0, producer, 0, batch_of(0), time_ms=1)
    table.forget([table.row(0, 9)], expired=False)
    assert table.expired_max == -1
    table.forget([table.row(0, 8)], expired=True)
    assert table.expired_max == 8
    assert [table.row(0, producer) == NONE for producer in (3, 8, 9)] == [False, True, True]


def test_a_cutoff_lets_just_so_many_of_the_oldest_go() -> None:
    table = ProducerTable()
    assert table.cutoff_ms(1) == 0
    for producer, time_ms in enumerate((50, 10, 40, 20, 30)):
        table.accept(0, producer, 0, batch_of(0), time_ms=time_ms)
    table.forget([table.row(0, 1)], expired=True)
    assert [table.cutoff_ms(count) for count in (0, 1, 2, 9)] == [0, 21, 31, 51]


def test_a_row_used_again_remembers_nothing_of_its_old_producer() -> None:
    table = ProducerTable()
    for first in range(5):
        table.accept(0, 1, 3, batch_of(first), time_ms=99)
    table.forget([0], expired=True)
    row = table.accept(4, 2, 0, batch_of(0), time_ms=1)
    assert row == 0
    assert table.window(row) == (batch_of(0),)
    assert table.of_stream(4).tolist() == [0]
    assert table.of_stream(0).tolist() == []
    assert table.older_than(2).tolist() == [0]


def test_renumbering_keeps_windows_with_their_streams() -> None:
    table = ProducerTable()
    for stream in range(4):
        table.accept(stream, 7, 0, batch_of(stream), time_ms=1)
    table.forget([1], expired=False)
    kept = table.renumber(np.array([2, NONE, 1, 0], dtype=np.int64))
    assert kept.tolist() == [0, 2, 3]
    assert table.window(table.row(0, 7)) == (batch_of(3),)
    assert table.window(table.row(2, 7)) == (batch_of(0),)
