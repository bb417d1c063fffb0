"""DescribeProducers (61), version 0.

Lists the idempotent producers that a partition remembers. Without transactions
`coordinator_epoch` and `current_txn_start_offset` are -1. A bad topic name is 17, an unknown
topic or partition 3.

The list is told after a proof of currency (rule 16): who looks for a producer that hangs must not
hear that there is none.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint, Fault
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count, unproven_code
from lakelog.model.errors import ErrorCode
from lakelog.topics.failures import name_fault
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic


PROOF_S_MAX: Final = 10.0


async def handle(
    broker: "Broker", call: Call, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """List the producers of each partition."""
    check_count(topic.partition_indexes for topic in request.topics)
    finder = TopicFinder(broker, Attempt.READING)
    turn = broker.loop_turn
    topics = [
        await _find(finder, asked) async for part in turn.parts(request.topics) for asked in part
    ]
    streams = [
        stream
        for topic, asked in zip(topics, request.topics, strict=True)
        if not isinstance(topic, Fault)
        for index in asked.partition_indexes
        if (stream := topic.stream(index)) is not None
    ]
    unproven = await unproven_code(
        broker, streams, arrived_s=call.arrived_s, deadline_s=call.arrived_s + PROOF_S_MAX
    )
    answers = []
    async for described in turn.parts(list(zip(topics, request.topics, strict=True))):
        for topic, asked in described:
            rows = [
                _partition(broker, topic, index, finder.no_partition, unproven)
                async for indexes in turn.parts(asked.partition_indexes)
                for index in indexes
            ]
            answers.append(TopicResponse(asked.name, tuple(rows)))
    return DescribeProducersResponse(topics=tuple(answers))


async def _find(finder: TopicFinder, asked: DescribeProducersTopicRequest) -> "Topic | Fault":
    """The topic, or what its partitions are answered with."""
    problem = name_fault(asked.name)
    if problem is not None:
        return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
    found = await finder.find(asked.name, asked.partition_indexes)
    return Fault(found, None) if isinstance(found, ErrorCode) else found


def _partition(
    broker: "Broker", topic: "Topic | Fault", index: int, missing: ErrorCode, unproven: ErrorCode
) -> PartitionResponse:
    if isinstance(topic, Fault):
        return PartitionResponse(index, topic.code, topic.message)
    stream = topic.stream(index)
    if stream is None:
        return PartitionResponse(index, missing)
    if unproven:
        return PartitionResponse(index, unproven)
    if broker.log.facts(stream) is None:  # dropped a moment ago
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


API: Final = Endpoint(ApiKey.DESCRIBE_PRODUCERS, range(1), handle)
