"""Offsets as people say them. Pure.

    start         from the first record          n        from offset n
    end           from the end: new records      n:       the same
    :end          everything there is, then stop :n       from the first record until before n
    +n            n records after the first      a:b      from a until before b
    -n            n records before the end       @t       from time t on; @t1:t2 until t2
                                                 @:t      until time t

A time is milliseconds (13 digits), seconds (10 digits), a date `2026-01-31`, a date and time
`2026-01-31T12:00:00Z`, or relative to now: `-1h`, `-15m`, `-7d`. As the second of two it may also
be a length (`@-2h:30m`) or `end`. Ranges are half-open. A time before 1970 counts as 1970: on the
wire a time below 0 is no time but a word such as "latest".
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LENGTH_MS_MAX: Final = 1 << 62
"""So that a time and a length together still fit into the 64 bits of the wire."""
GRAMMAR: Final = "start, end, :end, +n, -n, n, a:b, @timestamp or @t1:t2"

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?"
    r"|\d{13}|\d{10}|-\d+(\.\d+)?(ms|s|m|h|d)",
    re.ASCII,
)
_LENGTH: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s|m|h|d)", re.ASCII)


class OffsetError(ValueError):
    """What was written is no offset; the text says what is."""


@dataclass(frozen=True, slots=True)
class Start:
    """So many records after the first one."""

    skip: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """So many records before the end."""

    back: int = 0


@dataclass(frozen=True, slots=True)
class Exact:
    """This offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class At:
    """The first record of this time or later."""

    timestamp_ms: int


Bound: TypeAlias = Start | End | Exact | At


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """From where to where to read; without an end, on and on."""

    start: Bound
    end: Bound | None = None


def parse(text: str, *, now_ms: int) -> ReadBounds:
    """Read an offset or a range of offsets; raises OffsetError."""
    text = text.strip()
    if text.startswith("@"):
        return _times(text[1:], now_ms)
    if text in ("start", "oldest"):
        return ReadBounds(Start())
    if text in ("end", "newest"):
        return ReadBounds(End())
    if text[:1] in ("+", "-"):
        count = _number(text[1:], text)
        return ReadBounds(Start(count) if text[0] == "+" else End(count))
    first, colon, second = text.partition(":")
    start = Exact(_number(first, text)) if first or not colon else Start()
    if not colon or not second:
        if not first:
            raise _wrong(text)
        return ReadBounds(start)
    end = End() if second == "end" else Exact(_number(second, text))
    if isinstance(start, Exact) and isinstance(end, Exact) and start.offset > end.offset:
        raise OffsetError(f"{text!r}: the range ends before it starts")
    return ReadBounds(start, end)


def resolve(bound: Bound, *, first: int, end: int, at: int) -> int:
    """The offset that a bound means in a partition that holds [first, end).

    `at` is the offset of the first record at or after the bound's time, `end` if there is none.
    """
    match bound:
        case Start(skip=skip):
            return min(first + skip, end)
        case End(back=back):
            return max(first, end - back)
        case Exact(offset=offset):
            return offset
        case At():
            return at


def _times(text: str, now_ms: int) -> ReadBounds:
    whole = f"@{text}"
    found = _TIME.match(text)
    start: Bound = Start()
    rest = text
    if found is not None:
        start = At(_time(found.group(), now_ms))
        rest = text[found.end() :]
    elif not text.startswith(":"):
        raise _wrong(whole)
    if rest in ("", ":"):
        if found is None:
            raise _wrong(whole)
        return ReadBounds(start)
    if not rest.startswith(":"):
        raise _wrong(whole)
    end = _end_time(rest[1:], start, whole, now_ms)
    if isinstance(start, At) and isinstance(end, At) and start.timestamp_ms > end.timestamp_ms:
        raise OffsetError(f"{whole!r}: the range ends before it starts")
    return ReadBounds(start, end)


def _end_time(text: str, start: Bound, whole: str, now_ms: int) -> Bound:
    if text == "end":
        return End()
    if _TIME.fullmatch(text):
        return At(_time(text, now_ms))
    length = _LENGTH.fullmatch(text)
    if length is not None and isinstance(start, At):
        return At(start.timestamp_ms + _length_ms(text))
    raise _wrong(whole)


def _time(text: str, now_ms: int) -> int:
    if text.startswith("-"):
        return max(0, now_ms - _length_ms(text[1:]))
    if text.isdigit():
        return int(text) if len(text) == 13 else int(text) * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as reason:
        raise OffsetError(f"{text!r} is no date: {reason}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def _length_ms(text: str) -> int:
    found = _LENGTH.fullmatch(text)
    assert found is not None, text
    length_ms = float(found["number"]) * UNITS_MS[found["unit"]]
    if length_ms >= LENGTH_MS_MAX:
        raise OffsetError(f"{text!r} is too long a time")
    return int(length_ms)


def _number(text: str, whole: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) >= 1 << 63:
        raise _wrong(whole)
    return int(text)


def _wrong(text: str) -> OffsetError:
    return OffsetError(f"{text!r} is no offset; write {GRAMMAR}")
