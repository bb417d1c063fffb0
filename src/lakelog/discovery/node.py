"""A node and what it tells the others about itself. Pure.

Rules:
- A node's id is also its `group.instance.id`, so it keeps to Kafka's legal characters.
- Nodes are ordered by id: numbers by value before texts, so that node 10 comes after node 9.
- Values are frozen; mappings in them are copied and sorted, so that equal nodes look alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType

from lakelog import __version__

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
