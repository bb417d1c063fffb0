"""OffsetForLeaderEpoch (23), versions 2 to 4.

There is one leader epoch and nothing is ever truncated, so the end of every epoch up to ours is
the log end (rows 30, 58, 59). An epoch above ours, or below 0, is (-1, -1) without an error: Java
consumers then reset, which is why no answer of ours ever shows an epoch that Metadata does not
reach. Checked: `current_leader_epoch`. Ignored: `replica_id`.

The end is given after a proof of currency: a consumer whose position is beyond the end it hears
believes that data was lost (redpanda#5435).
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Endpoint
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder, check_count, epoch_code, unproven_code
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import LEADER_EPOCH
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

PROOF_S_MAX: Final = 10.0


async def handle(
    broker: "Broker", call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Say where each epoch ends."""
    check_count(topic.partitions for topic in request.topics)
    finder = TopicFinder(broker, Attempt.READING)
    turn = broker.loop_turn
    found = [
        await finder.find(topic.topic, (asked.partition for asked in topic.partitions))
        async for part in turn.parts(request.topics)
        for topic in part
    ]
    streams = [
        stream
        for topic, asked in zip(found, request.topics, strict=True)
        if not isinstance(topic, ErrorCode)
        for partition in asked.partitions
        if (stream := topic.stream(partition.partition)) is not None
    ]
    unproven = await unproven_code(
        broker, streams, arrived_s=call.arrived_s, deadline_s=call.arrived_s + PROOF_S_MAX
    )
    results = []
    async for judged in turn.parts(list(zip(found, request.topics, strict=True))):
        for topic, asked in judged:
            rows = [
                _end(broker, finder, topic, partition, unproven)
                async for partitions in turn.parts(asked.partitions)
                for partition in partitions
            ]
            results.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=tuple(rows)))
    return OffsetForLeaderEpochResponse(topics=tuple(results))


def _end(
    broker: "Broker",
    finder: TopicFinder,
    topic: "Topic | ErrorCode",
    asked: OffsetForLeaderPartition,
    unproven: ErrorCode,
) -> OffsetForLeaderEpochEndOffset:
    index = asked.partition
    if isinstance(topic, ErrorCode):
        return OffsetForLeaderEpochEndOffset(topic, index)
    stream = topic.stream(index)
    if stream is None:
        return OffsetForLeaderEpochEndOffset(finder.no_partition, index)
    code = epoch_code(asked.current_leader_epoch) or unproven
    if code:
        return OffsetForLeaderEpochEndOffset(code, index)
    facts = broker.log.facts(stream)
    if facts is None:  # dropped a moment ago
        return OffsetForLeaderEpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, index)
    if not 0 <= asked.leader_epoch <= LEADER_EPOCH:
        return OffsetForLeaderEpochEndOffset(0, index)
    return OffsetForLeaderEpochEndOffset(0, index, asked.leader_epoch, facts.head)


API: Final = Endpoint(ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5), handle)
