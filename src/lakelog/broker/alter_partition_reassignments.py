"""AlterPartitionReassignments (45), versions 0 to 1.

Partitions are not assigned to brokers, so there is nothing to assign anew: 39 with the reason for
each partition, unless the one replica that is asked for leads it already. Cancelling is 85, an
unknown partition 3. Ignored: the time-out, `allow_replication_factor_change`.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.routing import RoutingView
    from lakelog.topics.topic import Topic

NOT_ASSIGNED: Final = (
    "Lakelog assigns no partitions to brokers: every broker serves every partition, and the object"
    " store replicates."
)


async def handle(
    broker: "Broker", call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """That nothing can be moved."""
    check_count(topic.partitions for topic in request.topics)
    finder = TopicFinder(broker, Attempt.ADMINISTERING)
    view = broker.cluster.view(call.client_id)
    responses = []
    async for part in broker.loop_turn.parts(request.topics):
        for asked in part:
            named = [partition.partition_index for partition in asked.partitions]
            found = await finder.find(asked.name, named)
            missing = finder.no_partition
            partitions = tuple(
                _answer(view, found, partition, missing) for partition in asked.partitions
            )
            responses.append(ReassignableTopicResponse(asked.name, partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(responses),
    )


def _answer(
    view: "RoutingView",
    topic: "Topic | ErrorCode",
    asked: ReassignablePartition,
    missing: ErrorCode,
) -> ReassignablePartitionResponse:
    index = asked.partition_index
    if isinstance(topic, ErrorCode):
        return ReassignablePartitionResponse(index, topic, None)
    if topic.stream(index) is None:
        return ReassignablePartitionResponse(index, missing, "The partition does not exist.")
    if asked.replicas is None:
        return ReassignablePartitionResponse(index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    if asked.replicas == (view.partition_leaders(topic)[index],):
        return ReassignablePartitionResponse(index, error_message=None)
    return ReassignablePartitionResponse(index, ErrorCode.INVALID_REPLICA_ASSIGNMENT, NOT_ASSIGNED)


API: Final = Endpoint(ApiKey.ALTER_PARTITION_REASSIGNMENTS, range(2), handle)
