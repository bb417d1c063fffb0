"""Heartbeat (12), versions 0 to 4.

A member of a classic group says that it lives, and hears whether to rejoin. Static members are
known from v3 on. Ignored: nothing. Clients survive few codes here (row 81): whatever is wrong with
us is 15 or 16.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(broker: "Broker", call: Call, request: HeartbeatRequest) -> Answer | Later:
    """Keep a member alive."""
    del call
    judged = broker.groups.heartbeat(
        request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
    )
    return answered(judged, _response)


def _response(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


API: Final = Endpoint(ApiKey.HEARTBEAT, range(5), handle)
