"""Where a group shall go on reading: what the user said, and the moves that follow. Pure.

A target is an offset as `records consume` takes it (`start`, `end`, `+n`, `-n`, `n`, `@time`), with
Kafka's words `earliest` and `latest`; a date or a number of 13 digits is a time also without `@`.
No move leaves what the partition holds: it is clamped to [start, end], and says so.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias, assert_never

from lakelog.cli.group_lag import Position, TopicPartition
from lakelog.cli.offsets import At, Bound, End, Exact, OffsetError, Start, parse

TARGETS: Final = "earliest, latest, n, +n, -n or a time (a date, milliseconds, @-1h)"

_WORDS: Final = {"earliest": "start", "latest": "end"}
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{13}|-\d+(\.\d+)?(ms|s|m|h|d)", re.ASCII)
_SCOPE: Final = re.compile(r"(?P<topic>[^:]+)(:(?P<partitions>\d{1,9}(,\d{1,9})*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shift:
    """So many records on from the committed offset, or back if less than 0."""

    by: int


Target: TypeAlias = Bound | Shift


@dataclass(frozen=True, slots=True)
class Scope:
    """A topic, and which of its partitions; None is all."""

    topic: str
    partitions: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's committed offset before and after; without an aim it stays as it is."""

    at: TopicPartition
    before: int | None
    after: int | None
    note: str = ""

    def row(self) -> dict[str, object]:
        """The move as a row of a table."""
        known = self.before is not None and self.after is not None
        return {
            "topic": self.at.topic,
            "partition": self.at.partition,
            "from": self.before,
            "to": self.after,
            "change": (self.after or 0) - (self.before or 0) if known else None,
            "note": self.note,
        }


def parse_target(text: str, *, now_ms: int) -> Bound:
    """Read where to go; raises OffsetError."""
    word = _WORDS.get(text.strip(), text.strip())
    if _TIME.fullmatch(word):
        word = f"@{word}"
    try:
        found = parse(word, now_ms=now_ms)
    except (OffsetError, OverflowError):
        raise OffsetError(f"{text!r} is no place to go; write {TARGETS}") from None
    if found.end is not None or word.endswith(":"):
        raise OffsetError(f"{text!r} is a range; write one place: {TARGETS}")
    if isinstance(found.start, At):
        # On the wire a time below 0 is no time but a word such as "latest".
        return At(max(0, found.start.timestamp_ms))
    return found.start


def parse_scope(text: str) -> Scope:
    """Read `topic` or `topic:0,3`; raises OffsetError."""
    found = _SCOPE.fullmatch(text)
    if found is None:
        raise OffsetError(f"{text!r} is no topic; write NAME, or NAME:0,3 for some partitions")
    listed = found["partitions"]
    if listed is None:
        return Scope(found["topic"], None)
    return Scope(found["topic"], tuple(sorted({int(each) for each in listed.split(",")})))


def plan(position: Position, target: Target, *, at: int | None = None) -> Move:
    """The move of one partition; `at` is where the target's time is in it, -1 if nowhere."""
    before, start, end = position.committed, position.start, position.end
    if start is None or end is None:
        return Move(position.at, before, None, position.trouble)
    aim = _aim(position, target, start=start, end=end, at=at)
    if aim is None:
        return Move(position.at, before, None, "never committed")
    if aim < start:
        return Move(position.at, before, start, f"{aim} is below the log start")
    if aim > end:
        return Move(position.at, before, end, f"{aim} is beyond the end")
    if isinstance(target, At) and (at is None or at < 0):
        return Move(position.at, before, end, "no record is that late")
    return Move(position.at, before, aim)


def explain(target: Target) -> str:
    """A target in words, so that a number that was read as a time is seen to be one."""
    match target:
        case Shift(by=by):
            return f"by {by:+d} records"
        case Start(skip=skip):
            return f"to {skip} records after the log start" if skip else "to the log start"
        case End(back=back):
            return f"to {back} records before the end" if back else "to the end"
        case Exact(offset=offset):
            return f"to offset {offset}"
        case At(timestamp_ms=timestamp_ms):
            return f"to the first record of {_moment(timestamp_ms)} or later"
    assert_never(target)


def _aim(position: Position, target: Target, *, start: int, end: int, at: int | None) -> int | None:
    match target:
        case Shift(by=by):
            return None if position.committed is None else position.committed + by
        case Start(skip=skip):
            return start + skip
        case End(back=back):
            return end - back
        case Exact(offset=offset):
            return offset
        case At():
            return end if at is None or at < 0 else at
    assert_never(target)


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
