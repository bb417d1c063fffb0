"""AlterUserScramCredentials (51), version 0.

There are no users and nobody is asked who he is. Setting a credential is 33 with the reason,
because a password that opens nothing closes nothing either; deleting one is 91.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

NO_USERS: Final = "Lakelog does not authenticate clients: there are no users to keep this for."
NOT_THERE: Final = "Attempt to delete a user credential that does not exist"


async def handle(
    broker: "Broker", call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """That no user has, or gets, a credential."""
    del broker, call
    refused = {
        deletion.name: AlterUserScramCredentialsResult(
            deletion.name, ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE
        )
        for deletion in request.deletions
    }
    for upsertion in request.upsertions:
        refused[upsertion.name] = AlterUserScramCredentialsResult(
            upsertion.name, ErrorCode.UNSUPPORTED_SASL_MECHANISM, NO_USERS
        )
    return AlterUserScramCredentialsResponse(results=tuple(refused.values()))


API: Final = Endpoint(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, range(1), handle)
