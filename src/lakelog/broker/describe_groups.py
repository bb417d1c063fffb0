"""DescribeGroups (15), versions 0 to 6.

Groups of the classic protocol. One that there is not, or that is of the consumer protocol, is in
state Dead: up to v5 without an error, in v6 with 69 and a message (row 75). Members' metadata and
assignments, and the protocol, are told only while the group is stable. Operations are answered from
v3 on when asked for, except with an error. A group that stands twice is described once. Ignored:
nothing.

Each group is told after a proof of currency for its domain; without one it is 15.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import NO_OPERATIONS, Call, Endpoint
from lakelog.broker.lookup import DEAD, GROUP_OPERATIONS, classic_state, describe_each
from lakelog.groups.classic_members import metadata_of
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState, Group
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_WITH_NOT_FOUND: Final = 6


async def handle(
    broker: "Broker", call: Call, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group."""
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NO_OPERATIONS

    def describe(
        group_id: str, group: Group | None, is_current: bool
    ) -> DescribeGroupsDescribedGroup:
        if not is_current:
            return _failed(group_id)
        if isinstance(group, ClassicGroup):
            return _described(group, operations)
        if call.version < FIRST_VERSION_WITH_NOT_FOUND:
            return _dead(group_id, operations)
        return _not_found(group_id, group)

    groups = await describe_each(broker, call, request.groups, describe)
    return DescribeGroupsResponse(groups=groups)


def _failed(group_id: str) -> DescribeGroupsDescribedGroup:
    return DescribeGroupsDescribedGroup(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, group_id=group_id
    )


def _dead(group_id: str, operations: int) -> DescribeGroupsDescribedGroup:
    return DescribeGroupsDescribedGroup(
        group_id=group_id, group_state=DEAD, authorized_operations=operations
    )


def _not_found(group_id: str, group: Group | None) -> DescribeGroupsDescribedGroup:
    problem = "not found" if group is None else "is not a classic group"
    return DescribeGroupsDescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {problem}.",
        group_id=group_id,
        group_state=DEAD,
    )


def _described(group: ClassicGroup, operations: int) -> DescribeGroupsDescribedGroup:
    protocol = group.protocol_name if group.state is ClassicState.STABLE else None
    return DescribeGroupsDescribedGroup(
        group_id=group.group_id,
        group_state=classic_state(group),
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=tuple(_member(member, protocol) for member in group.members.values()),
        authorized_operations=operations,
    )


def _member(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else metadata_of(member, protocol),
        member_assignment=member.assignment,
    )


API: Final = Endpoint(ApiKey.DESCRIBE_GROUPS, range(7), handle)
