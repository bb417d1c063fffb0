"""Ids and positions as distinct types, so that one is never passed for another."""

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
