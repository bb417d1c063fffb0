"""CreatePartitions (37), versions 0 to 3.

One answer a topic: a name that stands twice is 42, the same number of partitions or fewer 37.
Assignments are checked and otherwise ignored. `timeout_ms` bounds the request; a growth that was
cut short is finished when it is asked for again, and then it is a success.

Limits: `PARTITIONS_MAX` new partitions a request, beyond which a topic is 44.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.broker.create_topics import check_growth
from lakelog.model.errors import ErrorCode
from lakelog.topics.failures import TooLarge
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic

PARTITIONS_MAX: Final = 100_000


async def handle(
    broker: "Broker", call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Let each topic grow, one after another."""
    deadline = Deadline(broker, call, request.timeout_ms)
    growth = _Growth(broker, validate_only=request.validate_only)
    times = Counter(topic.name for topic in request.topics)
    twice = Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results = [_result(name, twice) for name, count in times.items() if count > 1]
    known = await deadline.attempt(broker.topics.current)
    async for part in broker.loop_turn.parts(request.topics):
        for asked in part:
            if times[asked.name] > 1:
                continue
            topic = broker.topics.cached(asked.name)
            if known is not None:
                results.append(_result(asked.name, known))
            elif topic is None:
                unknown = Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
                results.append(_result(asked.name, unknown))
            else:
                results.append(_result(asked.name, await deadline.attempt(growth.of(topic, asked))))
    return CreatePartitionsResponse(results=tuple(results))


class _Growth:
    """One CreatePartitions request."""

    def __init__(self, broker: "Broker", *, validate_only: bool) -> None:
        self._broker = broker
        self._validate_only = validate_only
        self._partitions = 0

    def of(self, topic: "Topic", asked: CreatePartitionsTopic) -> "Callable[[], Awaitable[Topic]]":
        """The work of letting one topic grow."""

        async def grow() -> "Topic":
            added = asked.count - topic.partition_count
            if added > 0:
                live = {node.id for node in self._broker.cluster.nodes()}
                check_growth(asked.assignments, added=added, live=live)
                if self._partitions + added > PARTITIONS_MAX:
                    raise TooLarge(f"A request makes at most {PARTITIONS_MAX} partitions.")
                self._partitions += added
            return await self._broker.topics.grow(
                topic, asked.count, validate_only=self._validate_only
            )

        return grow


def _result(name: str, outcome: "Topic | Fault") -> CreatePartitionsTopicResult:
    if isinstance(outcome, Fault):
        return CreatePartitionsTopicResult(name, outcome.code, outcome.message)
    return CreatePartitionsTopicResult(name)


API: Final = Endpoint(ApiKey.CREATE_PARTITIONS, range(4), handle)
