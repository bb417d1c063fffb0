"""InitProducerId (22), versions 0 to 5.

Only idempotent producers: a transactional id is refused with 53 (row 64), an empty one with 42.
Ignored: `transaction_timeout_ms`. A producer id and epoch that a client sends (v3+) get a new id
all the same, as Kafka gives them without a transactional id; only one of the two is 42.

With idempotence off the API is not advertised, and a client that calls it anyway hears 35 (001
§14.3).
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt, failure_code
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import NO_PRODUCER
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

NO_EPOCH = -1


async def handle(
    broker: "Broker", call: Call, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give out an id that nobody ever had."""
    del call
    code = _problem(broker, request)
    if code:
        return _refusal(code)
    try:
        producer = await broker.cluster.producer_ids.next()
    except Failure as failure:
        return _refusal(failure_code(failure, Attempt.NUMBERING))
    return InitProducerIdResponse(producer_id=producer, producer_epoch=0)


def _problem(broker: "Broker", request: InitProducerIdRequest) -> ErrorCode:
    if not broker.options.idempotence:
        return ErrorCode.UNSUPPORTED_VERSION
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER, producer_epoch=NO_EPOCH)


API: Final = Endpoint(
    ApiKey.INIT_PRODUCER_ID, range(6), handle, offered=lambda options: options.idempotence
)
