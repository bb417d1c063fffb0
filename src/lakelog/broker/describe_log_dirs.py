"""DescribeLogDirs (35), versions 1 to 5.

Tools ask every broker and add up, so each reports the partitions that lead here in this client's
view, and all brokers together report each once (row 73). The one log directory is the object store;
its size is not known (-1). Null topics mean all, an empty list none; what is unknown is left out.
Sizes are the bytes of records that are still in the log.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.routing import RoutingView
    from lakelog.topics.topic import Topic


async def handle(
    broker: "Broker", call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """How much the partitions that lead here hold."""
    known = await Deadline(broker, call).attempt(broker.topics.current)
    if isinstance(known, Fault):
        failed = DescribeLogDirsResult(error_code=known.code, log_dir=broker.log.url)
        return DescribeLogDirsResponse(results=(failed,))
    topics = []
    view = broker.cluster.view(call.client_id)
    async for part in broker.loop_turn.parts(_asked(broker, request)):
        for topic, partitions in part:
            found = await _sizes(broker, view, topic, partitions)
            if found:
                topics.append(DescribeLogDirsTopic(topic.name, found))
    result = DescribeLogDirsResult(log_dir=broker.log.url, topics=tuple(topics))
    return DescribeLogDirsResponse(results=(result,))


def _asked(
    broker: "Broker", request: DescribeLogDirsRequest
) -> "list[tuple[Topic, Sequence[int]]]":
    if request.topics is None:
        return [(topic, range(topic.partition_count)) for topic in broker.topics.cached_all()]
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    found = ((broker.topics.cached(name), list(some)) for name, some in wanted.items())
    return [(topic, partitions) for topic, partitions in found if topic is not None]


async def _sizes(
    broker: "Broker", view: "RoutingView", topic: "Topic", partitions: Sequence[int]
) -> tuple[DescribeLogDirsPartition, ...]:
    found = []
    leaders = view.partition_leaders(topic)
    async for part in broker.loop_turn.parts(partitions):
        for partition in part:
            stream = topic.stream(partition)
            if stream is not None and leaders[partition] == broker.node_id:
                facts = broker.log.facts(stream)
                size_bytes = 0 if facts is None else facts.live_bytes
                found.append(DescribeLogDirsPartition(partition, size_bytes))
    return tuple(found)


API: Final = Endpoint(ApiKey.DESCRIBE_LOG_DIRS, range(1, 6), handle)
