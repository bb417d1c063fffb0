"""Metadata (3), versions 0 to 13.

Null topics (v1+) or an empty list (v0) ask for all, an empty list from v1 on for none. Topic ids
are allowed in requests from v12 on; one id makes names be ignored, as in Kafka. Unknown names are
made when the client and the options allow it (v0 to v3 have no flag: allowed), at most
`CREATED_MAX` a request; those that are not ready in time are 5, and the client asks again.
Replicas and in-sync replicas are the leader alone, the epoch is 0, nothing is offline. Operations
are answered when asked for: topics from v8 on, the cluster in v8 to v10. Ignored: nothing.

When the store cannot be read, topics that are known are answered as they are known, and others 5:
"unknown" would be a claim.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.broker.call import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    Call,
    Endpoint,
    controller,
    shown_nodes,
)
from lakelog.broker.errors import Attempt, failure_code
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import LEADER_EPOCH, ZERO_TOPIC_ID, TopicId
from lakelog.topics import failures
from lakelog.topics.failures import TopicFailure
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.routing import RoutingView
    from lakelog.topics.topic import Topic

FIRST_VERSION_BY_ID: Final = 12
FIRST_VERSION_WITH_NULL: Final = 1
CLUSTER_OPERATION_VERSIONS: Final = range(8, 11)
FIRST_VERSION_WITH_OPERATIONS: Final = 8
PROOF_S_MAX: Final = 3.0
CREATED_MAX: Final = 100
CREATION_S_MAX: Final = 10.0
Key = TypeVar("Key", str, bytes)


async def handle(broker: "Broker", call: Call, request: MetadataRequest) -> MetadataResponse:
    """Which brokers there are, and which partitions lead where."""
    if _is_malformed(call.version, request):
        return _refused(request)
    current = await _is_current(broker)
    answers = _Answers(broker, call, request, current=current)
    if _asks_for_all(call.version, request):
        async for part in broker.loop_turn.parts(broker.topics.cached_all()):
            for topic in part:
                await answers.add_topic(topic)
    else:
        await _answer_named(broker, call, request, answers)
    view = answers.view
    asked_cluster = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node.id, node.host, node.port, node.rack)
            for node in shown_nodes(broker, call, view)
        ),
        cluster_id=broker.cluster.cluster_id,
        controller_id=controller(broker, view),
        topics=tuple(answers.topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if asked_cluster and call.version in CLUSTER_OPERATION_VERSIONS
        else NO_OPERATIONS,
    )


def _asks_for_all(version: int, request: MetadataRequest) -> bool:
    return request.topics is None or (version < FIRST_VERSION_WITH_NULL and not request.topics)


def _is_malformed(version: int, request: MetadataRequest) -> bool:
    """A topic by id before v12, or one with neither name nor id."""
    for topic in request.topics or ():
        if topic.name is None and (
            version < FIRST_VERSION_BY_ID or topic.topic_id == ZERO_TOPIC_ID
        ):
            return True
        if topic.topic_id != ZERO_TOPIC_ID and version < FIRST_VERSION_BY_ID:
            return True
    return False


def _refused(request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ),
        error_code=ErrorCode.INVALID_REQUEST,
    )


async def _is_current(broker: "Broker") -> bool:
    """Whether what is known of the topics could be proved current."""
    try:
        async with asyncio.timeout(PROOF_S_MAX):
            await broker.topics.current()
    except (Failure, TimeoutError):  # known topics are served all the same
        return False
    return True


async def _answer_named(
    broker: "Broker", call: Call, request: MetadataRequest, answers: "_Answers"
) -> None:
    asked = request.topics or ()
    ids = _unique(topic.topic_id for topic in asked if topic.topic_id != ZERO_TOPIC_ID)
    if ids:
        async for some_ids in broker.loop_turn.parts(ids):
            for topic_id in some_ids:
                await answers.add_id(TopicId(topic_id))
        return
    wanted = _unique(topic.name for topic in asked if topic.name is not None)
    if request.allow_auto_topic_creation:
        answers.faults.update(await create_missing(broker, wanted))
    async for some_names in broker.loop_turn.parts(wanted):
        for name in some_names:
            await answers.add_name(name)


async def create_missing(broker: "Broker", wanted: Sequence[str]) -> dict[str, ErrorCode]:
    """Make the topics that are not there, if that is allowed; what could not be made, and why."""
    if not broker.options.auto_create_topics:
        return {}
    missing = [
        name
        async for part in broker.loop_turn.parts(wanted)
        for name in part
        if _may_be_made(broker, name)
    ]
    faults = dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)

    async def make(name: str) -> None:
        try:
            await broker.topics.ensure(
                name,
                partitions=broker.options.num_partitions,
                replication_factor=broker.options.default_replication_factor,
            )
        except TopicFailure as failure:
            faults[name] = failure.code
        except Failure as failure:
            faults[name] = failure_code(failure, Attempt.READING)
        else:
            del faults[name]

    try:
        async with asyncio.timeout(CREATION_S_MAX), asyncio.TaskGroup() as crowd:
            for name in missing[:CREATED_MAX]:
                crowd.create_task(make(name))
    except TimeoutError:
        pass  # what is being made will be there when the client asks again
    return faults


def _may_be_made(broker: "Broker", name: str) -> bool:
    return (
        broker.topics.cached(name) is None
        and failures.name_fault(name) is None
        and name not in failures.INTERNAL
        and name != failures.CLUSTER_METADATA
    )


class _Answers:
    """The topics of one answer, in the order they were asked for."""

    def __init__(
        self, broker: "Broker", call: Call, request: MetadataRequest, *, current: bool
    ) -> None:
        self.view: RoutingView = broker.cluster.view(call.client_id)
        self.topics: list[MetadataResponseTopic] = []
        self.faults: dict[str, ErrorCode] = {}
        self._known = broker.topics
        self._current = current
        self._turn = broker.loop_turn
        asked = request.include_topic_authorized_operations
        wanted = asked and call.version >= FIRST_VERSION_WITH_OPERATIONS
        self._operations = TOPIC_OPERATIONS if wanted else NO_OPERATIONS

    async def add_name(self, name: str) -> None:
        """What is to be said of a topic by that name."""
        topic = self._known.cached(name)
        if topic is not None:
            await self.add_topic(topic)
            return
        self.topics.append(
            MetadataResponseTopic(
                error_code=self._missing_code(name),
                name=name,
                is_internal=name in failures.INTERNAL,
                topic_authorized_operations=self._operations,
            )
        )

    async def add_id(self, topic_id: TopicId) -> None:
        """What is to be said of a topic with that id."""
        topic = self._known.cached_id(topic_id)
        if topic is not None:
            await self.add_topic(topic)
            return
        missing = ErrorCode.UNKNOWN_TOPIC_ID if self._current else ErrorCode.LEADER_NOT_AVAILABLE
        self.topics.append(MetadataResponseTopic(error_code=missing, name=None, topic_id=topic_id))

    async def add_topic(self, topic: "Topic") -> None:
        """A topic with all its partitions."""
        self.topics.append(
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.id,
                is_internal=topic.name in failures.INTERNAL,
                partitions=await self._partitions(topic),
                topic_authorized_operations=self._operations,
            )
        )

    def _missing_code(self, name: str) -> ErrorCode:
        if failures.name_fault(name) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if not self._current:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return self.faults.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def _partitions(self, topic: "Topic") -> tuple[MetadataResponsePartition, ...]:
        found: list[MetadataResponsePartition] = []
        async for leaders in self._turn.parts(self.view.partition_leaders(topic)):
            for leader in leaders:
                alone = (leader,)
                found.append(
                    MetadataResponsePartition(0, len(found), leader, LEADER_EPOCH, alone, alone)
                )
        return tuple(found)


def _unique(keys: Iterable[Key]) -> list[Key]:
    return list(dict.fromkeys(keys))


API: Final = Endpoint(ApiKey.METADATA, range(14), handle)
