"""AlterReplicaLogDirs (34), versions 1 to 2.

The one log directory is the object store: everything is there already, and any other path is 57. An
unknown partition is 3.
"""

from typing import TYPE_CHECKING

from lakelog.broker.call import Call
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.topics.topic import Topic


async def handle(
    broker: "Broker", call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """That partitions are where they can be."""
    del call
    check_count(topic.partitions for path in request.dirs for topic in path.topics)
    finder = TopicFinder(broker, Attempt.READING)
    results = []
    for directory in request.dirs:
        is_ours = directory.path == broker.log.url
        async for part in broker.loop_turn.parts(directory.topics):
            for asked in part:
                found = await finder.find(asked.name, asked.partitions)
                partitions = tuple(
                    AlterReplicaLogDirPartitionResult(partition, _code(found, partition, is_ours))
                    for partition in asked.partitions
                )
                results.append(AlterReplicaLogDirTopicResult(asked.name, partitions))
    return AlterReplicaLogDirsResponse(results=tuple(results))


def _code(topic: "Topic | ErrorCode", partition: int, is_ours: bool) -> ErrorCode:
    if not is_ours:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if isinstance(topic, ErrorCode):
        return topic
    is_there = topic.stream(partition) is not None
    return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
