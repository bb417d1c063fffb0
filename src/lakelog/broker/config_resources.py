"""What configs belong to: the kinds of resources, and the configs of a broker and of a group.

A broker's configs are what tools read to know how it is set up. Some can be altered while it runs
(see `topics.broker_configs`); the others are set in its configuration file, or fixed, and
read-only. A group's are what it sets itself, then what holds for all groups.

What AlterConfigs and IncrementalAlterConfigs share is here, too: which resources can be altered,
and how. Topics, groups and brokers can: groups whether they are there or not; of brokers this one
or, without a name, all together. Loggers and client metrics have no configs that are kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from lakelog.broker.call import Call, Deadline, Fault
from lakelog.broker.describe_topic_partitions import PARTITIONS_MAX
from lakelog.broker.fetch import RESPONSE_BYTES_MAX
from lakelog.broker.fetch_sessions import SESSIONS_MAX
from lakelog.groups.state import GroupSettings
from lakelog.model.errors import ErrorCode
from lakelog.topics import failures
from lakelog.topics.broker_configs import ALL_BROKERS
from lakelog.topics.broker_configs import DEFINITIONS as BROKER_DEFINITIONS
from lakelog.topics.config_values import ConfigSource, ConfigType, show
from lakelog.topics.configs import Definition
from lakelog.topics.failures import InvalidChange, NoSuchTopic
from lakelog.topics.group_configs import DEFINITIONS as GROUP_DEFINITIONS
from lakelog.topics.group_configs import default_values
from lakelog.topics.settings import ConfigLayer, Synonym, settings
from lakelog.wire.framing import REQUEST_LIMITS

if TYPE_CHECKING:
    from lakelog.broker.call import Broker, BrokerOptions
    from lakelog.topics.broker_configs import BrokerConfigs


class ResourceType(IntEnum):
    """The kind of a resource as requests number it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config as DescribeConfigs shows it."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    read_only: bool = False


FRAME_BYTES_MAX: Final = max(REQUEST_LIMITS.size_max_by_api.values())
_B, _S, _I = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT


def broker_entries(broker: "Broker") -> list[ConfigEntry]:
    """The configs of this broker, by name."""
    layers = broker.broker_configs.layers()
    found = [*_identity(broker), *_choices(broker.options), *_LIMITS]
    found += _of_groups(broker.group_configs.defaults).values()
    found += (_altered(definition, layers) for definition in BROKER_DEFINITIONS.values())
    return sorted(found, key=lambda entry: entry.name)


def default_entries(configs: "BrokerConfigs") -> list[ConfigEntry]:
    """What was altered for all brokers, by name, and nothing else, as in Kafka."""
    _, for_all = configs.altered()
    set_for_all = [BROKER_DEFINITIONS[name] for name in sorted(for_all.configs)]
    found = [_altered(definition, (for_all,)) for definition in set_for_all]
    return [replace(entry, synonyms=entry.synonyms[:1]) for entry in found]


def group_entries(
    own: Mapping[str, str], defaults: GroupSettings, layers: Sequence[ConfigLayer]
) -> list[ConfigEntry]:
    """The configs of a group with these of its own, by name; whether it is there or not."""
    chosen = _of_groups(defaults)
    found = []
    for name, definition in GROUP_DEFINITIONS.items():
        assert definition.broker_name is not None, name
        if definition.broker_name in chosen:
            synonyms = chosen[definition.broker_name].synonyms
        else:
            synonyms = _altered(BROKER_DEFINITIONS[definition.broker_name], layers).synonyms
        if name in own:
            synonyms = (Synonym(name, own[name], ConfigSource.GROUP), *synonyms)
        first = synonyms[0]
        found.append(
            ConfigEntry(
                name,
                first.value,
                definition.type,
                first.source,
                definition.documentation,
                synonyms,
            )
        )
    return found


def _identity(broker: "Broker") -> list[ConfigEntry]:
    own = next((node for node in broker.cluster.nodes() if node.id == broker.node_id), None)
    listener = f"PLAINTEXT://{own.host}:{own.port}" if own is not None else None
    identity = str(broker.node_id)
    return [
        _set("node.id", identity, _I, "The number of this broker."),
        _set("broker.id", identity, _I, "The number of this broker."),
        _set("broker.rack", own.rack if own is not None else None, _S, "The broker's zone."),
        _set("process.roles", "broker", ConfigType.LIST, "What this process does."),
        _set("listeners", listener, _S, "Where this broker listens."),
        _set(
            "advertised.listeners",
            listener if own is not None and own.advertised else None,
            _S,
            "Where clients are sent; without it, the address that a client reached us by.",
        ),
        _set("log.dirs", broker.log.url, _S, "The object store that holds all records."),
    ]


def _choices(options: "BrokerOptions") -> list[ConfigEntry]:
    return [
        _chosen(
            "auto.create.topics.enable",
            options.auto_create_topics,
            True,
            "Whether asking for an unknown topic makes it.",
        ),
        _chosen(
            "num.partitions",
            options.num_partitions,
            1,
            "The partitions of a topic that is made without saying how many.",
        ),
        _chosen(
            "default.replication.factor",
            options.default_replication_factor,
            1,
            "The replication factor that a topic is said to have when nobody asked for another.",
        ),
    ]


def _set(name: str, value: str | None, kind: ConfigType, documentation: str) -> ConfigEntry:
    source = ConfigSource.DEFAULT if value is None else ConfigSource.STATIC
    synonyms = () if value is None else (Synonym(name, value, source),)
    return ConfigEntry(name, value, kind, source, documentation, synonyms, read_only=True)


def _chosen(name: str, value: bool | int, default: bool | int, documentation: str) -> ConfigEntry:
    """A config that has a default; a value other than it was set by the operator."""
    fallback = Synonym(name, show(default), ConfigSource.DEFAULT)
    synonyms: tuple[Synonym, ...] = (fallback,)
    if value != default:
        synonyms = (Synonym(name, show(value), ConfigSource.STATIC), fallback)
    kind = _B if isinstance(value, bool) else _I
    first = synonyms[0]
    return ConfigEntry(
        name, first.value, kind, first.source, documentation, synonyms, read_only=True
    )


_LIMITS: Final = tuple(
    _chosen(name, value, value, documentation)
    for name, value, documentation in (
        ("delete.topic.enable", True, "Topics can be deleted."),
        ("fetch.max.bytes", RESPONSE_BYTES_MAX, "The largest answer to a fetch."),
        ("log.retention.hours", 168, "Superseded by log.retention.ms."),
        (
            "max.incremental.fetch.session.cache.slots",
            SESSIONS_MAX,
            "The fetch sessions that are kept.",
        ),
        (
            "max.request.partition.size.limit",
            PARTITIONS_MAX,
            "The partitions on one page of DescribeTopicPartitions.",
        ),
        ("socket.request.max.bytes", FRAME_BYTES_MAX, "The largest request."),
    )
)


def _of_groups(defaults: GroupSettings) -> dict[str, ConfigEntry]:
    """What the options say for all groups, by the broker's names, and nobody can alter."""
    chosen = default_values(defaults)
    found = {}
    for name, definition in GROUP_DEFINITIONS.items():
        above = definition.broker_name
        if above is not None and above not in BROKER_DEFINITIONS:
            assert isinstance(definition.default, int), name
            found[above] = _chosen(
                above, chosen[name], definition.default, definition.documentation
            )
    return found


def _altered(definition: Definition, layers: Sequence[ConfigLayer]) -> ConfigEntry:
    """A config that can be altered: where it is set, the nearest first, then its default."""
    name = definition.name
    synonyms = [
        Synonym(name, layer.configs[name], layer.source)
        for layer in layers
        if name in layer.configs
    ]
    if definition.broker_default:
        synonyms.append(Synonym(name, show(definition.default), ConfigSource.DEFAULT))
    return ConfigEntry(
        name,
        synonyms[0].value if synonyms else None,
        definition.type,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        definition.documentation,
        tuple(synonyms),
    )


Alteration = Callable[[Mapping[str, str]], dict[str, str]]
"""From the own configs of a resource to what they shall be."""

NAME_SHOWN: Final = 100
"""How many characters of a wrong name are repeated."""

TWICE: Final = Fault(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
_FIXED: Final = {
    ResourceType.BROKER_LOGGER: "The loggers of a broker are set in its configuration file.",
    ResourceType.CLIENT_METRICS: "Client metrics are not served.",
}


def check_names(written: Iterable[tuple[str, str | None]]) -> None:
    """Refuse a config that stands twice, or that has no value."""
    pairs = list(written)
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidChange("Error due to duplicate config keys")
    unset = [name for name, value in pairs if value is None]
    if unset:
        raise InvalidChange(f"Null value not supported for : {', '.join(unset)}")


class AlterableResource(Protocol):
    """A resource as the requests name it."""

    @property
    def resource_type(self) -> int:
        """Its kind, a `ResourceType` if there is such."""

    @property
    def resource_name(self) -> str:
        """Which of that kind."""


ResourceT = TypeVar("ResourceT", bound=AlterableResource)
ResponseT = TypeVar("ResponseT")


async def alter_each(
    broker: "Broker",
    call: Call,
    resources: Sequence[ResourceT],
    alteration_of: Callable[[ResourceT], Alteration],
    *,
    response: Callable[..., ResponseT],
    validate_only: bool,
) -> tuple[ResponseT, ...]:
    """Alter the resources of a request, each by itself, and answer for each."""
    deadline = Deadline(broker, call)
    stale = await deadline.attempt(broker.topics.current)
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses = []
    async for part in broker.loop_turn.parts(resources):
        for resource in part:
            named = (resource.resource_type, resource.resource_name)
            fault = TWICE if times[named] > 1 else stale
            if fault is None:
                alteration = alteration_of(resource)
                fault = await _alter(
                    broker, deadline, named, alteration, validate_only=validate_only
                )
            responses.append(
                response(
                    error_code=ErrorCode.NONE if fault is None else fault.code,
                    error_message=None if fault is None else fault.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    return tuple(responses)


async def _alter(
    broker: "Broker",
    deadline: Deadline,
    resource: tuple[int, str],
    alteration: Alteration,
    *,
    validate_only: bool,
) -> Fault | None:
    """Alter the configs of one resource; the fault to answer, or None."""

    async def work() -> None:
        kind, name = resource
        if kind == ResourceType.BROKER:
            await _alter_broker(broker, name, alteration, validate_only=validate_only)
            return
        if kind not in {ResourceType.TOPIC, ResourceType.GROUP}:
            known = [fixed for fixed in _FIXED if fixed == kind]
            raise InvalidChange(_FIXED[known[0]] if known else f"Unknown resource type {kind}")
        if not name:
            noun = ResourceType(kind).name.lower()
            raise InvalidChange(f"Default {noun} resources are not allowed.")
        if kind == ResourceType.GROUP:
            await broker.group_configs.alter(name, alteration, validate_only=validate_only)
            return
        await _alter_topic(broker, name, alteration, validate_only=validate_only)

    return await deadline.attempt(work)


async def _alter_broker(
    broker: "Broker", name: str, alteration: Alteration, *, validate_only: bool
) -> None:
    if name not in (ALL_BROKERS, str(broker.node_id)):
        raise InvalidChange(
            f"Unexpected broker id, expected {broker.node_id}, but received {name[:NAME_SHOWN]}"
        )
    await broker.broker_configs.alter(name, alteration, validate_only=validate_only)


async def _alter_topic(
    broker: "Broker", name: str, alteration: Alteration, *, validate_only: bool
) -> None:
    failures.check_name(name)
    topic = broker.topics.cached(name)
    if topic is None:
        settings(alteration({}))  # as in Kafka, a wrong config is worse than a wrong topic
        raise NoSuchTopic(f"The topic '{name}' does not exist.")
    await broker.topics.alter(topic, alteration, validate_only=validate_only)
