"""CreateAcls (30), versions 1 to 3.

There are no ACLs: every one is answered 54, as by a Kafka without an authorizer.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.describe_acls import NO_AUTHORIZER
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(broker: "Broker", call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """That none is kept."""
    del broker, call
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return CreateAclsResponse(results=(refused,) * len(request.creations))


API: Final = Endpoint(ApiKey.CREATE_ACLS, range(1, 4), handle)
