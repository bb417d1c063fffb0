"""When a row may be given out: the rule that turns partitions' progress into one limit.

Rows go out in the order of their key: timestamp, topic, partition, offset. Topic and partition are
one number here, the index: any numbers, dense or not, that sort like (topic, partition). While a
partition is behind the end that it had when the consumer was made, it primes, and rows wait for it:
nothing may go that its next rows could precede. How far back those can lie is `out_of_order_ms`.

- A live partition holds nobody back, nor does an idle one; once live is live for good, so the
  caller hands `was_live` back.
- A partition that is not live and has delivered nothing holds everything back; a paused one counts
  as it stands.
- Once nobody holds anything back, everything may go, in the order of its key as far as it is held.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
INDEX_MAX: Final = (1 << 31) - 1
"""Every index is smaller than this."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one partition was read: its rows [start, position), of which [start, end) prime.

    `tail_ms` is the least timestamp among the latest rows read, None before the first.
    """

    index: int
    start: int
    end: int
    position: int
    tail_ms: int | None
    is_idle: bool = False
    was_live: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """Before which time partitions prime (None: up to their end), and how far rows may be late."""

    cutoff_ms: int | None
    out_of_order_ms: int


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """The greatest key that may go: every row whose (timestamp, index) is not above it."""

    timestamp_ms: int
    index: int

    def allows(self, timestamp_ms: int, *, index: int) -> bool:
        """Whether a row of this key may go."""
        return (timestamp_ms, index) <= (self.timestamp_ms, self.index)


NOTHING: Final = Limit(INT64_MIN, -1)
"""No row may go."""

ALL: Final = Limit(INT64_MAX, INDEX_MAX)
"""Every row may go: nobody is primed any more."""


def is_live(progress: Progress, rule: Rule) -> bool:
    """Whether the partition holds nobody back: at its end, or its next rows reach the cutoff.

    The position passes the end over compacted gaps, control records and aborted ones too, and an
    empty partition is at its end at once.
    """
    if progress.was_live or progress.position >= progress.end:
        return True
    if rule.cutoff_ms is None or progress.tail_ms is None:
        return False
    return progress.tail_ms - rule.out_of_order_ms >= rule.cutoff_ms


def limit(progresses: Iterable[Progress], rule: Rule) -> Limit:
    """What may go now: up to the least key that a priming partition could still deliver."""
    least = ALL
    for progress in progresses:
        if progress.is_idle or is_live(progress, rule):
            continue
        if progress.tail_ms is None:
            return NOTHING
        timestamp_ms = progress.tail_ms - rule.out_of_order_ms
        if timestamp_ms < INT64_MIN:
            return NOTHING
        least = min(least, Limit(timestamp_ms, progress.index))
    return least


def squeezed(rule: Rule) -> Rule:
    """The rule while memory is over its bound: nobody is waited for longer than for their last row.

    The bound goes first; rows that come late because of it are counted by whoever gives them out.
    """
    return replace(rule, out_of_order_ms=0)
