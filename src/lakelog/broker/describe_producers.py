"""DescribeProducers (61), version 0.

Lists the idempotent producers that a partition remembers. Without transactions
`coordinator_epoch` and `current_txn_start_offset` are -1. A bad topic name is 17, an unknown
topic or partition 3.
"""

from typing import TYPE_CHECKING

from lakelog.broker.call import Call
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count
from lakelog.model.errors import ErrorCode
from lakelog.topics.names import fault
from lakelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.topics.topic import Topic


async def handle(
    broker: "Broker", call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List the producers of each partition."""
    del call
    check_count(topic.partition_indexes for topic in request.topics)
    finder = TopicFinder(broker, Attempt.READING)
    return DescribeProducersResponse(
        topics=tuple([await _describe(broker, finder, topic) for topic in request.topics])
    )


async def _describe(
    broker: "Broker", finder: TopicFinder, asked: DescribeProducersTopicRequest
) -> TopicResponse:
    problem = fault(asked.name)
    if problem is not None:
        reason = f"Topic name is invalid: {problem}"
        partitions = tuple(
            PartitionResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            for index in asked.partition_indexes
        )
        return TopicResponse(asked.name, partitions)
    topic = await finder.find(asked.name)
    return TopicResponse(
        asked.name,
        tuple(_partition(broker, topic, index) for index in asked.partition_indexes),
    )


def _partition(broker: "Broker", topic: "Topic | ErrorCode", index: int) -> PartitionResponse:
    if isinstance(topic, ErrorCode):
        return PartitionResponse(index, topic)
    stream = topic.stream(index)
    if stream is None or broker.log.facts(stream) is None:
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return PartitionResponse(
        index,
        active_producers=tuple(
            ProducerState(
                facts.producer,
                facts.epoch,
                facts.last_sequence,
                facts.last_timestamp_ms,
                coordinator_epoch=-1,
            )
            for facts in broker.log.producers(stream)
        ),
    )
