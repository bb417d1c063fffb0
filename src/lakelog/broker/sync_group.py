"""SyncGroup (14), versions 0 to 5.

A member of a classic group asks for its assignment; the leader brings those of all members, and the
others wait for it. Instance ids from v3 on. From v5 on the protocol's type and name must be given,
else 23, and are answered. Ignored: nothing.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import (
    Answer,
    Call,
    Endpoint,
    Later,
    answered,
    check_named,
    client_host,
    client_id,
)
from lakelog.coordinator.requests import SyncRequest
from lakelog.groups.events import SyncAnswer
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_WITH_PROTOCOL: Final = 5


async def handle(broker: "Broker", call: Call, request: SyncGroupRequest) -> Answer | Later:
    """Give a member its assignment."""
    check_named(request.assignments)
    is_known = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= FIRST_VERSION_WITH_PROTOCOL and not is_known:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    ask = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
        api_version=call.version,
        client_id=client_id(call),
        client_host=client_host(call),
    )
    return answered(broker.groups.sync(ask), _response)


def _response(answer: SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.code,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


API: Final = Endpoint(ApiKey.SYNC_GROUP, range(6), handle)
