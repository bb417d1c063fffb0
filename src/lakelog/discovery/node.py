"""A node: what it tells the others about itself, how much, and how partitions are numbered. Pure.

Rules:
- A node's id is also its `group.instance.id`, so it keeps to Kafka's legal characters.
- Nodes are ordered by id: numbers by value before texts, so that node 10 comes after node 9.
- Values are frozen; mappings in them are copied and sorted, so that equal nodes look alike.
- What a node announces is in the group's one record on the broker with what all others announce, so
  it is small: 2 KiB a node leaves room for several hundred nodes in Kafka's 1 MiB.

Rules of the global partition ids, the partitions of all topics numbered through:
- A topic's first id is the sum of the *full* partition counts of the topics before it in the
  configuration, so every node with that configuration numbers alike, whatever it was assigned.
- The counts are those that the leader of a generation saw and wrote into the assignment.
- A changed count renumbers every later topic: it is told as a `PartitionCountChanged`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

from lakelog import __version__
from lakelog.discovery.failures import ConfigError

NodeId = NewType("NodeId", str)
"""What a node is called by everyone, for as long as it exists."""

TopicPartition = tuple[str, int]
"""One partition of one topic."""

NODE_ID_CHARACTERS_MAX: Final = 249
"""Kafka's limit for a group.instance.id."""

_LEGAL_ID: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NUMBER_DIGITS_MAX: Final = 20


class NodeState(StrEnum):
    """How a node stands in its group."""

    JOINING = "joining"
    """It has asked to be a member, or asks again, and holds no assignment it can rely on."""
    ACTIVE = "active"
    SUSPECTED = "suspected"
    """It has not reached the coordinator lately: its session may end."""
    DRAINING = "draining"
    """It gives back what it holds and is given nothing new."""
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class NodeMetadata:
    """What a node says about itself; `cores` is its weight in the assignment."""

    cores: int = 1
    memory_bytes: int = 0
    failure_domain: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    owned_partitions: tuple[int, ...] = ()
    """Global ids of what the group has given to it: known from the group, never announced."""
    version: str = __version__
    custom: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "owned_partitions", tuple(self.owned_partitions))
        for name in ("tags", "custom"):
            given = getattr(self, name)
            if isinstance(given, Mapping):
                object.__setattr__(self, name, dict(sorted(given.items(), key=_by_text)))


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A member of the group as the others see it."""

    node_id: NodeId
    rpc_address: str = ""
    raft_address: str = ""
    metadata: NodeMetadata = field(default_factory=NodeMetadata)
    state: NodeState = NodeState.ACTIVE
    is_foreign: bool = False
    """A member whose user data is not ours to read: it has a weight of 1 and no addresses."""


def make_node_id(given: str | int) -> NodeId:
    """The id as everyone writes it: a number is written in decimal."""
    return NodeId(str(given))


def is_legal_node_id(node_id: str) -> bool:
    """Whether Kafka takes it for a group.instance.id."""
    return _LEGAL_ID.fullmatch(node_id) is not None and node_id not in (".", "..")


def node_order(node_id: str) -> tuple[int, int, str]:
    """What nodes are sorted by: numbers by value, then texts."""
    if len(node_id) <= _NUMBER_DIGITS_MAX and node_id.isascii() and node_id.isdigit():
        return (0, int(node_id), node_id)
    return (1, 0, node_id)


def _by_text(item: tuple[object, object]) -> str:
    """Sorts what a caller may have given with keys that are no texts, which validation refuses."""
    return str(item[0])


CORES_MAX: Final = 1_000_000
MEMORY_BYTES_MAX: Final = 2**63 - 1
TEXT_CHARACTERS_MAX: Final = 255
"""Of an address, a failure domain or a version."""
NODE_BYTES_MAX: Final = 2048
"""Of everything a node announces, encoded."""


def check_metadata(metadata: NodeMetadata) -> None:
    """Raise ConfigError if this cannot be announced."""
    _check_number(metadata.cores, "metadata.cores", 1, CORES_MAX)
    _check_number(metadata.memory_bytes, "metadata.memory_bytes", 0, MEMORY_BYTES_MAX)
    _check_text(metadata.version, "metadata.version")
    if metadata.failure_domain is not None:
        _check_text(metadata.failure_domain, "metadata.failure_domain")
        if not metadata.failure_domain:
            raise ConfigError("metadata.failure_domain must not be empty: leave it out")
    _check_texts(metadata.tags, "metadata.tags")
    _check_texts(metadata.custom, "metadata.custom")


def _check_number(value: object, name: str, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{name} must be a number from {least} to {most}, not {value!r}")


def _check_text(value: object, name: str) -> None:
    if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX or not _is_utf8(value):
        raise ConfigError(f"{name} must be a text of at most {TEXT_CHARACTERS_MAX} characters")


def _check_texts(value: object, name: str) -> None:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} must be a mapping of texts to texts")
    for pair in value.items():
        if not all(isinstance(part, str) and _is_utf8(part) for part in pair):
            raise ConfigError(f"{name} must be a mapping of texts to texts")


def _is_utf8(text: str) -> bool:
    """A lone surrogate is a text in Python and nowhere else."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class PartitionCountChanged:
    """A topic has another number of partitions than before; ids of later topics have moved."""

    topic: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PartitionIds:
    """The numbering: topics in configuration order with their full counts."""

    counts: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, topics: Sequence[str], counts: Mapping[str, int]) -> "PartitionIds":
        """Number these topics; one without a count has no partitions yet."""
        return cls(tuple((topic, counts.get(topic, 0)) for topic in topics))

    @property
    def total(self) -> int:
        """How many ids there are: [0, total)."""
        return sum(count for _, count in self.counts)

    def starts(self) -> dict[str, int]:
        """Each topic's first id."""
        found, start = {}, 0
        for topic, count in self.counts:
            found[topic] = start
            start += count
        return found

    def id_of(self, topic: str, partition: int) -> int | None:
        """The global id of a partition, or None if there is no such partition."""
        count = dict(self.counts).get(topic, 0)
        return self.starts()[topic] + partition if 0 <= partition < count else None

    def ids_of(self, partitions: Iterable[TopicPartition]) -> tuple[int, ...]:
        """The global ids of those partitions that exist, ascending."""
        starts, counts = self.starts(), dict(self.counts)
        return tuple(
            sorted(
                starts[topic] + partition
                for topic, partition in partitions
                if 0 <= partition < counts.get(topic, 0)
            )
        )

    def partition_of(self, partition_id: int) -> TopicPartition | None:
        """The partition with that global id, or None if there is none."""
        rest = partition_id
        for topic, count in self.counts:
            if 0 <= rest < count:
                return (topic, rest)
            rest -= count
        return None

    def changes_since(self, before: "PartitionIds") -> tuple[PartitionCountChanged, ...]:
        """What differs from an earlier numbering of the same topics."""
        earlier = dict(before.counts)
        return tuple(
            PartitionCountChanged(topic=topic, before=earlier[topic], after=count)
            for topic, count in self.counts
            if earlier.get(topic, count) != count
        )
