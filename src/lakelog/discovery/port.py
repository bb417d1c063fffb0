"""What every kind of discovery offers, so that a user can swap one for another.

`KafkaDiscovery` finds nodes through a group, `StaticDiscovery` knows them from the start.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from lakelog.discovery.node import NodeId, NodeInfo, NodeMetadata, NodeState, TopicPartition

Nodes = tuple[NodeInfo, ...]
"""All members of the group, ordered by node id."""


class MembershipWatch(Protocol):
    """The membership as it changes: the present one first, then each that differs from the last."""

    def __iter__(self) -> Iterator[Nodes]:
        """Wait for each change on this thread; ends when discovery stops."""

    def __aiter__(self) -> AsyncIterator[Nodes]:
        """Wait for each change on a loop; ends when discovery stops."""

    def close(self) -> None:
        """End the iteration."""


class Discovery(Protocol):
    """Who else is there, and which partitions are this node's."""

    def start(self, timeout: float | None = None) -> None:
        """Join the others; returns when this node is a member, raises DiscoveryError if not."""

    def stop(self) -> None:
        """Leave the others, so that they take over at once; may be called again."""

    def peers(self) -> Nodes:
        """The other members."""

    def members(self) -> MembershipWatch:
        """All members, this node included, as they change."""

    def assigned_partitions(self) -> tuple[int, ...]:
        """Global ids of the partitions that are this node's, ascending."""

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The same partitions by topic."""

    def announce(self, metadata: NodeMetadata) -> None:
        """Tell the others what has changed about this node."""

    @property
    def generation(self) -> int:
        """The number of the assignment; -1 before the first."""

    @property
    def leader(self) -> NodeId | None:
        """The node that decides assignments."""

    @property
    def state(self) -> NodeState:
        """How this node stands in the group."""
