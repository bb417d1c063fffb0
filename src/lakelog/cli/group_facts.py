"""What a coordinator knows of a group, for both protocols in one shape.

A classic group's members put their subscription and assignment into opaque bytes; what cannot be
read there is unknown, never an error. No API tells a classic group's generation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from lakelog.cli.cluster import Cluster, Node
from lakelog.cli.conversation import check
from lakelog.cli.group_lag import TopicPartition
from lakelog.model.errors import ErrorCode
from lakelog.server.client import Client, KafkaFailure
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
from lakelog.wire.schema import ProtocolError

DEAD: Final = "Dead"
NO_GROUP: Final = "there is no such group"
UNKNOWN: Final = "?"

Partitions: TypeAlias = dict[str, tuple[int, ...]]
"""Partitions by topic, both in order."""

_MemberT = TypeVar("_MemberT", ConsumerGroupDescribeMember, DescribedGroupMember)


@dataclass(frozen=True, slots=True)
class Member:
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
    members: tuple[Member, ...]
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


async def describe_group(cluster: Cluster, group: str) -> tuple[Node, GroupFacts]:
    """Ask a group's coordinator; raises KafkaFailure with GROUP_ID_NOT_FOUND if it is not there."""

    async def ask(client: Client) -> GroupFacts:
        found = await _as_consumer_group(client, group)
        return found if found is not None else await _as_classic_group(client, group)

    return await cluster.at_coordinator(group, ask)


async def _as_consumer_group(client: Client, group: str) -> GroupFacts | None:
    if ApiKey.CONSUMER_GROUP_DESCRIBE not in client.versions:
        return None
    request = ConsumerGroupDescribeRequest((group,))
    answer = await client.call(request, ConsumerGroupDescribeResponse)
    found = answer.groups[0]
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(found.error_code, found.error_message, about=group)
    return consumer_facts(found)


async def _as_classic_group(client: Client, group: str) -> GroupFacts:
    answer = await client.call(DescribeGroupsRequest((group,)), DescribeGroupsResponse)
    found = answer.groups[0]
    # Before v6 a group that is not there is a dead one.
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == DEAD:
        raise KafkaFailure(ErrorCode.GROUP_ID_NOT_FOUND, NO_GROUP, about=group)
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


def _consumer_member(found: ConsumerGroupDescribeMember) -> Member:
    return Member(
        found.member_id,
        found.instance_id,
        found.client_id,
        _host(found.client_host),
        found.rack_id or zone_of(found.client_id),
        _topic_partitions(found.assignment),
        _topic_partitions(found.target_assignment),
        found.member_epoch,
    )


def _classic_member(found: DescribedGroupMember, *, consumers: bool) -> Member:
    rack, assigned = None, None
    if consumers:
        rack, assigned = _rack(found.member_metadata), _assigned(found.member_assignment)
    return Member(
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
