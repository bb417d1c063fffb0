"""DescribeTopicPartitions (75), version 0.

An empty list asks for all topics. Topics come sorted by name, at most `PARTITIONS_MAX` partitions
(fewer if asked, one at least), and the cursor names the first partition that is not shown. A cursor
whose topic is not in the list, or with a negative partition, is 42. Unknown topics count nothing
towards the limit. Operations are always filled in. Ignored: nothing.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.call import TOPIC_OPERATIONS, Call, Deadline, Endpoint, Fault
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import LEADER_EPOCH
from lakelog.topics import failures
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.routing import RoutingView
    from lakelog.topics.topic import Topic

PARTITIONS_MAX: Final = 2_000


async def handle(
    broker: "Broker", call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page of topics and partitions."""
    if _is_misplaced(request):
        return _refused(request, ErrorCode.INVALID_REQUEST)
    known = await Deadline(broker, call).attempt(broker.topics.current)
    if isinstance(known, Fault):
        return _refused(request, known.code)
    view = broker.cluster.view(call.client_id)
    page = _Page(view, request)
    async for names_part in broker.loop_turn.parts(_wanted(broker, request)):
        for name in names_part:
            page.add(name, broker.topics.cached(name))
            if page.cursor is not None:
                return page.response()
    return page.response()


class _Page:
    """One page of an answer, as far as it is made."""

    def __init__(self, view: "RoutingView", request: DescribeTopicPartitionsRequest) -> None:
        self._view = view
        self._request = request
        self._left = max(min(request.response_partition_limit, PARTITIONS_MAX), 1)
        self._topics: list[DescribeTopicPartitionsResponseTopic] = []
        self.cursor: DescribeTopicPartitionsResponseCursor | None = None

    def add(self, name: str, topic: "Topic | None") -> None:
        """The next topic; what does not fit is where the next page begins."""
        if self._left == 0:
            self.cursor = DescribeTopicPartitionsResponseCursor(name, 0)
        elif topic is None:
            self._topics.append(_unknown(name))
        else:
            start = _start(self._request, name)
            end = min(topic.partition_count, start + self._left)
            self._topics.append(_shown(topic, self._view, start, end))
            if end < topic.partition_count:
                self.cursor = DescribeTopicPartitionsResponseCursor(name, end)
            self._left -= max(end - start, 0)

    def response(self) -> DescribeTopicPartitionsResponse:
        """The page as it is sent."""
        return DescribeTopicPartitionsResponse(topics=tuple(self._topics), next_cursor=self.cursor)


def _is_misplaced(request: DescribeTopicPartitionsRequest) -> bool:
    cursor = request.cursor
    if cursor is None:
        return False
    listed = any(topic.name == cursor.topic_name for topic in request.topics)
    return cursor.partition_index < 0 or (bool(request.topics) and not listed)


def _wanted(broker: "Broker", request: DescribeTopicPartitionsRequest) -> list[str]:
    first = "" if request.cursor is None else request.cursor.topic_name
    if request.topics:
        return sorted({topic.name for topic in request.topics if topic.name >= first})
    return [topic.name for topic in broker.topics.cached_all() if topic.name >= first]


def _start(request: DescribeTopicPartitionsRequest, name: str) -> int:
    cursor = request.cursor
    return cursor.partition_index if cursor is not None and cursor.topic_name == name else 0


def _refused(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name)
            for topic in request.topics
        )
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    bad = failures.name_fault(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
        if bad
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        name=name,
        is_internal=name in failures.INTERNAL,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _shown(
    topic: "Topic", view: "RoutingView", start: int, end: int
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    leaders = view.partition_leaders(topic)
    for partition in range(start, end):
        leader = leaders[partition]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition,
                leader_id=leader,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=(leader,),
                isr_nodes=(leader,),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in failures.INTERNAL,
        partitions=tuple(partitions),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


API: Final = Endpoint(ApiKey.DESCRIBE_TOPIC_PARTITIONS, range(1), handle)
