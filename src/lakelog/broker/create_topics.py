"""CreateTopics (19), versions 2 to 7.

From v5 on the answer holds the partitions, the replication factor and every config in effect; ids
go out from v7 on. Any replication factor from 1 on is accepted and reported as asked (Connect,
Schema Registry and Streams ask for 3): the object store replicates. Assignments are checked and
otherwise ignored. A name that stands twice gets one answer, 42. `timeout_ms` bounds the request;
what is not made by then is 7 and may come to be nevertheless, as in Kafka.

Limits: `TOPICS_MAX` topics and `PARTITIONS_MAX` partitions a request, beyond which a topic is 44.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.model.errors import ErrorCode
from lakelog.topics import failures
from lakelog.topics.failures import (
    InvalidAssignment,
    InvalidChange,
    InvalidConfig,
    TooLarge,
)
from lakelog.topics.settings import described
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.create_partitions import CreatePartitionsAssignment
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker
    from lakelog.topics.topic import Topic


def check_replicas(replicas: Iterable[Sequence[int]], live: Collection[int]) -> int:
    """The number of replicas that all partitions have; raises `InvalidAssignment`."""
    size = 0
    for brokers in replicas:
        if not brokers:
            raise InvalidAssignment(
                "The manual partition assignment includes an empty replica list."
            )
        ordered = sorted(brokers)
        for place, broker in enumerate(ordered):
            if broker not in live:
                raise InvalidAssignment(
                    f"The manual partition assignment includes broker {broker}, but no such"
                    " broker is registered."
                )
            if place and ordered[place - 1] == broker:
                raise InvalidAssignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
        if size and len(brokers) != size:
            raise InvalidAssignment(
                f"The manual partition assignment includes a partition with {len(brokers)}"
                " replica(s), but this is not consistent with previous partitions, which have"
                f" {size} replica(s)."
            )
        size = len(brokers)
    return size


def check_topic(topic: CreatableTopic, live: Collection[int]) -> tuple[int, int]:
    """The partitions and the replication factor that a new topic's assignment amounts to."""
    if topic.replication_factor != -1:
        raise InvalidChange(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.num_partitions != -1:
        raise InvalidChange(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    partitions: set[int] = set()
    for assignment in topic.assignments:
        if assignment.partition_index in partitions:
            raise InvalidAssignment(
                "Found multiple manual partition assignments for partition"
                f" {assignment.partition_index}"
            )
        partitions.add(assignment.partition_index)
    replicas = check_replicas((found.broker_ids for found in topic.assignments), live)
    if partitions != set(range(len(partitions))):
        raise InvalidAssignment("partitions should be a consecutive 0-based integer sequence")
    return len(partitions), replicas


def check_growth(
    assignments: Sequence[CreatePartitionsAssignment] | None,
    *,
    added: int,
    live: Collection[int],
) -> None:
    """Raises `InvalidAssignment` unless the new partitions are assigned one by one.

    The number of replicas is not compared with the topic's, which is only what somebody asked for.
    """
    if assignments is None:
        return
    if len(assignments) != added:
        raise InvalidAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(assignments)}"
            " assignment(s) were specified."
        )
    check_replicas((assignment.broker_ids for assignment in assignments), live)


TOPICS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 100_000
UNSET: Final = -1


async def handle(
    broker: "Broker", call: Call, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Make each topic, one after another."""
    deadline = Deadline(broker, call, request.timeout_ms)
    creation = _Creation(broker, validate_only=request.validate_only)
    times = Counter(topic.name for topic in request.topics)
    results = []
    async for part in broker.loop_turn.parts(request.topics):
        for topic in part:
            if times[topic.name] == 1:
                outcome = await deadline.attempt(creation.of(topic))
                results.append(creation.result(topic.name, outcome))
    twice = Fault(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results.extend(creation.result(name, twice) for name, count in times.items() if count > 1)
    return CreateTopicsResponse(topics=tuple(results))


class _Creation:
    """One CreateTopics request."""

    def __init__(self, broker: "Broker", *, validate_only: bool) -> None:
        self._broker = broker
        self._validate_only = validate_only
        self._topics = 0
        self._partitions = 0
        self._shown: dict[tuple[tuple[str, str], ...], tuple[CreatableTopicConfigs, ...]] = {}

    def of(self, asked: CreatableTopic) -> "Callable[[], Awaitable[Topic]]":
        """The work of making one topic."""

        async def make() -> "Topic":
            if asked.name == failures.CLUSTER_METADATA:
                raise InvalidChange(
                    f"Creation of internal topic {failures.CLUSTER_METADATA} is prohibited."
                )
            failures.check_name(asked.name)
            configs = _configs(asked)
            partitions, replication_factor = self._shape(asked)
            return await self._broker.topics.create(
                asked.name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=self._validate_only,
            )

        return make

    def result(self, name: str, outcome: "Topic | Fault") -> CreatableTopicResult:
        """What became of one topic."""
        if isinstance(outcome, Fault):
            return CreatableTopicResult(
                name=name, error_code=outcome.code, error_message=outcome.message
            )
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.id,
            error_message=None,
            num_partitions=outcome.partition_count,
            replication_factor=outcome.replication_factor,
            configs=self._shown_configs(outcome.configs),
        )

    def _shape(self, asked: CreatableTopic) -> tuple[int, int]:
        """Partitions and replication factor, within what one request may ask for."""
        options = self._broker.options
        if asked.assignments:
            live = {node.id for node in self._broker.cluster.nodes()}
            partitions, replication_factor = check_topic(asked, live)
        else:
            partitions, replication_factor = asked.num_partitions, asked.replication_factor
            if replication_factor == UNSET:
                replication_factor = options.default_replication_factor
            if partitions == UNSET:
                partitions = options.num_partitions
        together = self._partitions + max(partitions, 0)
        if self._topics == TOPICS_MAX or together > PARTITIONS_MAX:
            raise TooLarge(
                f"A request makes at most {TOPICS_MAX} topics with {PARTITIONS_MAX} partitions"
                " altogether."
            )
        self._topics += 1
        self._partitions = together
        return partitions, replication_factor

    def _shown_configs(self, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        """The configs in effect; topics with the same configs of their own share them."""
        key = tuple(sorted(configs.items()))
        if key not in self._shown:
            self._shown[key] = tuple(
                CreatableTopicConfigs(
                    name=found.definition.name, value=found.value, config_source=found.source
                )
                for found in described(configs, self._broker.topics.layers)
            )
        return self._shown[key]


def _configs(asked: CreatableTopic) -> dict[str, str]:
    unset = [config.name for config in asked.configs if config.value is None]
    if unset:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(unset)}")
    return {config.name: config.value for config in asked.configs if config.value is not None}


API: Final = Endpoint(ApiKey.CREATE_TOPICS, range(2, 8), handle)
