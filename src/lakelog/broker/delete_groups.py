"""DeleteGroups (42), versions 0 to 2.

Forgets groups without members, and their offsets. One that has members is 68, one that there is
not 69 (row 40). A group that stands twice is answered once. Ignored: nothing.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Answer, Call, Endpoint, Later, answered, check_named
from lakelog.groups.events import DeleteGroup, GroupEventResult, GroupOutcome
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(broker: "Broker", call: Call, request: DeleteGroupsRequest) -> Answer | Later:
    """Delete each group."""
    del call
    check_named(request.groups_names)
    names = tuple(dict.fromkeys(request.groups_names))
    # All of them take their place in the log before the first is waited for.
    judged = [
        broker.groups.submit(DeleteGroup(name))
        async for part in broker.loop_turn.parts(names)
        for name in part
    ]
    return answered(asyncio.gather(*judged), partial(_response, names))


def _response(
    names: tuple[str, ...], outcomes: list[GroupOutcome | ErrorCode]
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(
            DeletableGroupResult(name, _code(outcome))
            for name, outcome in zip(names, outcomes, strict=True)
        )
    )


def _code(outcome: GroupOutcome | ErrorCode) -> ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    assert isinstance(outcome, GroupEventResult), outcome
    return outcome.code


API: Final = Endpoint(ApiKey.DELETE_GROUPS, range(3), handle)
