"""One partition, as the loop that fetches and the reader that releases know it. Pure.

Only the loop writes its own part. Other threads read single numbers of it, which may be a moment
old. The reader's part is used by one thread at a time.
"""

from dataclasses import dataclass, field

from lakelog.client.snapshot import OffsetRange
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
