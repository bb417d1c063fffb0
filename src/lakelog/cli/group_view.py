"""Groups as a cluster tells of them: which there are, who is in one, and how far it is behind.

- Listing: every broker is asked for its own groups, and the answers are joined. A group that is
  just moving may be told by two brokers: it is listed once. A broker that does not answer is named,
  and the others' groups are listed all the same.
- Describing: what a coordinator knows, for both protocols in one shape. A classic group's members
  put their subscription and assignment into opaque bytes; what cannot be read there is unknown,
  never an error. No API tells a classic group's generation.
- Lag in records is what is left to read: from the committed offset, or from the log start if that
  is later, to the end. It counts offsets, as Kafka does: a transaction marker is one of them.
- Lag in seconds is the age of the first record that is left to read: how long the group has kept
  it waiting. It is 0 when nothing is left to read.
- What nobody knows is None: a group that never committed, a topic that is gone, a record without a
  timestamp.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from lakelog.cli.command import check
from lakelog.kafka_client.admin import TopicPartition, at_coordinator, pause
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import BrokerError, ClientFailure, Unsupported
from lakelog.kafka_client.metadata import ClusterNode
from lakelog.model.errors import ErrorCode
from lakelog.topics.routing import zone_of
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import PROTOCOL_TYPE, decode_assignment, decode_subscription
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lakelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from lakelog.wire.schema import ProtocolError


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group stands in a partition that holds [start, end)."""

    at: TopicPartition
    committed: int | None = None
    start: int | None = None
    end: int | None = None
    unread_ms: int | None = None
    """The timestamp of the first record that is left to read."""
    only_markers: bool = False
    """Whether what is left to read is known to hold no record, only markers and gaps."""
    trouble: str = ""
    """Why start and end are not known."""

    @property
    def unread(self) -> range | None:
        """The offsets that are left to read."""
        if self.committed is None or self.start is None or self.end is None:
            return None
        return range(max(self.committed, self.start), self.end)


def lag_records(position: Position) -> int | None:
    """How many records are left to read."""
    return None if position.unread is None else len(position.unread)


def lag_ms(position: Position, now_ms: int) -> int | None:
    """For how long the first unread record has waited; a clock behind its producer's reads as 0."""
    if position.unread is None:
        return None
    if not position.unread or position.only_markers:
        return 0
    if position.unread_ms is None or position.unread_ms < 0:
        return None
    return max(0, now_ms - position.unread_ms)


def remark(position: Position) -> str:
    """What is odd about a position, in a few words; empty if nothing is."""
    if position.trouble or position.committed is None:
        return position.trouble
    assert position.start is not None
    assert position.end is not None
    if position.committed < position.start:
        return f"below the log start, {position.start}"
    if position.committed > position.end:
        return "beyond the end"
    return ""


def row(position: Position, now_ms: int) -> dict[str, object]:
    """A position as a row of a table."""
    waited_ms = lag_ms(position, now_ms)
    return {
        "topic": position.at.topic,
        "partition": position.at.partition,
        "committed": position.committed,
        "end": position.end,
        "lag": lag_records(position),
        "seconds": None if waited_ms is None else waited_ms / 1000,
        "note": remark(position),
    }


DEAD: Final = "Dead"
NO_GROUP: Final = "there is no such group"
UNKNOWN: Final = "?"

Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""Partitions by topic, both in order."""

_MemberT = TypeVar("_MemberT", ConsumerGroupDescribeMember, DescribedGroupMember)


@dataclass(frozen=True, slots=True)
class GroupMemberView:
    """A member of a group; what it was assigned is None where it cannot be read."""

    id: str
    instance: str | None
    client: str
    host: str
    zone: str | None
    assigned: Partitions | None
    target: Partitions | None = None
    """What it shall have when the rebalance is over; the classic protocol has no such thing."""
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group at one moment."""

    group: str
    state: str
    type: str
    protocol: str
    """What its members are: `consumer`, `connect`; empty if it never had any."""
    assignor: str
    members: tuple[GroupMemberView, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None

    def assigned(self) -> list[TopicPartition]:
        """Every partition that some member has or shall have."""
        held = (part for each in self.members for part in (each.assigned, each.target) if part)
        return sorted(
            {
                TopicPartition(topic, index)
                for part in held
                for topic, indexes in part.items()
                for index in indexes
            }
        )


async def describe_group(cluster: KafkaCluster, group: str) -> tuple[ClusterNode, GroupFacts]:
    """Ask a group's coordinator; raises BrokerError with GROUP_ID_NOT_FOUND if it is not there."""

    async def ask(connection: BrokerConnection) -> GroupFacts:
        found = await _as_consumer_group(connection, group)
        return found if found is not None else await _as_classic_group(connection, group)

    facts = await at_coordinator(cluster, group, ask, cluster.deadline())
    node = cluster.known_coordinator(group)
    assert node is not None, "it has answered"
    return node, facts


async def _as_consumer_group(connection: BrokerConnection, group: str) -> GroupFacts | None:
    if ApiKey.CONSUMER_GROUP_DESCRIBE not in connection.versions:
        return None
    request = ConsumerGroupDescribeRequest((group,))
    answer = await connection.call(request, ConsumerGroupDescribeResponse)
    found = answer.groups[0]
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(found.error_code, found.error_message, about=group)
    return consumer_facts(found)


async def _as_classic_group(connection: BrokerConnection, group: str) -> GroupFacts:
    answer = await connection.call(DescribeGroupsRequest((group,)), DescribeGroupsResponse)
    found = answer.groups[0]
    # Before v6 a group that is not there is a dead one.
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, group, NO_GROUP)
    check(found.error_code, found.error_message, about=group)
    return classic_facts(found)


def consumer_facts(found: ConsumerGroupDescribeDescribedGroup) -> GroupFacts:
    """A group of the KIP-848 protocol."""
    return GroupFacts(
        found.group_id,
        found.group_state,
        "consumer",
        PROTOCOL_TYPE,
        found.assignor_name,
        tuple(_consumer_member(each) for each in _in_order(found.members)),
        found.group_epoch,
        found.assignment_epoch,
    )


def classic_facts(found: DescribeGroupsDescribedGroup) -> GroupFacts:
    """A group of the classic protocol."""
    consumers = found.protocol_type == PROTOCOL_TYPE
    return GroupFacts(
        found.group_id,
        found.group_state,
        "classic",
        found.protocol_type,
        found.protocol_data,
        tuple(_classic_member(each, consumers=consumers) for each in _in_order(found.members)),
    )


def partitions_text(partitions: Partitions | None) -> str:
    """Partitions as people write them: `orders:0-2,5 payments:1`; `?` where they are unknown."""
    if partitions is None:
        return UNKNOWN
    return " ".join(f"{topic}:{_runs(indexes)}" for topic, indexes in partitions.items()) or "-"


def _consumer_member(found: ConsumerGroupDescribeMember) -> GroupMemberView:
    return GroupMemberView(
        found.member_id,
        found.instance_id,
        found.client_id,
        _host(found.client_host),
        found.rack_id or zone_of(found.client_id),
        _topic_partitions(found.assignment),
        _topic_partitions(found.target_assignment),
        found.member_epoch,
    )


def _classic_member(found: DescribedGroupMember, *, consumers: bool) -> GroupMemberView:
    rack, assigned = None, None
    if consumers:
        rack, assigned = _rack(found.member_metadata), _assigned(found.member_assignment)
    return GroupMemberView(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        _host(found.client_host),
        rack or zone_of(found.client_id),
        assigned,
    )


def _rack(metadata: bytes) -> str | None:
    try:
        return decode_subscription(metadata).rack_id
    except ProtocolError:
        return None


def _assigned(assignment: bytes) -> Partitions | None:
    if not assignment:  # a member that was given nothing, or a group in mid-rebalance
        return {}
    try:
        found = decode_assignment(assignment).assigned_partitions
    except ProtocolError:
        return None
    return _ordered((each.topic, each.partitions) for each in found)


def _topic_partitions(assignment: ConsumerGroupDescribeAssignment) -> Partitions:
    return _ordered((each.topic_name, each.partitions) for each in assignment.topic_partitions)


def _ordered(found: Iterable[tuple[str, Iterable[int]]]) -> Partitions:
    joined: dict[str, set[int]] = {}
    for topic, indexes in found:
        joined.setdefault(topic, set()).update(indexes)
    return {topic: tuple(sorted(joined[topic])) for topic in sorted(joined)}


def _in_order(members: tuple[_MemberT, ...]) -> list[_MemberT]:
    return sorted(members, key=lambda each: (each.client_id, each.member_id))


def _host(text: str) -> str:
    return text.removeprefix("/")  # as Java prints an address


def _runs(indexes: Iterable[int]) -> str:
    """`0-2,5` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for index in indexes:
        if runs and index == runs[-1][-1] + 1:
            runs[-1][1:] = [index]
        else:
            runs.append([index])
    return ",".join("-".join(map(str, run)) for run in runs)


STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
    "NotReady",
)
TYPES: Final = ("classic", "consumer", "share", "streams")
STATES_SINCE: Final = 4
TYPES_SINCE: Final = 5


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Which groups to list; without states or types, those of all."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerGroups:
    """What one broker answered: its groups, or why there are none."""

    node: ClusterNode
    groups: tuple[ListedGroup, ...] = ()
    failure: str = ""


async def list_groups(cluster: KafkaCluster, wanted: GroupFilter) -> list[BrokerGroups]:
    """Ask every broker of the cluster."""
    nodes = [ClusterNode(number, cluster.brokers[number]) for number in sorted(cluster.brokers)]
    return list(await asyncio.gather(*(_listed(cluster, node, wanted) for node in nodes)))


def joined(listings: Iterable[BrokerGroups]) -> list[dict[str, object]]:
    """One row for each group, by name."""
    found: dict[str, dict[str, object]] = {}
    for listing in listings:
        for each in listing.groups:
            row: dict[str, object] = {
                "group": each.group_id,
                "state": each.group_state or None,
                "type": each.group_type or None,
                "protocol": each.protocol_type or None,
                "coordinator": listing.node.id,
                "address": str(listing.node.address),
            }
            found.setdefault(each.group_id, row)
    return [found[group] for group in sorted(found)]


async def _listed(cluster: KafkaCluster, node: ClusterNode, wanted: GroupFilter) -> BrokerGroups:
    deadline = cluster.deadline()
    try:
        connection = await cluster.connection(node.id)
        while True:
            try:
                return BrokerGroups(node, await _ask(connection, wanted))
            except BrokerError as failure:  # its groups are being loaded
                await pause(cluster, deadline, failure)
    except ClientFailure as failure:
        return BrokerGroups(node, failure=f"broker {node.id}: {failure}")


async def _ask(connection: BrokerConnection, wanted: GroupFilter) -> tuple[ListedGroup, ...]:
    version = connection.version(ApiKey.LIST_GROUPS)
    # A broker that does not know a filter lists everything, which is not what was asked for.
    if (wanted.states and version < STATES_SINCE) or (wanted.types and version < TYPES_SINCE):
        raise Unsupported("ListGroups", "it cannot filter groups like that")
    answer = await connection.call(
        ListGroupsRequest(wanted.states, wanted.types), ListGroupsResponse
    )
    check(answer.error_code, about="ListGroups")
    return answer.groups
