"""The requests of the group APIs as scripts write them: short, with the usual values left out."""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from tests.golden.groups.stage import Ask

from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lakelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
NULL_BYTES: Final = struct.pack(">i", -1)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _partitions(owned: Mapping[str, Iterable[int]]) -> bytes:
    found = struct.pack(">i", len(owned))
    for topic, partitions in owned.items():
        listed = tuple(partitions)
        found += _string(topic) + struct.pack(f">i{len(listed)}i", len(listed), *listed)
    return found


def subscription(
    *topics: str,
    version: int = 1,
    user_data: bytes | None = None,
    owned: Mapping[str, Iterable[int]] | None = None,
    generation: int = -1,
) -> bytes:
    """What a consumer sends as its metadata: its topics, and from 1 on what it owns."""
    found = struct.pack(">hi", version, len(topics)) + b"".join(map(_string, topics))
    if user_data is None:
        found += NULL_BYTES
    else:
        found += struct.pack(">i", len(user_data)) + user_data
    if version >= 1:
        found += _partitions(owned or {})
    if version >= 2:
        found += struct.pack(">i", generation)
    if version >= 3:
        found += struct.pack(">h", -1)
    return found


def assignment(given: Mapping[str, Iterable[int]], version: int = 1) -> bytes:
    """What a consumer that leads sends for one member."""
    return struct.pack(">h", version) + _partitions(given) + NULL_BYTES


PLAIN: Final = (("range", subscription("t")),)


def find(*keys: str, version: int = 6, kind: int = 0) -> Ask[FindCoordinatorResponse]:
    """FindCoordinator: one key before version 4."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=keys, key=keys[0])
    return Ask(request, FindCoordinatorResponse, version)


def join(
    group: str,
    member: str = "",
    *,
    version: int = 9,
    instance: str | None = None,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    kind: str = "consumer",
    protocols: Iterable[tuple[str, bytes]] = PLAIN,
    reason: str | None = None,
) -> Ask[JoinGroupResponse]:
    """JoinGroup."""
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=tuple(JoinGroupRequestProtocol(*each) for each in protocols),
        reason=reason,
    )
    return Ask(request, JoinGroupResponse, version)


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    version: int = 5,
    instance: str | None = None,
    kind: str | None = "consumer",
    name: str | None = "range",
) -> Ask[SyncGroupResponse]:
    """SyncGroup; the leader gives assignments."""
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=name,
        assignments=tuple(
            SyncGroupRequestAssignment(*each) for each in (assignments or {}).items()
        ),
    )
    return Ask(request, SyncGroupResponse, version)


def beat(
    group: str, generation: int, member: str, *, version: int = 4, instance: str | None = None
) -> Ask[HeartbeatResponse]:
    """Heartbeat."""
    request = HeartbeatRequest(group, generation, member, instance)
    return Ask(request, HeartbeatResponse, version)


def leave(
    group: str,
    *members: str,
    version: int = 5,
    instances: Mapping[str, str] | None = None,
    reason: str | None = None,
) -> Ask[LeaveGroupResponse]:
    """LeaveGroup: one member before version 3. `instances` gives member ids by instance id."""
    leaving = [MemberIdentity(member, None, reason) for member in members]
    leaving += [MemberIdentity(member, one, reason) for one, member in (instances or {}).items()]
    alone = members[0] if members else ""
    request = LeaveGroupRequest(group_id=group, members=tuple(leaving), member_id=alone)
    return Ask(request, LeaveGroupResponse, version)


def listed(
    *, states: Iterable[str] = (), types: Iterable[str] = (), version: int = 5
) -> Ask[ListGroupsResponse]:
    """ListGroups; a script sees its own groups only."""
    return Ask(ListGroupsRequest(tuple(states), tuple(types)), ListGroupsResponse, version)


def described(
    *groups: str, version: int = 6, operations: bool = False
) -> Ask[DescribeGroupsResponse]:
    """DescribeGroups, for classic groups."""
    return Ask(DescribeGroupsRequest(groups, operations), DescribeGroupsResponse, version)


def inspected(
    *groups: str, version: int = 1, operations: bool = False
) -> Ask[ConsumerGroupDescribeResponse]:
    """ConsumerGroupDescribe, for groups of the newer protocol."""
    request = ConsumerGroupDescribeRequest(groups, operations)
    return Ask(request, ConsumerGroupDescribeResponse, version)


def deleted(*groups: str, version: int = 2) -> Ask[DeleteGroupsResponse]:
    """DeleteGroups."""
    return Ask(DeleteGroupsRequest(groups), DeleteGroupsResponse, version)


def pulse(
    group: str,
    member: str,
    epoch: int,
    *,
    version: int = 1,
    instance: str | None = None,
    rack: str | None = None,
    rebalance_ms: int = -1,
    names: Iterable[str] | None = None,
    regex: str | None = None,
    assignor: str | None = None,
    owned: Mapping[bytes, Iterable[int]] | None = None,
) -> Ask[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat that says nothing new; `owned` is by topic id."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else tuple(
            ConsumerGroupHeartbeatRequestTopicPartitions(topic, tuple(partitions))
            for topic, partitions in owned.items()
        ),
    )
    return Ask(request, ConsumerGroupHeartbeatResponse, version)


def enter(
    group: str,
    member: str,
    *topics: str,
    epoch: int = 0,
    version: int = 1,
    instance: str | None = None,
    rebalance_ms: int = REBALANCE_MS,
    assignor: str | None = None,
    owned: Mapping[bytes, Iterable[int]] | None = None,
) -> Ask[ConsumerGroupHeartbeatResponse]:
    """ConsumerGroupHeartbeat with everything in it, as the first one has to be."""
    return pulse(
        group,
        member,
        epoch,
        version=version,
        instance=instance,
        rebalance_ms=rebalance_ms,
        names=topics,
        assignor=assignor,
        owned=owned or {},
    )
