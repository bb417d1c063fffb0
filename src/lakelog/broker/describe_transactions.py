"""DescribeTransactions (65), version 0.

There are no transactions: every transactional id is 105.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """That nobody has this id."""
    del broker, call
    return DescribeTransactionsResponse(
        transaction_states=tuple(
            DescribeTransactionsTransactionState(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id
            )
            for transactional_id in request.transactional_ids
        )
    )


API: Final = Endpoint(ApiKey.DESCRIBE_TRANSACTIONS, range(1), handle)
