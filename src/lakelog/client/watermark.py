"""How far each partition is, and up to which time rows may be given out. Pure.

Rows go out in the order of their key: timestamp, topic, partition, offset. Topic and partition are
one number here, the index: any numbers, dense or not, that sort like (topic, partition). While a
partition is behind the end that it had when the consumer was made, it primes, and rows wait for it:
nothing may go that its next rows could precede. How far back those can lie is `out_of_order_ms`.

- A live partition holds nobody back, nor does an idle one; once live is live for good, so the
  caller hands `was_live` back.
- A partition that is not live and has delivered nothing holds everything back; a paused one counts
  as it stands.
- Once nobody holds anything back, everything may go, in the order of its key as far as it is held.

The limit is the least of many times that move. It is found without looking at all of them, of
thousands of partitions and after every answer: in a heap whose old entries are dropped when they
come to its top.

Only the loop writes its own part. Other threads read single numbers of it, which may be a moment
old. The reader's part is used by one thread at a time.
"""

import heapq
from dataclasses import dataclass, field, replace
from typing import Final

from lakelog.client.options import OffsetRange
from lakelog.kafka_client.admin import TopicPartition
from lakelog.kafka_client.failures import ClientFailure


@dataclass(slots=True, eq=False)
class PartitionState:
    """One partition that is read."""

    index: int
    """What it is called in the order of ties: it sorts like topic and number."""
    place: TopicPartition
    topic_id: bytes
    position: int
    """The next offset to ask for."""
    released: tuple[OffsetRange, ...] = ()
    """Offsets from `position` on that were given out before, by the consumer this one goes on
    from."""
    version: int = 0
    """Grows with every jump of the position: what was asked before it counts for nothing."""
    leader_epoch: int = -1
    log_start: int = 0
    end: int | None = None
    """How far the log goes for this reader, as the last answer said."""
    replica: int | None = None
    """A broker nearer than the leader, which said so (KIP-392)."""
    failures: int = 0
    """In a row."""
    failure: ClientFailure | None = None
    troubled_since_s: float | None = None
    waiting_since_s: float | None = None
    """Since when an answer with records is wanted of it; None while nothing is."""
    corrupt_offset: int | None = field(default=None)
    """Where an answer was corrupt once."""

    def jump(self, offset: int) -> None:
        """Read on from another place."""
        self.position = offset
        self.version += 1

    def healed(self) -> None:
        """An answer came: what went wrong before is over."""
        self.failures = 0
        self.failure = None
        self.troubled_since_s = None


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


@dataclass(slots=True, eq=False)
class ReleaseState:
    """How far one partition was read and given out."""

    partition: PartitionState
    progress: Progress
    version: int = 0
    last_ms: int | None = None
    live_position: int | None = None
    """How far it was read when it became live."""
    is_live: bool = False
    """For the user: what was read until then was given out."""
    is_retired: bool = False
    """Its topic is no more; what was read of it is still given out."""

    @property
    def place(self) -> TopicPartition:
        """The partition by name."""
        return self.partition.place


INT64_MAX: Final = (1 << 63) - 1
INT64_MIN: Final = -(1 << 63)
INDEX_MAX: Final = (1 << 31) - 1
"""Every index is smaller than this."""


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


def squeezed(rule: Rule) -> Rule:
    """The rule while memory is over its bound: nobody is waited for longer than for their last row.

    The bound goes first; rows that come late because of it are counted by whoever gives them out.
    """
    return replace(rule, out_of_order_ms=0)


_STALE_ENTRIES_MAX: Final = 1024


class Watermark:
    """The partitions that are waited for, and how far each was read."""

    def __init__(self) -> None:
        self._tails: dict[int, int | None] = {}
        self._silent = 0
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """How many are waited for."""
        return len(self._tails)

    def wait_for(self, index: int, tail_ms: int | None) -> None:
        """Rows wait for this partition, whose tail this is; None before its first row."""
        if index in self._tails and self._tails[index] == tail_ms:
            return
        self.forget(index)
        self._tails[index] = tail_ms
        if tail_ms is None:
            self._silent += 1
        else:
            heapq.heappush(self._heap, (tail_ms, index))
            if len(self._heap) > 2 * len(self._tails) + _STALE_ENTRIES_MAX:
                known = self._tails.items()
                self._heap = [(tail, other) for other, tail in known if tail is not None]
                heapq.heapify(self._heap)

    def forget(self, index: int) -> None:
        """Rows wait no more for this partition."""
        if index in self._tails and self._tails.pop(index) is None:
            self._silent -= 1

    def limit(self, out_of_order_ms: int) -> Limit:
        """The greatest key that may go."""
        if self._silent:
            return NOTHING
        heap = self._heap
        while heap:
            tail_ms, index = heap[0]
            if self._tails.get(index) == tail_ms:
                timestamp_ms = tail_ms - out_of_order_ms
                return NOTHING if timestamp_ms < INT64_MIN else Limit(timestamp_ms, index)
            heapq.heappop(heap)
        return ALL
