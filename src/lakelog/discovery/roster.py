"""Who is in the group, read from the bytes that its members joined with. Pure.

Rules:
- A member whose user data is not a node of ours, or names another node than its
  `group.instance.id`, is foreign: it stays in the group with the weight of one core, under the name
  that the broker knows. Nothing it sends can break the others.
- The hash is over what members announce (not over what they claim to hold), so the leader, which
  read it from JoinGroup, and everyone who reads it from DescribeGroups get the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakelog.discovery.assignment import GroupMember, from_topics
from lakelog.discovery.node import NodeId, NodeInfo, NodeState, node_order
from lakelog.discovery.partition_ids import PartitionIds
from lakelog.discovery.user_data import decode_node, roster_hash
from lakelog.wire.codec import (
    ConsumerSubscription,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
)
from lakelog.wire.schema import ProtocolError


@dataclass(frozen=True, slots=True)
class RawMember:
    """A member as JoinGroup (to the leader) or DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    metadata: bytes
    assignment: bytes = b""
    """Only DescribeGroups shows it."""


@dataclass(frozen=True, slots=True)
class ReadMember:
    """A member whose bytes were read."""

    member: GroupMember
    node: NodeInfo
    announced: bytes
    """What goes into the hash: its user data; all it sent if that is not ours."""
    assignment: bytes = b""
    """What it was given, as DescribeGroups shows it."""


def read_member(raw: RawMember) -> ReadMember:
    """Read one member; never fails."""
    subscription = _subscription(raw.metadata)
    node = decode_node(subscription.user_data)
    if node is None or (raw.instance_id is not None and raw.instance_id != node.node_id):
        name = NodeId(raw.instance_id or raw.member_id)
        node = NodeInfo(node_id=name, is_foreign=True)
    announced = subscription.user_data if not node.is_foreign else raw.metadata
    member = GroupMember(
        member_id=raw.member_id,
        node_id=node.node_id,
        cores=node.metadata.cores,
        rpc_address=node.rpc_address,
        raft_address=node.raft_address,
        topics=tuple(sorted(set(subscription.topics))),
        failure_domain=node.metadata.failure_domain,
        owned=from_topics(subscription.owned_partitions),
        generation=subscription.generation_id,
        is_draining=node.state is NodeState.DRAINING,
    )
    return ReadMember(member, node, announced or b"", raw.assignment)


def hash_of(members: Iterable[ReadMember]) -> bytes:
    """The hash over what all members announce."""
    return roster_hash((read.node.node_id, read.announced) for read in members)


def nodes_of(members: Iterable[ReadMember], ids: PartitionIds) -> tuple[NodeInfo, ...]:
    """The nodes in order, each with the global ids of what it was given."""
    nodes = []
    for read in members:
        node, given = read.node, ids.ids_of(_given(read.assignment))
        nodes.append(replace(node, metadata=replace(node.metadata, owned_partitions=given)))
    return tuple(sorted(nodes, key=lambda node: node_order(node.node_id)))


def _subscription(metadata: bytes) -> ConsumerSubscription:
    try:
        return decode_subscription(metadata)
    except ProtocolError:
        pass
    try:
        return ConsumerSubscription(topics=decode_subscribed_topics(metadata))
    except ProtocolError:
        return ConsumerSubscription()


def _given(assignment: bytes) -> tuple[tuple[str, int], ...]:
    try:
        return from_topics(decode_assignment(assignment).assigned_partitions)
    except ProtocolError:
        return ()
