"""ListTransactions (66), versions 0 to 2.

There are no transactions, so the list is empty. Filters by states that Kafka does not know are
told back. Ignored: the other filters, which an empty list passes anyway.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


async def handle(
    broker: "Broker", call: Call, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """That there are none."""
    del broker, call
    unknown = (state for state in dict.fromkeys(request.state_filters) if state not in STATES)
    return ListTransactionsResponse(unknown_state_filters=tuple(unknown))


API: Final = Endpoint(ApiKey.LIST_TRANSACTIONS, range(3), handle)
