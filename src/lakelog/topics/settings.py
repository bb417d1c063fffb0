"""A topic's configs as the hot paths use them, and as tools see them. Pure.

`TopicSettings` is typed and small: Produce and Fetch read nothing else. `described` is the long
form with sources and synonyms (row 67): the topic's own value, then the broker's, then
the default.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Final

from lakelog.records.acceptance import TimestampType
from lakelog.topics.config_values import ConfigSource, Value, show
from lakelog.topics.configs import DEFINITIONS, Definition, Format, check_lags, values

NONE_SET: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets where it sets nothing itself; None means Kafka's default.

    The names of the options are the topic's configs; their broker-wide names are Kafka's
    (`log.retention.ms`, `message.max.bytes` and so on).
    """

    cleanup_policy: str | None = None
    max_message_bytes: int | None = None
    message_timestamp_type: str | None = None
    retention_bytes: int | None = None
    retention_ms: int | None = None
    lakelog_format: str | None = None
    lakelog_table_freshness_ms: int | None = None

    def configs(self) -> dict[str, str]:
        """The defaults that are set, by the topic's name for them, checked."""
        chosen = {
            field.name.replace("_", "."): str(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) is not None
        }
        settings(chosen)
        return chosen


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What writing, reading and keeping a topic's records needs to know of its configs."""

    message_bytes_max: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compacted: bool
    delete: bool
    retention_ms: int
    """-1: for ever."""
    retention_bytes: int
    """Negative: without limit."""
    min_insync_replicas: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    dirty_ratio_min: float
    format: Format
    table_freshness_ms: int
    table_retention_ms: int
    """-1: for ever."""
    snapshots_history_ms: int
    """-1: for ever."""


def settings(configs: Mapping[str, str], defaults: Mapping[str, str] = NONE_SET) -> TopicSettings:
    """The settings of a topic that is to have these configs; raises `InvalidConfig`."""
    check_lags(values({**defaults, **configs}))
    return in_effect(configs, defaults)


def in_effect(configs: Mapping[str, str], defaults: Mapping[str, str] = NONE_SET) -> TopicSettings:
    """The settings of a topic that has these configs; raises `InvalidConfig`.

    Defaults that changed since may contradict what a topic sets itself: both are kept, as in Kafka.
    """
    found = values({**defaults, **configs})
    policy = found["cleanup.policy"]
    assert isinstance(policy, tuple)
    log_append_time = found["message.timestamp.type"] == "LogAppendTime"
    return TopicSettings(
        message_bytes_max=_integer(found["max.message.bytes"]),
        timestamp_type=TimestampType(1 if log_append_time else 0),
        timestamp_before_max_ms=_integer(found["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=_integer(found["message.timestamp.after.max.ms"]),
        compacted="compact" in policy,
        delete="delete" in policy,
        retention_ms=_integer(found["retention.ms"]),
        retention_bytes=_integer(found["retention.bytes"]),
        min_insync_replicas=_integer(found["min.insync.replicas"]),
        delete_retention_ms=_integer(found["delete.retention.ms"]),
        min_compaction_lag_ms=_integer(found["min.compaction.lag.ms"]),
        max_compaction_lag_ms=_integer(found["max.compaction.lag.ms"]),
        dirty_ratio_min=_number(found["min.cleanable.dirty.ratio"]),
        format=Format(found["lakelog.format"]),
        table_freshness_ms=_integer(found["lakelog.table.freshness.ms"]),
        table_retention_ms=_integer(found["lakelog.table.retention.ms"]),
        snapshots_history_ms=_integer(found["lakelog.snapshots.history.ms"]),
    )


def _integer(value: Value) -> int:
    assert isinstance(value, int), value
    return value


def _number(value: Value) -> float:
    assert isinstance(value, int | float), value
    return value


@dataclass(frozen=True, slots=True)
class Synonym:
    """A name under which a value may be set, with the value and where it comes from."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """One config of a topic as DescribeConfigs and CreateTopics show it."""

    definition: Definition
    value: str
    source: ConfigSource
    synonyms: tuple[Synonym, ...]


@dataclass(frozen=True, slots=True)
class ConfigLayer:
    """Configs that were set in one place; a layer before another hides what that one sets."""

    source: ConfigSource
    configs: Mapping[str, str]


def merged(layers: Sequence[ConfigLayer]) -> dict[str, str]:
    """What is in effect of these layers, of which the first hides the others."""
    found: dict[str, str] = {}
    for layer in reversed(layers):
        found.update(layer.configs)
    return found


def described(
    configs: Mapping[str, str], layers: Sequence[ConfigLayer] = ()
) -> list[DescribedConfig]:
    """Every config of a topic in effect, in the order of the names, over these defaults."""
    return [_describe(definition, configs, layers) for definition in DEFINITIONS.values()]


def _describe(
    definition: Definition, configs: Mapping[str, str], layers: Sequence[ConfigLayer]
) -> DescribedConfig:
    name, above = definition.name, definition.broker_name or definition.name
    synonyms = []
    if name in configs:
        synonyms.append(Synonym(name, show(definition.parse(configs[name])), ConfigSource.TOPIC))
    for layer in layers:
        if name in layer.configs:
            value = show(definition.parse(layer.configs[name]))
            synonyms.append(Synonym(above, value, layer.source))
    if definition.broker_name is not None and definition.broker_default:
        synonyms.append(Synonym(above, show(definition.default), ConfigSource.DEFAULT))
    if synonyms:
        return DescribedConfig(definition, synonyms[0].value, synonyms[0].source, tuple(synonyms))
    return DescribedConfig(definition, show(definition.default), ConfigSource.DEFAULT, ())
