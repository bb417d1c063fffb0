"""DescribeAcls (29), versions 1 to 3.

There are no ACLs: every answer is 54, as of a Kafka without an authorizer.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

NO_AUTHORIZER: Final = "No Authorizer is configured."


async def handle(
    broker: "Broker", call: Call, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """That there are none to describe."""
    del broker, call, request
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


API: Final = Endpoint(ApiKey.DESCRIBE_ACLS, range(1, 4), handle)
