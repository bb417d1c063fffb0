"""Who is in the group, read from the members' bytes, and what its leader assigns them. Pure.

Rules:
- A member whose user data is not a node of ours, or names another node than its
  `group.instance.id`, is foreign: it stays in the group with the weight of one core, under the name
  that the broker knows. Nothing it sends can break the others.
- The hash is over what members announce (not over what they claim to hold), so the leader, which
  read it from JoinGroup, and everyone who reads it from DescribeGroups get the same.
- The leader of a generation decides every member's assignment, as bytes for SyncGroup.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lakelog.discovery.assignor import (
    GroupMember,
    LaminarPartitionAssignor,
    by_topic,
    cooperative_step,
    from_topics,
)
from lakelog.discovery.node import NodeId, NodeInfo, NodeState, PartitionIds, node_order
from lakelog.discovery.user_data import (
    AssignmentFacts,
    decode_node,
    digest,
    encode_facts,
    fitting_node_ids,
    roster_hash,
)
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    decode_assignment,
    decode_subscribed_topics,
    decode_subscription,
    encode_assignment,
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


def wanted_topics(raws: Iterable[RawMember]) -> tuple[str, ...]:
    """Every topic that any member reads, sorted."""
    return tuple(sorted({topic for raw in raws for topic in read_member(raw).member.topics or ()}))


def plan_assignments(
    raws: Iterable[RawMember], counts: Mapping[str, int], *, leader: str
) -> tuple[tuple[str, bytes], ...]:
    """Each member's id and assignment, for SyncGroup; `leader` is the leader's node id."""
    read = [read_member(raw) for raw in raws]
    members = [each.member for each in read]
    partitions = {topic: range(count) for topic, count in counts.items()}
    target = LaminarPartitionAssignor.assign(members, partitions)
    given, awaited = cooperative_step(members, target)
    roster = hash_of(read)
    node_ids = fitting_node_ids((each.node.node_id for each in read), len(read))
    plan = []
    for each in read:
        facts = AssignmentFacts(
            counts=counts,
            roster_hash=roster,
            seen=digest(each.announced),
            leader=leader,
            is_awaited=each.member.member_id in awaited,
            member_count=len(read),
            node_ids=node_ids,
        )
        assignment = ConsumerAssignment(
            assigned_partitions=by_topic(given[each.member.member_id]),
            user_data=None if each.node.is_foreign else encode_facts(facts),
        )
        plan.append((each.member.member_id, encode_assignment(assignment)))
    return tuple(plan)
