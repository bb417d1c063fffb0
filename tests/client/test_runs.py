"""A run's order and what is left of it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.row_cases import at, in_numpy

from lakelog.client.release import INT64_MAX, INT64_MIN
from lakelog.client.runs import TAIL_ROWS, Run
from lakelog.records import ordering


def test_rows_in_order_are_neither_sorted_nor_copied() -> None:
    rows = at(5, 5, 8)
    run = Run(0, rows)
    assert run.source.order is None
    assert run.source.timestamps_ms is rows.timestamps_ms
    assert run.nbytes == rows.nbytes


def test_rows_out_of_order_go_by_time_and_then_by_offset() -> None:
    run = Run(0, at(7, 5, 7, 5, first=10))
    assert run.offsets(0, 4).tolist() == [11, 13, 10, 12]
    assert run.nbytes > run.rows.nbytes


def test_unordered_rows_stay_in_the_order_of_their_offsets() -> None:
    assert Run(0, at(7, 5, 6), ordered=False).offsets(0, 3).tolist() == [0, 1, 2]


def test_rows_that_were_released_before_are_left_out() -> None:
    run = Run(0, at(7, 5, 6, 9, first=10), released=((0, 11), (12, 13)))
    assert run.offsets(0, 9).tolist() == [11, 13]
    assert len(run) == 2
    assert run.least_offset() == 11
    assert run.source.timestamps_ms.tolist() == [5, 9]


def test_rows_that_were_released_before_are_left_out_of_unordered_ones() -> None:
    run = Run(0, at(7, 5, 6, 9), ordered=False, released=((1, 2), (90, 99)))
    assert run.offsets(0, 9).tolist() == [0, 2, 3]


def test_ranges_that_hold_nothing_of_the_run_leave_it_as_it_is() -> None:
    assert Run(0, at(5, 6), released=((7, 9),)).source.order is None


def test_a_run_may_be_released_whole() -> None:
    run = Run(0, at(5, 4), released=((0, 2),))
    assert len(run) == 0
    assert run.least_offset() is None


def test_the_least_offset_that_remains_is_not_that_of_the_next_row() -> None:
    run = Run(0, at(9, 5, 6, first=20))
    assert [run.least_offset(start=start) for start in range(4)] == [20, 20, 20, None]
    assert [Run(0, at(5, 6)).least_offset(start=start) for start in range(3)] == [0, 1, None]


def test_the_tail_is_the_least_of_the_latest_rows_only() -> None:
    assert Run(0, at(1, *range(100, 100 + TAIL_ROWS))).tail_ms == 100
    assert Run(0, at(*range(100, 199), 10**12)).tail_ms == 200 - TAIL_ROWS
    assert Run(0, at()).tail_ms is None


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5) | st.integers(INT64_MIN, INT64_MAX), max_size=30), st.booleans())
def test_a_run_is_a_stable_sort_and_knows_its_least_offset(times: list[int], twin: bool) -> None:
    ordering.load()
    if twin:
        with in_numpy():
            run = Run(0, at(*times))
    else:
        run = Run(0, at(*times))
    expected = sorted(range(len(times)), key=lambda offset: times[offset])
    assert run.offsets(0, len(run)).tolist() == expected
    assert run.source.timestamps_ms.tolist() == sorted(times)
    for start in range(len(times) + 1):
        assert run.least_offset(start=start) == min(expected[start:], default=None)


def test_a_run_keeps_no_bytes_but_those_of_its_rows() -> None:
    rows = at(5, 6)
    run = Run(0, rows)
    assert run.buffer.size == len(rows.data)
    assert np.shares_memory(np.frombuffer(run.buffer, np.uint8), np.frombuffer(rows.data, np.uint8))
