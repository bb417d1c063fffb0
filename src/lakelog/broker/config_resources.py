"""What configs belong to: the kinds of resources, and the configs of a broker and of a group.

A broker's configs are what tools read to know how it is set up. Some can be altered while it runs
(see `topics.broker_configs`); the others are set in its configuration file, or fixed, and
read-only. A group's are what it sets itself, then what holds for all groups.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker.describe_topic_partitions import PARTITIONS_MAX
from lakelog.broker.fetch import RESPONSE_BYTES_MAX
from lakelog.broker.fetch_sessions import SESSIONS_MAX
from lakelog.groups.state import GroupSettings
from lakelog.topics.broker_configs import DEFINITIONS as BROKER_DEFINITIONS
from lakelog.topics.config_values import ConfigSource, ConfigType, show
from lakelog.topics.configs import Definition
from lakelog.topics.group_configs import DEFINITIONS as GROUP_DEFINITIONS
from lakelog.topics.group_configs import default_values
from lakelog.topics.settings import ConfigLayer, Synonym
from lakelog.wire.framing import REQUEST_LIMITS

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker, BrokerOptions
    from lakelog.topics.broker_configs import BrokerConfigs


class ResourceType(IntEnum):
    """The kind of a resource as requests number it."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Entry:
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


def broker_entries(broker: "Broker") -> list[Entry]:
    """The configs of this broker, by name."""
    layers = broker.broker_configs.layers()
    found = [*_identity(broker), *_choices(broker.options), *_LIMITS]
    found += _of_groups(broker.group_configs.defaults).values()
    found += (_altered(definition, layers) for definition in BROKER_DEFINITIONS.values())
    return sorted(found, key=lambda entry: entry.name)


def default_entries(configs: "BrokerConfigs") -> list[Entry]:
    """What was altered for all brokers, by name, and nothing else, as in Kafka."""
    _, for_all = configs.altered()
    set_for_all = [BROKER_DEFINITIONS[name] for name in sorted(for_all.configs)]
    found = [_altered(definition, (for_all,)) for definition in set_for_all]
    return [replace(entry, synonyms=entry.synonyms[:1]) for entry in found]


def group_entries(
    own: Mapping[str, str], defaults: GroupSettings, layers: Sequence[ConfigLayer]
) -> list[Entry]:
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
            Entry(
                name,
                first.value,
                definition.type,
                first.source,
                definition.documentation,
                synonyms,
            )
        )
    return found


def _identity(broker: "Broker") -> list[Entry]:
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


def _choices(options: "BrokerOptions") -> list[Entry]:
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


def _set(name: str, value: str | None, kind: ConfigType, documentation: str) -> Entry:
    source = ConfigSource.DEFAULT if value is None else ConfigSource.STATIC
    synonyms = () if value is None else (Synonym(name, value, source),)
    return Entry(name, value, kind, source, documentation, synonyms, read_only=True)


def _chosen(name: str, value: bool | int, default: bool | int, documentation: str) -> Entry:
    """A config that has a default; a value other than it was set by the operator."""
    fallback = Synonym(name, show(default), ConfigSource.DEFAULT)
    synonyms: tuple[Synonym, ...] = (fallback,)
    if value != default:
        synonyms = (Synonym(name, show(value), ConfigSource.STATIC), fallback)
    kind = _B if isinstance(value, bool) else _I
    first = synonyms[0]
    return Entry(name, first.value, kind, first.source, documentation, synonyms, read_only=True)


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


def _of_groups(defaults: GroupSettings) -> dict[str, Entry]:
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


def _altered(definition: Definition, layers: Sequence[ConfigLayer]) -> Entry:
    """A config that can be altered: where it is set, the nearest first, then its default."""
    name = definition.name
    synonyms = [
        Synonym(name, layer.configs[name], layer.source)
        for layer in layers
        if name in layer.configs
    ]
    if definition.broker_default:
        synonyms.append(Synonym(name, show(definition.default), ConfigSource.DEFAULT))
    return Entry(
        name,
        synonyms[0].value if synonyms else None,
        definition.type,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        definition.documentation,
        tuple(synonyms),
    )
