"""What configs belong to: the kinds of resources, and the configs of a broker and of a group.

A broker's configs are what tools read to know how it is set up; they are set in its configuration
file and cannot be altered by clients, so every one is read-only. A group's are what it sets itself,
then what the operator chose for all groups, then the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lakelog.broker.describe_topic_partitions import PARTITIONS_MAX
from lakelog.broker.fetch import RESPONSE_BYTES_MAX
from lakelog.broker.fetch_sessions import SESSIONS_MAX
from lakelog.groups.settings import GroupSettings
from lakelog.topics.config_values import ConfigSource, ConfigType, show
from lakelog.topics.configs import DEFINITIONS
from lakelog.topics.group_settings import DEFINITIONS as GROUP_DEFINITIONS
from lakelog.topics.group_settings import default_values
from lakelog.topics.settings import Synonym
from lakelog.wire.framing import REQUEST_LIMITS

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker, BrokerOptions


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
_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG


def broker_entries(broker: "Broker") -> list[Entry]:
    """The configs of this broker, by name."""
    defaults = _topic_defaults(broker.topics.defaults)
    found = [*_identity(broker), *_choices(broker.options), *_LIMITS, *defaults]
    return sorted(found, key=lambda entry: entry.name)


def group_entries(own: Mapping[str, str], defaults: GroupSettings) -> list[Entry]:
    """The configs of a group with these of its own, by name; whether it is there or not."""
    chosen = default_values(defaults)
    found = []
    for name, definition in GROUP_DEFINITIONS.items():
        assert definition.broker_name is not None, name
        assert isinstance(definition.default, int), name
        above = _chosen(definition.broker_name, chosen[name], definition.default, "")
        synonyms = above.synonyms
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


def _topic_defaults(defaults: Mapping[str, str]) -> list[Entry]:
    """The broker-wide names of topic configs, with what topics get from them."""
    found = []
    for definition in DEFINITIONS.values():
        if definition.broker_name is None:
            continue
        synonyms = []
        if definition.name in defaults:
            value = show(definition.parse(defaults[definition.name]))
            synonyms.append(Synonym(definition.broker_name, value, ConfigSource.STATIC))
        if definition.broker_default:
            value = show(definition.default)
            synonyms.append(Synonym(definition.broker_name, value, ConfigSource.DEFAULT))
        found.append(
            Entry(
                definition.broker_name,
                synonyms[0].value if synonyms else None,
                definition.type,
                synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                definition.documentation,
                tuple(synonyms),
                read_only=True,
            )
        )
    return found
