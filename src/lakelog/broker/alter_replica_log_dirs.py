"""AlterReplicaLogDirs (34), versions 1 to 2.

The one log directory is the object store: everything is there already, and any other path is 57. An
unknown partition is 3.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic


async def handle(
    broker: "Broker", call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """That partitions are where they can be."""
    del call
    check_count(topic.partitions for path in request.dirs for topic in path.topics)
    finder = TopicFinder(broker, Attempt.ADMINISTERING)
    results = []
    for directory in request.dirs:
        is_ours = directory.path == broker.log.url
        async for part in broker.loop_turn.parts(directory.topics):
            for asked in part:
                found = await finder.find(asked.name, asked.partitions)
                missing = finder.no_partition if is_ours else ErrorCode.LOG_DIR_NOT_FOUND
                there = found if is_ours else missing
                partitions = tuple(
                    AlterReplicaLogDirPartitionResult(partition, _code(there, partition, missing))
                    for partition in asked.partitions
                )
                results.append(AlterReplicaLogDirTopicResult(asked.name, partitions))
    return AlterReplicaLogDirsResponse(results=tuple(results))


def _code(topic: "Topic | ErrorCode", partition: int, missing: ErrorCode) -> ErrorCode:
    if isinstance(topic, ErrorCode):
        return topic
    return ErrorCode.NONE if topic.stream(partition) is not None else missing


API: Final = Endpoint(ApiKey.ALTER_REPLICA_LOG_DIRS, range(1, 3), handle)
