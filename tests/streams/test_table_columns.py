"""Columns grow, shrink and are copied without losing a row or the shape of a column."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakelog.streams.table import FIRST_CAPACITY, Columns


def columns_of(count: int) -> Columns:
    made = Columns({"number": np.int64, "window": np.dtype((np.int64, 3))})
    for number in range(count):
        row = made.extend(1)
        made.arrays["number"][row] = number
        made.arrays["window"][row] = (number, number + 1, number + 2)
    return made


@given(st.sampled_from((0, 1, FIRST_CAPACITY, FIRST_CAPACITY + 1, 3 * FIRST_CAPACITY)))
def test_rows_survive_growth(count: int) -> None:
    made = columns_of(count)
    assert made["number"].tolist() == list(range(count))
    assert made["window"].shape == (count, 3)


def test_added_rows_are_zero_whatever_the_room_held_before() -> None:
    made = columns_of(5)
    first = made.extend(2)
    assert first == 5
    assert made["number"].tolist()[5:] == [0, 0]


def test_taken_rows_are_in_the_order_asked_for_and_can_grow() -> None:
    made = columns_of(5).taken(np.array([4, 0, 2]))
    row = made.extend(1)
    made.arrays["number"][row] = 9
    assert made["number"].tolist() == [4, 0, 2, 9]
    assert made["window"][0].tolist() == [4, 5, 6]


def test_no_rows_can_be_taken_and_the_first_row_may_be_looked_at() -> None:
    for made in (columns_of(5).taken(np.array([], dtype=np.intp)), columns_of(0).copied()):
        assert made.count == 0
        assert made.arrays["number"][np.zeros(3, dtype=np.int64)].tolist() == [0, 0, 0]
        made.extend(1)
        assert made["window"].tolist() == [[0, 0, 0]]


def test_a_copy_has_memory_of_its_own() -> None:
    made = columns_of(3)
    copy = made.copied()
    made["number"][0] = 77
    made.extend(1)
    assert copy["number"].tolist() == [0, 1, 2]
