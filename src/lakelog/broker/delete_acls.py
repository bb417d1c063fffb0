"""DeleteAcls (31), versions 1 to 3.

There are no ACLs: every filter is answered 54, as by a Kafka without an authorizer.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.describe_acls import NO_AUTHORIZER
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(broker: "Broker", call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """That there are none to delete."""
    del broker, call
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=(refused,) * len(request.filters))


API: Final = Endpoint(ApiKey.DELETE_ACLS, range(1, 4), handle)
