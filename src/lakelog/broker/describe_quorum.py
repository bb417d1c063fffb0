"""DescribeQuorum (55), versions 0 to 2.

There is no quorum of brokers: the metadata store keeps the log of what happened. For tools there is
one voter, the broker that the client is told as controller, with the position of the first domain's
log that it has applied. Times and directory are unknown, the epoch is 0. Any other partition than
`__cluster_metadata` 0 is 3.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint, controller, shown_nodes
from lakelog.model.errors import ErrorCode
from lakelog.topics.failures import CLUSTER_METADATA
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_quorum import (
    DescribeQuorumListener,
    DescribeQuorumNode,
    DescribeQuorumReplicaState,
    DescribeQuorumRequest,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


async def handle(
    broker: "Broker", call: Call, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """The one voter, and how far it is."""
    view = broker.cluster.view(call.client_id)
    leader = controller(broker, view)
    end = broker.log.replicas[0].state.position + 1
    return DescribeQuorumResponse(
        error_message=None,
        topics=tuple(_topic(asked, leader=leader, end=end) for asked in request.topics),
        nodes=tuple(
            DescribeQuorumNode(
                node.id, (DescribeQuorumListener("PLAINTEXT", node.host, node.port),)
            )
            for node in shown_nodes(broker, call, view)
            if node.id == leader
        ),
    )


def _topic(
    asked: DescribeQuorumRequestTopicData, *, leader: int, end: int
) -> DescribeQuorumResponseTopicData:
    found = []
    for partition in asked.partitions:
        index = partition.partition_index
        if asked.topic_name == CLUSTER_METADATA and index == 0:
            voter = DescribeQuorumReplicaState(leader, log_end_offset=end)
            found.append(
                DescribeQuorumResponsePartitionData(
                    error_message=None,
                    leader_id=leader,
                    high_watermark=end,
                    current_voters=(voter,),
                )
            )
        else:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.append(DescribeQuorumResponsePartitionData(index, unknown, None))
    return DescribeQuorumResponseTopicData(asked.topic_name, tuple(found))


API: Final = Endpoint(ApiKey.DESCRIBE_QUORUM, range(3), handle)
