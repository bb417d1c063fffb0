"""How far a group is behind, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.group_lag import Position, TopicPartition, lag_ms, lag_records, remark, row

AT = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000


def position(
    committed: int | None, *, start: int = 10, end: int = 20, unread_ms: int | None = None
) -> Position:
    return Position(AT, committed, start, end, unread_ms)


@pytest.mark.parametrize(
    ("committed", "lag", "said"),
    [
        (10, 10, ""),
        (15, 5, ""),
        (20, 0, ""),
        (7, 10, "below the log start, 10"),
        (-3, 10, "below the log start, 10"),
        (25, 0, "beyond the end"),
        (None, None, ""),
    ],
)
def test_lag_is_what_is_left_to_read(committed: int | None, lag: int | None, said: str) -> None:
    assert lag_records(position(committed)) == lag
    assert remark(position(committed)) == said


def test_seconds_are_the_age_of_the_first_unread_record() -> None:
    assert lag_ms(position(15, unread_ms=NOW_MS - 2500), NOW_MS) == 2500
    assert lag_ms(position(20), NOW_MS) == 0
    assert lag_ms(position(25), NOW_MS) == 0


def test_a_record_from_the_future_has_not_waited() -> None:
    assert lag_ms(position(15, unread_ms=NOW_MS + 1), NOW_MS) == 0


def test_what_nobody_knows_is_none() -> None:
    gone = Position(AT, 5, trouble="no such topic")
    assert (lag_records(gone), lag_ms(gone, NOW_MS), remark(gone)) == (None, None, "no such topic")
    assert lag_ms(position(None), NOW_MS) is None
    assert lag_ms(position(15), NOW_MS) is None  # the record could not be read
    assert lag_ms(position(15, unread_ms=-1), NOW_MS) is None  # a record without a timestamp


def test_markers_are_counted_and_wait_for_nobody() -> None:
    markers = Position(AT, 19, 10, 20, only_markers=True)
    assert (lag_records(markers), lag_ms(markers, NOW_MS)) == (1, 0)


def test_a_row_has_what_a_table_shows() -> None:
    assert row(position(15, unread_ms=NOW_MS - 2500), NOW_MS) == {
        "topic": "orders",
        "partition": 0,
        "committed": 15,
        "end": 20,
        "lag": 5,
        "seconds": 2.5,
        "note": "",
    }


@given(st.integers(-5, 40), st.integers(0, 30), st.integers(0, 30))
def test_lag_is_never_more_than_there_is_and_never_less_than_nothing(
    committed: int, start: int, size: int
) -> None:
    lag = lag_records(position(committed, start=start, end=start + size))
    assert lag is not None
    assert 0 <= lag <= size
    assert (lag == 0) == (committed >= start + size or size == 0)
