"""DescribeLogDirs (35), versions 1 to 5.

Tools ask every broker and add up, so each reports the partitions that lead here in this client's
view, and all brokers together report each once (row 73). The one log directory is the object store;
its size is not known (-1). Null topics mean all, an empty list none; what is unknown is left out.
Sizes are the bytes of records that are still in the log.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lakelog.broker.administration import Deadline, Fault
from lakelog.broker.call import Call
from lakelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.topics.routing import View
    from lakelog.topics.topic import Topic

PARTITIONS_PER_TURN: Final = 2_000
"""So many partitions are looked up before others get their turn."""


async def handle(
    broker: "Broker", call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """How much the partitions that lead here hold."""
    known = await Deadline(broker, call).attempt(broker.topics.current)
    if isinstance(known, Fault):
        failed = DescribeLogDirsResult(error_code=known.code, log_dir=broker.log.url)
        return DescribeLogDirsResponse(results=(failed,))
    topics = []
    for topic, partitions in _asked(broker, request):
        found = await _sizes(broker, broker.cluster.view(call.client_id), topic, partitions)
        if found:
            topics.append(DescribeLogDirsTopic(topic.name, found))
    result = DescribeLogDirsResult(log_dir=broker.log.url, topics=tuple(topics))
    return DescribeLogDirsResponse(results=(result,))


def _asked(
    broker: "Broker", request: DescribeLogDirsRequest
) -> "Iterable[tuple[Topic, Iterable[int]]]":
    if request.topics is None:
        for topic in broker.topics.cached_all():
            yield topic, range(topic.partition_count)
        return
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.topic, {}).update(dict.fromkeys(asked.partitions))
    for name, partitions in wanted.items():
        found = broker.topics.cached(name)
        if found is not None:
            yield found, partitions


async def _sizes(
    broker: "Broker", view: "View", topic: "Topic", partitions: Iterable[int]
) -> tuple[DescribeLogDirsPartition, ...]:
    found = []
    for number, partition in enumerate(partitions, 1):
        stream = topic.stream(partition)
        if stream is not None and view.leader(stream) == broker.node_id:
            facts = broker.log.facts(stream)
            size_bytes = 0 if facts is None else facts.live_bytes
            found.append(DescribeLogDirsPartition(partition, size_bytes))
        if number % PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    return tuple(found)
