"""Where a group is moved to, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.group_seek import (
    Move,
    Scope,
    Shift,
    Target,
    explain,
    parse_scope,
    parse_target,
    plan,
)
from lakelog.cli.group_view import Position
from lakelog.cli.offsets import At, Bound, End, Exact, OffsetError, Start
from lakelog.kafka_client.admin import TopicPartition

AT = TopicPartition("orders", 0)
NOW_MS = 1_800_000_000_000
POSITION = Position(AT, committed=15, start=10, end=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start()),
        ("start", Start()),
        ("latest", End()),
        ("end", End()),
        ("7", Exact(7)),
        ("123456789012", Exact(123_456_789_012)),
        ("+5", Start(5)),
        ("-5", End(5)),
        ("1700000000000", At(1_700_000_000_000)),
        ("@1700000000", At(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", At(1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", At(1_700_000_000_000)),
        ("2023-11-14", At(1_699_920_000_000)),
        ("-1h", At(NOW_MS - 3_600_000)),
        ("@-1h", At(NOW_MS - 3_600_000)),
        ("1960-01-01", At(0)),  # below 0 the wire has words such as "latest"
        ("-99999999d", At(0)),
    ],
)
def test_a_place_is_an_offset_a_word_or_a_time(text: str, expected: Bound) -> None:
    assert parse_target(text, now_ms=NOW_MS) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "'soon' is no place to go; write earliest, latest"),
        ("", "is no place to go"),
        ("2026-13-01", "is no place to go"),
        ("-" + "9" * 400 + "d", "is no place to go"),
        (":end", "is a range"),
        ("3:5", "is a range"),
        ("3:", "is a range"),
        ("@-2h:-1h", "is a range"),
    ],
)
def test_what_is_no_place_is_told(text: str, said: str) -> None:
    with pytest.raises(OffsetError, match=said):
        parse_target(text, now_ms=NOW_MS)


def test_a_scope_is_a_topic_with_all_or_some_partitions() -> None:
    assert parse_scope("orders") == Scope("orders", None)
    assert parse_scope("orders:3,0,3") == Scope("orders", (0, 3))
    for wrong in ("", ":1", "orders:", "orders:x", "orders:1,", "orders:-1", "a:1:2"):
        with pytest.raises(OffsetError, match="is no topic"):
            parse_scope(wrong)


@pytest.mark.parametrize(
    ("target", "after", "note"),
    [
        (Start(), 10, ""),
        (End(), 20, ""),
        (Start(3), 13, ""),
        (End(3), 17, ""),
        (Exact(12), 12, ""),
        (Shift(-2), 13, ""),
        (Shift(2), 17, ""),
        (Start(11), 20, "21 is beyond the end"),
        (End(11), 10, "9 is below the log start"),
        (Exact(9), 10, "9 is below the log start"),
        (Exact(21), 20, "21 is beyond the end"),
        (Shift(-6), 10, "9 is below the log start"),
        (Shift(6), 20, "21 is beyond the end"),
    ],
)
def test_a_move_stays_inside_what_there_is_and_says_so(
    target: Target, after: int, note: str
) -> None:
    assert plan(POSITION, target) == Move(AT, 15, after, note)


def test_a_time_moves_to_its_first_record_or_to_the_end() -> None:
    assert plan(POSITION, At(5), at=12) == Move(AT, 15, 12)
    assert plan(POSITION, At(5), at=-1) == Move(AT, 15, 20, "no record is that late")


def test_what_was_never_committed_can_be_set_and_not_shifted() -> None:
    fresh = Position(AT, None, 10, 20)
    assert plan(fresh, Exact(12)) == Move(AT, None, 12)
    shifted = plan(fresh, Shift(1))
    assert shifted.after is None
    assert "never committed" in shifted.note


def test_a_partition_that_is_gone_stays_as_it_is() -> None:
    gone = Position(AT, 15, trouble="no such topic")
    assert plan(gone, Start()) == Move(AT, 15, None, "no such topic")


def test_a_change_is_counted_in_records() -> None:
    assert Move(AT, 15, 10).row()["change"] == -5
    assert Move(AT, 15, 15).row()["change"] == 0
    assert Move(AT, None, 10).row()["change"] is None
    assert Move(AT, 15, None).row()["change"] is None


def test_a_number_that_was_read_as_a_time_is_seen_to_be_one() -> None:
    said = explain(parse_target("1700000000000", now_ms=NOW_MS))
    assert said == "to the first record of 2023-11-14T22:13:20.000Z or later"
    assert explain(Shift(-3)) == "by -3 records"
    assert explain(Exact(7)) == "to offset 7"
    assert explain(At(1 << 62)) == f"to the first record of {1 << 62} ms or later"


@given(
    st.one_of(
        st.builds(Shift, st.integers(-99, 99)),
        st.builds(Start, st.integers(0, 99)),
        st.builds(End, st.integers(0, 99)),
        st.builds(Exact, st.integers(0, 99)),
        st.just(At(1)),
    ),
    st.integers(-9, 60),
    st.integers(0, 40),
    st.integers(0, 20),
)
def test_no_move_leaves_the_log(target: Target, committed: int, start: int, size: int) -> None:
    move = plan(Position(AT, committed, start, start + size), target, at=-1)
    assert move.after is not None
    assert start <= move.after <= start + size
