"""Who is in the group: the bytes that nodes exchange, and what its leader assigns them. Pure.

Rules:
- A node's bytes are canonical: equal nodes have equal bytes in every process, because a member that
  joins with other bytes than before starts a rebalance. So what changes by itself (which partitions
  it holds, its state) is not in them.
- Bytes begin with three letters and a version; then comes JSON, keys sorted. Fields are only ever
  added, so a newer version is read as ours and what we do not know is passed over.
- A decoder returns None for everything else, whatever the bytes are: they may come from anybody who
  may join the group. Sizes are bounded before anything is parsed.
- An assignment carries the partition counts that its leader saw, a hash over all nodes' bytes, the
  digest of this member's own bytes, whether others wait for it, and the node ids while they are
  small. The nodes themselves are read from the group: in each assignment they would grow with the
  square of their number.

Rules:
- A member whose user data is not a node of ours, or names another node than its
  `group.instance.id`, is foreign: it stays in the group with the weight of one core, under the name
  that the broker knows. Nothing it sends can break the others.
- The hash is over what members announce (not over what they claim to hold), so the leader, which
  read it from JoinGroup, and everyone who reads it from DescribeGroups get the same.
- The leader of a generation decides every member's assignment, as bytes for SyncGroup.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from lakelog.discovery.assignor import (
    GroupMember,
    LaminarPartitionAssignor,
    by_topic,
    cooperative_step,
    from_topics,
)
from lakelog.discovery.failures import ConfigError
from lakelog.discovery.node import (
    CORES_MAX,
    MEMORY_BYTES_MAX,
    NODE_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    NodeId,
    NodeInfo,
    NodeMetadata,
    NodeState,
    PartitionIds,
    is_legal_node_id,
    node_order,
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

NODE_MAGIC: Final = b"LLN"
FACTS_MAGIC: Final = b"LLA"
VERSION: Final = 1
HEADER_BYTES: Final = 4

FACTS_BYTES_MAX: Final = 1 << 20
"""Of the facts in one assignment."""
NODE_IDS_TOTAL_BYTES_MAX: Final = 256 << 10
"""Of the node ids in all assignments of a generation; beyond it they are left to the group."""
NODE_IDS_TEXT_BYTES_MAX: Final = 1 << 20
HASH_BYTES: Final = 16
DIGEST_BYTES: Final = 8

_Text = Annotated[str, Meta(max_length=TEXT_CHARACTERS_MAX)]


class _Node(Struct, frozen=True, omit_defaults=True):
    """A node in JSON; one letter or a short word a field, since it is repeated for every node."""

    id: _Text
    rpc: _Text = ""
    raft: _Text = ""
    cores: Annotated[int, Meta(ge=1, le=CORES_MAX)] = 1
    memory: Annotated[int, Meta(ge=0, le=MEMORY_BYTES_MAX)] = 0
    domain: _Text | None = None
    tags: dict[str, str] = {}
    version: _Text = ""
    custom: dict[str, str] = {}
    draining: bool = False


class _Facts(Struct, frozen=True, omit_defaults=True):
    """The facts of an assignment in JSON; bytes are base64 there."""

    counts: dict[str, Annotated[int, Meta(ge=0, le=2**31 - 1)]]
    hash: Annotated[bytes, Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
    seen: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    leader: _Text = ""
    awaited: bool = False
    members: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    nodes: bytes = b""


@dataclass(frozen=True, slots=True)
class AssignmentFacts:
    """What the leader tells every member beside its partitions."""

    counts: Mapping[str, int]
    """The full partition count of every topic that anyone reads, as the leader saw them."""
    roster_hash: bytes
    """Over the bytes of all members: what is read from the group must have it as well."""
    seen: bytes = b""
    """The digest of this member's own bytes when the assignment was made."""
    leader: str = ""
    """The leader's node id."""
    is_awaited: bool = False
    """Whether others wait for something that this member claimed when it joined."""
    member_count: int = 0
    node_ids: tuple[NodeId, ...] = ()
    """All node ids in order; empty if they are too many for every assignment to carry."""


def encode_node(node: NodeInfo) -> bytes:
    """The canonical bytes of a node; raises ConfigError if it says too much."""
    metadata = node.metadata
    content = _Node(
        id=node.node_id,
        rpc=node.rpc_address,
        raft=node.raft_address,
        cores=metadata.cores,
        memory=metadata.memory_bytes,
        domain=metadata.failure_domain,
        tags=dict(metadata.tags),
        version=metadata.version,
        custom=dict(metadata.custom),
        draining=node.state is NodeState.DRAINING,
    )
    encoded = _header(NODE_MAGIC) + msgspec.json.encode(content, order="sorted")
    if len(encoded) > NODE_BYTES_MAX:
        raise ConfigError(
            f"a node announces at most {NODE_BYTES_MAX} bytes, these metadata make {len(encoded)}:"
            " say less in tags and custom"
        )
    return encoded


def decode_node(data: bytes | None) -> NodeInfo | None:
    """Read a node, or None if the bytes are no node of ours."""
    found = _decoded(_Node, NODE_MAGIC, data, NODE_BYTES_MAX)
    if found is None or not is_legal_node_id(found.id):
        return None
    return NodeInfo(
        node_id=NodeId(found.id),
        rpc_address=found.rpc,
        raft_address=found.raft,
        metadata=NodeMetadata(
            cores=found.cores,
            memory_bytes=found.memory,
            failure_domain=found.domain or None,
            tags=found.tags,
            version=found.version,
            custom=found.custom,
        ),
        state=NodeState.DRAINING if found.draining else NodeState.ACTIVE,
    )


def encode_facts(facts: AssignmentFacts) -> bytes:
    """The bytes of an assignment's facts."""
    content = _Facts(
        counts=dict(facts.counts),
        hash=facts.roster_hash,
        seen=facts.seen,
        leader=facts.leader,
        awaited=facts.is_awaited,
        members=facts.member_count,
        nodes=_packed(facts.node_ids) if facts.node_ids else b"",
    )
    return _header(FACTS_MAGIC) + msgspec.json.encode(content, order="sorted")


def decode_facts(data: bytes | None) -> AssignmentFacts | None:
    """Read the facts, or None if the bytes are not ours."""
    found = _decoded(_Facts, FACTS_MAGIC, data, FACTS_BYTES_MAX)
    if found is None:
        return None
    node_ids = _unpacked(found.nodes)
    if node_ids is None:
        return None
    return AssignmentFacts(
        counts=found.counts,
        roster_hash=found.hash,
        seen=found.seen,
        leader=found.leader,
        is_awaited=found.awaited,
        member_count=found.members,
        node_ids=node_ids,
    )


def fitting_node_ids(node_ids: Iterable[str], member_count: int) -> tuple[NodeId, ...]:
    """The node ids in order if every assignment can carry them, else nothing."""
    ordered = tuple(NodeId(node_id) for node_id in sorted(node_ids, key=node_order))
    fits = len(_packed(ordered)) * member_count <= NODE_IDS_TOTAL_BYTES_MAX
    return ordered if fits else ()


def digest(data: bytes) -> bytes:
    """A short mark of some bytes, the same in every process."""
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def roster_hash(members: Iterable[tuple[str, bytes]]) -> bytes:
    """One hash over the members, by name and bytes, in whatever order they come."""
    state = blake2b(digest_size=HASH_BYTES)
    for name, data in sorted(members):
        for part in (name.encode("utf-8", "surrogatepass"), data):
            state.update(len(part).to_bytes(4, "big"))
            state.update(part)
    return state.digest()


_ContentT = TypeVar("_ContentT", _Node, _Facts)


def _header(magic: bytes) -> bytes:
    return magic + bytes([VERSION])


def _decoded(
    kind: type[_ContentT], magic: bytes, data: bytes | None, bytes_max: int
) -> _ContentT | None:
    if data is None or not HEADER_BYTES < len(data) <= bytes_max:
        return None
    if data[:3] != magic or data[3] < VERSION:
        return None
    try:
        return msgspec.json.decode(data[HEADER_BYTES:], type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # Brackets nested by the thousand in a field that is passed over end in RecursionError.
        return None


@lru_cache(maxsize=2)
def _packed(node_ids: tuple[NodeId, ...]) -> bytes:
    """The node ids, compressed; remembered, since a leader writes them into every assignment."""
    return zlib.compress("\n".join(node_ids).encode("utf-8", "surrogatepass"), 9)


def _unpacked(data: bytes) -> tuple[NodeId, ...] | None:
    """The node ids, or None if the bytes are none or would unfold without end."""
    if not data:
        return ()
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(data, NODE_IDS_TEXT_BYTES_MAX).decode("utf-8")
    except (zlib.error, UnicodeDecodeError):
        return None
    if not stream.eof:
        return None
    return tuple(NodeId(node_id) for node_id in text.split("\n"))


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
