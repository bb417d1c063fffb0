"""AlterClientQuotas (49), versions 0 to 1.

There are no quotas. Setting one is 42 with the reason, because a limit that is not kept is worse
than none; removing one that is not there is done.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

NO_QUOTAS: Final = "Lakelog has no quotas: nothing would keep this limit."


async def handle(
    broker: "Broker", call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """That none can be set."""
    del broker, call
    return AlterClientQuotasResponse(entries=tuple(map(_answer, request.entries)))


def _answer(asked: AlterClientQuotasRequestEntryData) -> AlterClientQuotasResponseEntryData:
    is_limit = any(not change.remove for change in asked.ops)
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.INVALID_REQUEST if is_limit else ErrorCode.NONE,
        error_message=NO_QUOTAS if is_limit else None,
        entity=tuple(
            AlterClientQuotasResponseEntityData(part.entity_type, part.entity_name)
            for part in asked.entity
        ),
    )


API: Final = Endpoint(ApiKey.ALTER_CLIENT_QUOTAS, range(2), handle)
