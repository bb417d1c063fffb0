"""ElectLeaders (43), versions 0 to 2.

A leader is a hint and never missing, so no election is needed: 84 for each partition that is named,
3 for one that is not there, 17 for a bad name. Null partitions mean all; as in Kafka the answer
names only those that were elected, so none. An election type (v1+) other than 0 and 1 is 42.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

PREFERRED, UNCLEAN = 0, 1
NOT_NEEDED: Final = "Leader election not needed for topic partition."


async def handle(
    broker: "Broker", call: Call, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """That every partition has its leader."""
    del call
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions or ()
    check_count(topic.partitions for topic in asked)
    finder = TopicFinder(broker, Attempt.ADMINISTERING)
    results = []
    async for part in broker.loop_turn.parts(asked):
        for topic in part:
            found = await finder.find(topic.topic, topic.partitions)
            missing = finder.no_partition
            partitions = tuple(_result(found, index, missing) for index in topic.partitions)
            results.append(ReplicaElectionResult(topic.topic, partitions))
    return ElectLeadersResponse(replica_election_results=tuple(results))


def _result(
    topic: "Topic | ErrorCode", partition: int, missing: ErrorCode
) -> ElectLeadersPartitionResult:
    if isinstance(topic, ErrorCode):
        return ElectLeadersPartitionResult(partition, topic, None)
    if topic.stream(partition) is None:
        return ElectLeadersPartitionResult(
            partition, missing, f"No such partition as {topic.name}-{partition}"
        )
    return ElectLeadersPartitionResult(partition, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)


API: Final = Endpoint(ApiKey.ELECT_LEADERS, range(3), handle)
