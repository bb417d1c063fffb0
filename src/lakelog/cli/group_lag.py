"""How far a group is behind, partition by partition. Pure.

- Lag in records is what is left to read: from the committed offset, or from the log start if that
  is later, to the end. It counts offsets, as Kafka does: a transaction marker is one of them.
- Lag in seconds is the age of the first record that is left to read: how long the group has kept
  it waiting. It is 0 when nothing is left to read.
- What nobody knows is None: a group that never committed, a topic that is gone, a record without a
  timestamp.
"""

from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition and its topic; they sort as people list them."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}, partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group stands in a partition that holds [start, end)."""

    at: TopicPartition
    committed: int | None = None
    start: int | None = None
    end: int | None = None
    unread_ms: int | None = None
    """The timestamp of the first record that is left to read."""
    only_markers: bool = False
    """Whether what is left to read is known to hold no record, only markers and gaps."""
    trouble: str = ""
    """Why start and end are not known."""

    @property
    def unread(self) -> range | None:
        """The offsets that are left to read."""
        if self.committed is None or self.start is None or self.end is None:
            return None
        return range(max(self.committed, self.start), self.end)


def lag_records(position: Position) -> int | None:
    """How many records are left to read."""
    return None if position.unread is None else len(position.unread)


def lag_ms(position: Position, now_ms: int) -> int | None:
    """For how long the first unread record has waited; a clock behind its producer's reads as 0."""
    if position.unread is None:
        return None
    if not position.unread or position.only_markers:
        return 0
    if position.unread_ms is None or position.unread_ms < 0:
        return None
    return max(0, now_ms - position.unread_ms)


def remark(position: Position) -> str:
    """What is odd about a position, in a few words; empty if nothing is."""
    if position.trouble or position.committed is None:
        return position.trouble
    assert position.start is not None
    assert position.end is not None
    if position.committed < position.start:
        return f"below the log start, {position.start}"
    if position.committed > position.end:
        return "beyond the end"
    return ""


def row(position: Position, now_ms: int) -> dict[str, object]:
    """A position as a row of a table."""
    waited_ms = lag_ms(position, now_ms)
    return {
        "topic": position.at.topic,
        "partition": position.at.partition,
        "committed": position.committed,
        "end": position.end,
        "lag": lag_records(position),
        "seconds": None if waited_ms is None else waited_ms / 1000,
        "note": remark(position),
    }
