"""DescribeUserScramCredentials (50), version 0.

There are no users: the list of all is empty, one that is named is 91, and one that is named twice
is 92.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """That there is no such user."""
    del broker, call
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=tuple(_answer(name, is_twice=count > 1) for name, count in times.items()),
    )


def _answer(name: str, *, is_twice: bool) -> DescribeUserScramCredentialsResult:
    if is_twice:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials of one user twice in a single request: {name}",
        )
    return DescribeUserScramCredentialsResult(
        name,
        ErrorCode.RESOURCE_NOT_FOUND,
        f"Attempt to describe a user credential that does not exist: {name}",
    )


API: Final = Endpoint(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, range(1), handle)
