"""What every kind of discovery offers, and the one that knows nodes and topics from the start.

`KafkaDiscovery` finds nodes through a group, `StaticDiscovery` knows them from the start.

Rules: every node is given the same nodes and the same topics, so by the same assignor all agree on
who has which partition without a word. Nobody notices when a node fails: that is what
`KafkaDiscovery` is for. It keeps to `lakelog.discovery.static.Discovery`.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from lakelog.discovery.assignor import GroupMember, LaminarPartitionAssignor
from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import (
    NodeId,
    NodeInfo,
    NodeMetadata,
    NodeState,
    PartitionIds,
    TopicPartition,
    check_metadata,
    is_legal_node_id,
    make_node_id,
    node_order,
)
from lakelog.discovery.watch import Publisher, Watch

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


class StaticDiscovery:
    """This node among nodes that never change."""

    def __init__(
        self, node_id: str | int, nodes: Iterable[NodeInfo], topics: Mapping[str, int]
    ) -> None:
        """Take the nodes, this one among them, and the topics with their partition counts."""
        listed = tuple(sorted(nodes, key=lambda node: node_order(node.node_id)))
        self._node_id = make_node_id(node_id)
        _check(self._node_id, listed, topics)
        self._ids = PartitionIds(tuple(topics.items()))
        self._held = _assigned(listed, topics)
        self._nodes = tuple(
            replace(
                node,
                state=NodeState.ACTIVE,
                metadata=replace(
                    node.metadata, owned_partitions=self._ids.ids_of(self._held[node.node_id])
                ),
            )
            for node in listed
        )
        self._state = NodeState.JOINING
        self._source: Publisher[Nodes] = Publisher(())

    def start(self, timeout: float | None = None) -> None:
        """Be a member; it takes no time."""
        if self._state is NodeState.LEFT:
            self._source = Publisher(())
        self._state = NodeState.ACTIVE
        self._source.publish(self._nodes)

    def stop(self) -> None:
        """Be no member any more; may be called again. The others do not notice."""
        self._state = NodeState.LEFT
        self._source.close()

    def peers(self) -> Nodes:
        """The other nodes; nobody while this node is no member."""
        return tuple(node for node in self._present() if node.node_id != self._node_id)

    def members(self) -> Watch[Nodes]:
        """All nodes, once, and again when this node announces something."""
        return self._source.watch()

    def assigned_partitions(self) -> tuple[int, ...]:
        """Global ids of the partitions that are this node's, ascending."""
        return self._ids.ids_of(self.topic_partitions())

    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The same partitions by topic."""
        return self._held[self._node_id] if self._state is NodeState.ACTIVE else ()

    def announce(self, metadata: NodeMetadata) -> None:
        """Change how this node sees itself; the others, and the partitions, stay as they are."""
        check_metadata(metadata)
        owned = self._ids.ids_of(self._held[self._node_id])
        shown = replace(metadata, owned_partitions=owned)
        self._nodes = tuple(
            replace(node, metadata=shown) if node.node_id == self._node_id else node
            for node in self._nodes
        )
        if self._state is NodeState.ACTIVE:
            self._source.publish(self._nodes)

    @property
    def generation(self) -> int:
        """The number of the assignment: there is one, the first; -1 while this is no member."""
        return 1 if self._state is NodeState.ACTIVE else -1

    @property
    def leader(self) -> NodeId | None:
        """The first node in order, while this is a member."""
        return self._nodes[0].node_id if self._state is NodeState.ACTIVE else None

    @property
    def state(self) -> NodeState:
        """How this node stands among the others."""
        return self._state

    def _present(self) -> Nodes:
        return self._nodes if self._state is NodeState.ACTIVE else ()


def _check(node_id: str, nodes: Nodes, topics: Mapping[str, int]) -> None:
    if not topics:
        raise ConfigError("static discovery requires at least one topic")
    for topic, count in topics.items():
        if not _is_count(count):
            raise ConfigError(f"topics: {topic!r} cannot have {count!r} partitions")
    names = [node.node_id for node in nodes]
    for name in names:
        if not is_legal_node_id(name):
            raise ConfigError(f"nodes: {name!r} is no legal node id")
        if names.count(name) > 1:
            raise ConfigError(f"nodes: {name!r} is there more than once")
    if node_id not in names:
        raise ConfigError(f"nodes: this node, {node_id!r}, is not among them")
    for node in nodes:
        check_metadata(node.metadata)


def _is_count(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _assigned(nodes: Nodes, topics: Mapping[str, int]) -> dict[str, tuple[TopicPartition, ...]]:
    members = [
        GroupMember(
            member_id=node.node_id,
            node_id=node.node_id,
            cores=node.metadata.cores,
            failure_domain=node.metadata.failure_domain,
        )
        for node in nodes
    ]
    counts = {topic: range(count) for topic, count in topics.items()}
    return LaminarPartitionAssignor.assign(members, counts)
