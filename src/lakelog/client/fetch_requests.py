"""A fetch request: the partitions and bytes that were planned, and the message of them. Pure.

Versions 4 to the newest, without a session: a consumer whose partitions change with every request
would pay for one. From version 13 on topics are known by their ids alone; a cluster that gives
them none is asked in version 12.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakelog.client.partition_state import PartitionState
from lakelog.kafka_client.settings import ClientSettings
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition's part of a request."""

    index: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFetch:
    """One request to one leader."""

    partitions: tuple[PlannedPartition, ...]
    bytes_max: int
    is_waiting: bool = False
    """Whether the broker may keep it until records come."""
    has_tail: bool = False
    is_on_demand: bool = False
    """Whether it is sent only because the reader has nothing to give out."""


TOPIC_ID_VERSION: Final = 13


@dataclass(frozen=True, slots=True, eq=False)
class SentPartition:
    """One partition's part of a request that is under way."""

    partition: PartitionState
    version: int
    position: int
    bytes_max: int


InFlight: TypeAlias = dict[tuple[bytes | str, int], SentPartition]
"""The parts of one request, by topic id or name, and partition."""


def has_ids(fetch: PlannedFetch, partitions: Mapping[int, PartitionState]) -> bool:
    """Whether all topics of a request have an id."""
    return all(any(partitions[planned.index].topic_id) for planned in fetch.partitions)


def build_request(
    fetch: PlannedFetch,
    partitions: Mapping[int, PartitionState],
    settings: ClientSettings,
    *,
    version: int,
) -> tuple[FetchRequest, InFlight]:
    """The message, and what is under way with it."""
    topics: dict[bytes | str, list[FetchPartition]] = {}
    sent: InFlight = {}
    for planned in fetch.partitions:
        each = partitions[planned.index]
        key = each.topic_id if version >= TOPIC_ID_VERSION else each.place.topic
        topics.setdefault(key, []).append(
            FetchPartition(
                partition=each.place.partition,
                current_leader_epoch=each.leader_epoch if each.replica is None else -1,
                fetch_offset=each.position,
                partition_max_bytes=planned.bytes_max,
            )
        )
        sent[key, each.place.partition] = SentPartition(
            each, each.version, each.position, planned.bytes_max
        )
    request = FetchRequest(
        max_wait_ms=settings.fetch_wait_max_ms if fetch.is_waiting else 0,
        min_bytes=settings.fetch_min_bytes if fetch.is_waiting else 1,
        max_bytes=min(fetch.bytes_max, settings.fetch_max_bytes),
        isolation_level=int(settings.is_read_committed),
        topics=tuple(_topic(key, each) for key, each in topics.items()),
        rack_id=settings.client_rack,
    )
    return request, sent


def _topic(key: bytes | str, partitions: list[FetchPartition]) -> FetchTopic:
    if isinstance(key, str):
        return FetchTopic(topic=key, partitions=tuple(partitions))
    return FetchTopic(topic_id=key, partitions=tuple(partitions))
