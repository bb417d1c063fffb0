"""What the loop knows of one partition: where it reads, who serves it, and what went wrong.

Only the loop writes it. Other threads read single numbers of it, which may be a moment old.
"""

from dataclasses import dataclass, field

from lakelog.client.position import OffsetRange
from lakelog.kafka_client.failures import ClientFailure
from lakelog.kafka_client.offsets import TopicPartition


@dataclass(slots=True, eq=False)
class Partition:
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
