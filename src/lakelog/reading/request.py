"""What to read, as values: topics, from where to where, how it is cut. Pure.

A request says nothing of the world yet: which partitions there are and which offsets they have is
found out when it is planned (`lakelog.reading.plan`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from lakelog.config.connection import Connection
from lakelog.config.named_options import BadOption

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TRIGGER_DELAY_MS",
    "Assigned",
    "AtOffsets",
    "AtTimestamp",
    "AtTimestamps",
    "BadOption",
    "Connection",
    "Edge",
    "Limit",
    "Matching",
    "Missing",
    "Place",
    "ReadRequest",
    "Subscribed",
    "Topics",
]

EARLIEST: Final = -2
LATEST: Final = -1
"""What stands for the two ends of a partition where an offset is expected."""

MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000


class Place(NamedTuple):
    """A partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions and no others."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """All partitions of the topics in whose names the pattern is found."""

    pattern: str


Topics: TypeAlias = Assigned | Subscribed | Matching


class Edge(Enum):
    """One end of every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Missing(Enum):
    """What to do where no record is as late as the timestamp to begin at."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition; `EARLIEST` and `LATEST` stand for its ends."""

    offsets: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """The first record at or after a time, for every partition."""

    times_ms: Mapping[Place, int]
    missing: Missing = Missing.ERROR


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """The first record at or after one time, in whatever partitions there are."""

    time_ms: int
    missing: Missing = Missing.ERROR


Limit: TypeAlias = Edge | AtOffsets | AtTimestamps | AtTimestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What the options of one read say."""

    topics: Topics
    starting: Limit
    ending: Limit
    is_stream: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    fail_on_data_loss: bool = True
    include_headers: bool = False
    connection: Connection = field(default_factory=Connection)
    notes: tuple[str, ...] = ()
    """What was given and has no meaning here, each with the reason."""
