"""DescribeCluster (60), versions 0 to 2.

The brokers are those that Metadata shows the same client. Endpoint type 2 (controllers, v1+) is
114, any other than 1 is 115. No broker is ever fenced, so `include_fenced_brokers` changes nothing.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    Call,
    Endpoint,
    controller,
    shown_nodes,
)
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(
    broker: "Broker", call: Call, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Who is there."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an"
            " endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    view = broker.cluster.view(call.client_id)
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster.cluster_id,
        controller_id=controller(broker, view),
        brokers=tuple(
            DescribeClusterBroker(node.id, node.host, node.port, node.rack)
            for node in shown_nodes(broker, call, view)
        ),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NO_OPERATIONS,
    )


API: Final = Endpoint(ApiKey.DESCRIBE_CLUSTER, range(3), handle)
