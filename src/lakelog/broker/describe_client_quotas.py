"""DescribeClientQuotas (48), versions 0 to 1.

There are no quotas, so the list is empty, whatever is asked for.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """That nobody has one."""
    del broker, call, request
    return DescribeClientQuotasResponse(error_message=None)


API: Final = Endpoint(ApiKey.DESCRIBE_CLIENT_QUOTAS, range(2), handle)
