"""ListPartitionReassignments (46), version 0.

Partitions are not assigned to brokers, so none is on its way to another, whatever is asked for.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """That none is under way."""
    del broker, call, request
    return ListPartitionReassignmentsResponse(error_message=None)


API: Final = Endpoint(ApiKey.LIST_PARTITION_REASSIGNMENTS, range(1), handle)
