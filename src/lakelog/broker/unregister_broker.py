"""UnregisterBroker (64), version 0.

A broker is registered for as long as its session lives, so there is never one left to forget: one
that lives is 42 with the reason, any other 102.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """That a broker which stopped is forgotten already."""
    del call
    if any(node.id == request.broker_id for node in broker.cluster.nodes()):
        return UnregisterBrokerResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"Broker {request.broker_id} is running. Stop it: it is forgotten when"
            " its session ends, seconds later.",
        )
    return UnregisterBrokerResponse(
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker {request.broker_id} is not registered.",
    )


API: Final = Endpoint(ApiKey.UNREGISTER_BROKER, range(1), handle)
