"""LeaveGroup (13), versions 0 to 5.

v0 to v2: one member, its code at the top. From v3 on: several, each with its own code, by member id
or, with an empty one, by instance id (row 86). Ignored: the reason (v5).
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered, check_named
from lakelog.groups.events import LeaveResult
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import lift, lower
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(broker: "Broker", call: Call, request: LeaveGroupRequest) -> Answer | Later:
    """Take members out of their group."""
    lifted = lift(request, call.version)
    check_named(lifted.members)
    members = tuple((member.member_id, member.group_instance_id) for member in lifted.members)
    left = broker.groups.leave(lifted.group_id, members)
    return answered(left, partial(_response, lifted, call.version))


def _response(
    request: LeaveGroupRequest, version: int, outcome: LeaveResult | ErrorCode
) -> LeaveGroupResponse:
    if not isinstance(outcome, LeaveResult):
        return LeaveGroupResponse(error_code=outcome)
    response = LeaveGroupResponse(
        members=tuple(
            MemberResponse(member.member_id, member.group_instance_id, code)
            for member, code in zip(request.members, outcome.codes, strict=True)
        )
    )
    return lower(response, version)


API: Final = Endpoint(ApiKey.LEAVE_GROUP, range(6), handle)
