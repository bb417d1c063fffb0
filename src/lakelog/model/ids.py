"""Ids, positions and half-open ranges as types, so that one is never passed for another."""

from dataclasses import dataclass
from typing import Final, NewType

StreamId = NewType("StreamId", int)
"""One topic-partition for ever: a u64 from a counter, never reused."""

TopicId = NewType("TopicId", bytes)
"""A topic's 16-byte UUID; a topic made again under the same name has another one."""

DomainId = NewType("DomainId", int)
"""The scope of one atomic commit: the log that a stream's records live in."""

Position = NewType("Position", int)
"""A place in a domain log: 1, 2, 3, … without hole or reuse. 0 is before the first record."""

Offset = NewType("Offset", int)
"""A place in a stream, counted from 0."""

ProducerId = NewType("ProducerId", int)
"""An idempotent producer's id; -1 on the wire means none."""

BrokerId = NewType("BrokerId", int)
"""A broker's node id as clients see it."""

WalId = NewType("WalId", bytes)
"""A WAL object's 16-byte, time-ordered id: 48 bits of milliseconds, then a version, then chance."""

NO_PRODUCER: Final = ProducerId(-1)
ZERO_TOPIC_ID: Final = TopicId(bytes(16))
LEADER_EPOCH: Final = 0
"""The one leader epoch there is: nothing is ever truncated (rows 58 to 60)."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The topic in which Kafka keeps groups."""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state"})
"""Names of topics that are the brokers' own: patterns do not match them, clients do not write."""


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes [start, end) of an object."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, (self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [start, end) of a stream."""

    start: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.end, (self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end
