"""DescribeConfigs (32), versions 1 to 4.

Null and empty keys ask for all; keys that are unknown are left out. Topics have Kafka's configs and
ours, with their source; a broker describes itself (its id, or "" for what was altered for all
brokers), other ids are 42. Groups have their own configs or defaults, whether there is such
a group or not; loggers and client metrics have nothing to show. Synonyms go out when asked for,
types and documentation from v3 on.

Limit: an answer has about `ANSWER_BYTES_MAX`, and what does not fit is 44.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from lakelog.broker.call import Call, Deadline, Endpoint, Fault
from lakelog.broker.config_resources import (
    ConfigEntry,
    ResourceType,
    broker_entries,
    default_entries,
    group_entries,
)
from lakelog.model.errors import ErrorCode
from lakelog.topics import failures
from lakelog.topics.failures import InvalidChange, TooLarge, TopicFailure
from lakelog.topics.settings import described
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

Shown: TypeAlias = tuple[DescribeConfigsResourceResult, ...]
Key: TypeAlias = tuple[object, ...]

ANSWER_BYTES_MAX: Final = 24 << 20
ENTRY_BYTES: Final = 16
"""What an entry or a synonym takes beside its texts, about."""


async def handle(
    broker: "Broker", call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """The configs of each resource."""
    kinds = {asked.resource_type for asked in request.resources}
    deadline = Deadline(broker, call)
    stale: dict[int, Fault | None] = {}
    altered = await deadline.attempt(broker.broker_configs.current)  # all others stand on these
    stale[ResourceType.BROKER] = altered
    if ResourceType.TOPIC in kinds:
        stale[ResourceType.TOPIC] = await deadline.attempt(broker.topics.current)
    if ResourceType.GROUP in kinds:
        stale[ResourceType.GROUP] = await deadline.attempt(broker.group_configs.current)
    description = _Description(broker, request, stale)
    results = []
    async for part in broker.loop_turn.parts(request.resources):
        results += [description.of(asked) for asked in part]
    return DescribeConfigsResponse(results=tuple(results))


class _Description:
    """One DescribeConfigs request; resources with the same configs share what is shown."""

    def __init__(
        self, broker: "Broker", request: DescribeConfigsRequest, stale: Mapping[int, Fault | None]
    ) -> None:
        self._broker = broker
        self._synonyms = request.include_synonyms
        self._documentation = request.include_documentation
        self._stale = stale
        self._shown: dict[Key, tuple[Shown, int]] = {}
        self._size_bytes = 0

    def of(self, asked: DescribeConfigsResource) -> DescribeConfigsResult:
        """What is to be said of one resource."""
        try:
            found = self._entries(asked)
        except TopicFailure as failure:
            found = Fault(failure.code, str(failure))
        if isinstance(found, Fault):
            return DescribeConfigsResult(
                found.code, found.message, asked.resource_type, asked.resource_name
            )
        return DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name, configs=found
        )

    def _entries(self, asked: DescribeConfigsResource) -> Shown | Fault:
        keys = frozenset(asked.configuration_keys or ())
        match asked.resource_type:
            case ResourceType.TOPIC:
                return self._topic(asked.resource_name, keys)
            case ResourceType.BROKER:
                return self._of_broker(asked.resource_name, keys)
            case ResourceType.BROKER_LOGGER:
                _check_named(asked.resource_name, "Broker id must not be empty")
                self._check_own_id(asked.resource_name, "")
                return ()
            case ResourceType.CLIENT_METRICS:
                missing = "Client metrics subscription name must not be empty"
                _check_named(asked.resource_name, missing)
                return ()
            case ResourceType.GROUP:
                _check_named(asked.resource_name, "Group name must not be empty")
                return self._group(asked.resource_name, keys)
            case _:
                raise InvalidChange(f"Unknown resource type {asked.resource_type}")

    def _topic(self, name: str, keys: frozenset[str]) -> Shown | Fault:
        failures.check_name(name)
        stale = self._stale[ResourceType.TOPIC]
        if stale is not None:
            return stale
        topic = self._broker.topics.cached(name)
        if topic is None:
            return Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        entries = [
            ConfigEntry(
                found.definition.name,
                found.value,
                found.definition.type,
                found.source,
                found.definition.documentation,
                found.synonyms,
            )
            for found in described(topic.configs, self._broker.topics.layers)
        ]
        return self._show((*sorted(topic.configs.items()), keys), entries, keys)

    def _of_broker(self, name: str, keys: frozenset[str]) -> Shown | Fault:
        if name:  # what it knows is what is in effect here, also while the store is down
            self._check_own_id(name, " or empty string")
            return self._show(("broker", keys), broker_entries(self._broker), keys)
        stale = self._stale[ResourceType.BROKER]
        if stale is not None:
            return stale
        return self._show(("brokers", keys), default_entries(self._broker.broker_configs), keys)

    def _group(self, group_id: str, keys: frozenset[str]) -> Shown | Fault:
        stale = self._stale[ResourceType.GROUP]
        if stale is not None:
            return stale
        configs = self._broker.group_configs
        own = configs.own(group_id)
        layers = self._broker.broker_configs.layers()
        entries = group_entries(own, configs.defaults, layers)
        return self._show(("group", *sorted(own.items()), keys), entries, keys)

    def _check_own_id(self, name: str, alternative: str) -> None:
        own = self._broker.node_id
        if name != str(own):
            raise InvalidChange(
                f"Unexpected broker id, expected {own}{alternative}, but received {name}"
            )

    def _show(self, key: Key, entries: Sequence[ConfigEntry], keys: frozenset[str]) -> Shown:
        if key not in self._shown:
            shown = tuple(self._one(entry) for entry in entries if not keys or entry.name in keys)
            self._shown[key] = shown, sum(map(_size_bytes, shown))
        found, size_bytes = self._shown[key]
        if self._size_bytes + size_bytes > ANSWER_BYTES_MAX:
            raise TooLarge("The answer would be too large: ask for fewer resources at a time.")
        self._size_bytes += size_bytes
        return found

    def _one(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms = entry.synonyms if self._synonyms else ()
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            synonyms=tuple(
                DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source)
                for synonym in synonyms
            ),
            config_type=entry.type,
            documentation=entry.documentation if self._documentation else None,
        )


def _check_named(name: str, message: str) -> None:
    if not name:
        raise InvalidChange(message)


def _size_bytes(shown: DescribeConfigsResourceResult) -> int:
    texts = [shown.name, shown.value or "", shown.documentation or ""]
    for synonym in shown.synonyms:
        texts += [synonym.name, synonym.value or ""]
    return sum(map(len, texts)) + ENTRY_BYTES * (1 + len(shown.synonyms))


API: Final = Endpoint(ApiKey.DESCRIBE_CONFIGS, range(1, 5), handle)
