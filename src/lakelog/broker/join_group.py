"""JoinGroup (11), versions 0 to 9.

A member of a classic group asks to be in its next generation, and waits until there is one. v0 has
no rebalance time-out and takes the session's; from v4 on a dynamic member is sent away with its
id first (79); instance ids from v5 on. An answer without a protocol has "" up to v6 and null from
v7 on (row 84); v9 may tell a leader not to assign. Ignored: the reason (v8).
"""

from functools import partial
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
from lakelog.coordinator.requests import JoinRequest
from lakelog.groups.events import JoinAnswer
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

FIRST_VERSION_WITH_NULL: Final = 7


async def handle(broker: "Broker", call: Call, request: JoinGroupRequest) -> Answer | Later:
    """Take a member into its group."""
    check_named(request.protocols)
    ask = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        api_version=call.version,
        client_id=client_id(call),
        client_host=client_host(call),
    )
    return answered(broker.groups.join(ask), partial(_response, call.version))


def _response(version: int, answer: JoinAnswer) -> JoinGroupResponse:
    no_name = None if version >= FIRST_VERSION_WITH_NULL else ""
    return JoinGroupResponse(
        error_code=answer.code,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or no_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(JoinGroupResponseMember(*member) for member in answer.members),
    )


API: Final = Endpoint(ApiKey.JOIN_GROUP, range(10), handle)
