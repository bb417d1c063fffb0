"""The offset grammar, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.cli.offsets import (
    At,
    Bound,
    End,
    Exact,
    OffsetError,
    ReadBounds,
    Start,
    parse,
    resolve,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("start", Start(), None),
        ("end", End(), None),
        (":end", Start(), End()),
        ("+5", Start(5), None),
        ("-10", End(10), None),
        ("7", Exact(7), None),
        ("7:", Exact(7), None),
        (":7", Start(), Exact(7)),
        ("3:7", Exact(3), Exact(7)),
        ("3:3", Exact(3), Exact(3)),
        ("3:end", Exact(3), End()),
        ("@1700000000000", At(1_700_000_000_000), None),
        ("@1700000000", At(1_700_000_000_000), None),
        ("@1700000000000:", At(1_700_000_000_000), None),
        ("@-1h", At(NOW_MS - HOUR_MS), None),
        ("@-1.5h", At(NOW_MS - HOUR_MS * 3 // 2), None),
        ("@-2h:-1h", At(NOW_MS - 2 * HOUR_MS), At(NOW_MS - HOUR_MS)),
        ("@-2h:30m", At(NOW_MS - 2 * HOUR_MS), At(NOW_MS - HOUR_MS * 3 // 2)),
        ("@-1d:end", At(NOW_MS - 24 * HOUR_MS), End()),
        ("@:-5m", Start(), At(NOW_MS - 300_000)),
        ("@2026-01-31", At(1_769_817_600_000), None),
        ("@2026-01-31T12:00:00Z", At(1_769_860_800_000), None),
        ("@2026-01-31T12:00", At(1_769_860_800_000), None),
        ("@2026-01-31T12:00:00+01:00", At(1_769_857_200_000), None),
        ("@2026-01-31T12:00:00Z:2026-02-01", At(1_769_860_800_000), At(1_769_904_000_000)),
        ("@1700000000000:1700000000001", At(1_700_000_000_000), At(1_700_000_000_001)),
        ("@1969-12-31T23:59:59.999Z", At(0), None),
        ("@-99999d:0001-01-01", At(0), At(0)),
    ],
)
def test_an_offset_is_read(text: str, start: Bound, end: Bound | None) -> None:
    assert parse(text, now_ms=NOW_MS) == ReadBounds(start, end)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "+", "-", "x", "1:x", "--1", "1-2", "1:2:3", "7:3", "9223372036854775808"),
        *("@", "@:", "@x", "@-1y", "@30m", "@:30m", "@-1h:-2h", "@2026-13-01", "@1700000000000x"),
        *("\N{ARABIC-INDIC DIGIT THREE}", f"@-{'9' * 400}d", f"@-1h:{'9' * 17}d"),
    ],
)
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(OffsetError):
        parse(text, now_ms=NOW_MS)


numbers = (st.integers(0, 20) | st.integers(0, 1 << 64)).map(str)
lengths = st.builds("{}{}".format, numbers, st.sampled_from(["ms", "h", "d"]))
times = lengths.map("-{}".format) | st.sampled_from(["1700000000", "2026-01-31", "0001-01-01"])
texts = (
    st.text("0123456789:+-@.hdmsTZend start", max_size=20)
    | st.builds("{}{}".format, st.sampled_from(["", "+", "-", ":"]), numbers)
    | st.builds("{}:{}".format, numbers, numbers)
    | st.builds("@{}:{}".format, times, times | lengths)
    | times.map("@{}".format)
)


@given(texts)
def test_any_text_is_refused_or_a_range_that_the_wire_can_carry(text: str) -> None:
    try:
        found = parse(text, now_ms=NOW_MS)
    except OffsetError:
        return
    start, end = (as_number(bound) for bound in (found.start, found.end))
    assert start is not None
    assert 0 <= start < 1 << 63
    assert end is None or 0 <= end < 1 << 63
    if end is not None and type(found.start) is type(found.end):
        assert start <= end


def as_number(bound: Bound | None) -> int | None:
    match bound:
        case Start(number) | End(number) | Exact(number) | At(number):
            return number
        case None:
            return None


@pytest.mark.parametrize(
    ("bound", "offset"),
    [
        (Start(), 10),
        (Start(5), 15),
        (Start(500), 20),
        (End(), 20),
        (End(3), 17),
        (End(500), 10),
        (Exact(3), 3),
        (At(1), 12),
    ],
)
def test_a_bound_is_an_offset_of_a_partition_that_holds_10_to_20(bound: Bound, offset: int) -> None:
    assert resolve(bound, first=10, end=20, at=12) == offset
