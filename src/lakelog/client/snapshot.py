"""What a consumer tells of itself as values: where it stands, to go on from, and what it counted.

Rows leave in the order of their time, so what was given out of a partition is no plain range: all
below `next_offset`, and the ranges `released` above it. Reading on from `next_offset` and leaving
out those ranges is exactly the rest.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from lakelog.kafka_client.failures import BadConfig

OffsetRange: TypeAlias = tuple[int, int]
"""Offsets [start, end)."""

VERSION: Final = 1
_TOPIC_ID: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """What was given out of one partition, and how far its history went."""

    topic: str
    partition: int
    topic_id: str
    """In hexadecimal digits: a topic made again under the same name has another one."""
    start: int
    end: int
    """Where reading began, and where the partition ended then: up to here it is history."""
    next_offset: int
    """Everything before it was given out."""
    released: tuple[OffsetRange, ...] = ()
    """What was given out above it, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The position of a consumer in all its partitions; as JSON it survives the process."""

    partitions: tuple[PartitionSnapshot, ...]
    version: int = VERSION

    def to_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(self).decode()

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers: what `json.dumps` takes."""
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return found

    @classmethod
    def parse(cls, given: "Snapshot | Mapping[str, object] | str | bytes") -> "Snapshot":
        """A snapshot out of any form that it was kept in; BadConfig if it is none."""
        if isinstance(given, Snapshot):
            return given
        try:
            if isinstance(given, Mapping):
                found = msgspec.convert(dict(given), cls)
            else:
                found = msgspec.json.decode(given, type=cls)
        except msgspec.MsgspecError as reason:
            raise BadConfig("snapshot", f"it cannot be read: {reason}") from None
        found.check()
        return found

    def check(self) -> None:
        """Refuse what no consumer can have been at."""
        if self.version != VERSION:
            raise BadConfig("snapshot", f"version {self.version} is not known here")
        if not self.partitions:
            raise BadConfig("snapshot", "it names no partition")
        seen = {(partition.topic, partition.partition) for partition in self.partitions}
        if len(seen) != len(self.partitions):
            raise BadConfig("snapshot", "it names a partition twice")
        for partition in self.partitions:
            if not _makes_sense(partition):
                raise BadConfig(
                    "snapshot", f"{partition.topic} [{partition.partition}] makes no sense"
                )


def _makes_sense(partition: PartitionSnapshot) -> bool:
    edges = [partition.next_offset, *itertools.chain.from_iterable(partition.released)]
    return (
        partition.partition >= 0
        and edges[0] >= 0
        and all(low < high for low, high in itertools.pairwise(edges))
        and _TOPIC_ID.fullmatch(partition.topic_id) is not None
    )


def resume_position(
    next_offset: int, *released: Iterable[OffsetRange]
) -> tuple[int, tuple[OffsetRange, ...]]:
    """The least offset that was not given out, and what was above it, in order and apart."""
    joined: list[OffsetRange] = []
    for start, end in sorted(itertools.chain.from_iterable(released)):
        if end <= next_offset:
            continue
        if start <= next_offset:
            next_offset = end
        elif joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return next_offset, tuple(joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Counters since the consumer was made; `held_*` and `paused_partitions` are as of now."""

    polls: int
    rows_received: int
    rows_released: int
    rows_held: int
    rows_late: int
    """Rows given out after a later one while priming: beyond `out_of_order_ms`, or squeezed."""
    bytes_received: int
    """Bytes of record batches as they came over the wire."""
    bytes_held: int
    fetches: int
    fetches_failed: int
    batches_refetched: int
    """Answers whose checksum was wrong at first."""
    squeezes: int
    """Releases that did not wait for late rows, because memory was over its bound."""
    partitions_paused: int
    partitions_resumed: int
    paused_partitions: int
    partitions_added: int
    topics_recreated: int
    offsets_reset: int
