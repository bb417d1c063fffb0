"""The configs of a topic: the strict set, their defaults, bounds and broker-wide names. Pure.

The names, types, defaults and bounds are Kafka 4.3's, and `lakelog.*` are ours. Three kinds: those
that Lakelog honours; those that are accepted and have no effect, because what they steer does not
exist here (segments, flushes, replicas); and values that would promise what we do not keep, which
are refused with the reason. A config that is not in the set is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from lakelog.topics.config_values import (
    LONG_MAX,
    Check,
    ConfigType,
    Value,
    all_of,
    at_least,
    between,
    gzip_level,
    one_of,
    only,
    parse,
    throttled_replicas,
)
from lakelog.topics.failures import InvalidConfig

WEEK_MS: Final = 7 * 24 * 3_600_000
DAY_MS: Final = 24 * 3_600_000
SEGMENT_BYTES_MIN: Final = 1 << 20

_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_NO_TIERS: Final = "every log of Lakelog lives in object storage, so there is no second tier"


class Format(Enum):
    """What a topic's compacted files are: a table, or row segments without one (D7)."""

    PARQUET = "parquet"
    KFS = "kfs"


@dataclass(frozen=True, slots=True)
class Definition:
    """One config: what it is called, what it may be, and what it means here."""

    name: str
    type: ConfigType
    default: Value
    documentation: str
    broker_name: str | None = None
    """The broker-wide config that gives the default, if there is one."""
    broker_default: bool = True
    """False where Kafka's broker-wide config has no value of its own unless it is set."""
    check: Check | None = None

    def parse(self, text: str) -> Value:
        """The value of a text; raises `InvalidConfig`."""
        value = parse(self.name, self.type, text)
        if self.check is not None:
            self.check(self.name, value)
        return value


_B, _S, _I = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_L, _D, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
_IDLE: Final = "Accepted and without effect: "

_DEFINITIONS: Final = (
    Definition(
        "cleanup.policy",
        _LIST,
        ("delete",),
        "What becomes of old records: 'delete' drops them by age and size, 'compact' keeps the"
        " newest of each key, both together do both, and an empty list keeps everything.",
        "log.cleanup.policy",
        check=all_of("compact", "delete"),
    ),
    Definition(
        "compression.gzip.level",
        _I,
        -1,
        _IDLE + "batches are kept as the producer compressed them.",
        "compression.gzip.level",
        check=gzip_level,
    ),
    Definition(
        "compression.lz4.level",
        _I,
        9,
        _IDLE + "batches are kept as the producer compressed them.",
        "compression.lz4.level",
        check=between(1, 17),
    ),
    Definition(
        "compression.type",
        _S,
        "producer",
        _IDLE + "batches are kept as the producer compressed them.",
        "compression.type",
        check=one_of(*_CODECS),
    ),
    Definition(
        "compression.zstd.level",
        _I,
        3,
        _IDLE + "batches are kept as the producer compressed them.",
        "compression.zstd.level",
        check=between(-131_072, 22),
    ),
    Definition(
        "delete.retention.ms",
        _L,
        DAY_MS,
        "How long a tombstone of a compacted topic stays readable.",
        "log.cleaner.delete.retention.ms",
        check=at_least(0),
    ),
    Definition(
        "file.delete.delay.ms",
        _L,
        60_000,
        _IDLE + "objects are deleted after the grace period of the clean-up.",
        "log.segment.delete.delay.ms",
        check=at_least(0),
    ),
    Definition(
        "flush.messages",
        _L,
        LONG_MAX,
        _IDLE + "what is acknowledged is durable already.",
        "log.flush.interval.messages",
        check=at_least(1),
    ),
    Definition(
        "flush.ms",
        _L,
        LONG_MAX,
        _IDLE + "what is acknowledged is durable already.",
        "log.flush.interval.ms",
        broker_default=False,
        check=at_least(0),
    ),
    Definition(
        "follower.replication.throttled.replicas",
        _LIST,
        (),
        _IDLE + "brokers do not replicate.",
        check=throttled_replicas,
    ),
    Definition(
        "index.interval.bytes",
        _I,
        4096,
        _IDLE + "every batch is in the index.",
        "log.index.interval.bytes",
        check=at_least(0),
    ),
    Definition(
        "leader.replication.throttled.replicas",
        _LIST,
        (),
        _IDLE + "brokers do not replicate.",
        check=throttled_replicas,
    ),
    Definition(
        "local.retention.bytes",
        _L,
        -2,
        _IDLE + _NO_TIERS + ".",
        "log.local.retention.bytes",
        check=at_least(-2),
    ),
    Definition(
        "local.retention.ms",
        _L,
        -2,
        _IDLE + _NO_TIERS + ".",
        "log.local.retention.ms",
        check=at_least(-2),
    ),
    Definition(
        "max.compaction.lag.ms",
        _L,
        LONG_MAX,
        "The longest time for which a record of a compacted topic may stay uncompacted.",
        "log.cleaner.max.compaction.lag.ms",
        check=at_least(1),
    ),
    Definition(
        "max.message.bytes",
        _I,
        1_048_588,
        "The largest batch that a producer may send, compressed as it is.",
        "message.max.bytes",
        check=at_least(0),
    ),
    Definition(
        "message.timestamp.after.max.ms",
        _L,
        3_600_000,
        "How far a record's timestamp may be ahead of the broker's clock (CreateTime).",
        "log.message.timestamp.after.max.ms",
        check=at_least(0),
    ),
    Definition(
        "message.timestamp.before.max.ms",
        _L,
        LONG_MAX,
        "How far a record's timestamp may be behind the broker's clock (CreateTime).",
        "log.message.timestamp.before.max.ms",
        check=at_least(0),
    ),
    Definition(
        "message.timestamp.type",
        _S,
        "CreateTime",
        "Who sets a record's timestamp: its producer (CreateTime) or the broker (LogAppendTime).",
        "log.message.timestamp.type",
        check=one_of("CreateTime", "LogAppendTime"),
    ),
    Definition(
        "min.cleanable.dirty.ratio",
        _D,
        0.5,
        "The share of a compacted log that must be uncompacted before it is worth a run.",
        "log.cleaner.min.cleanable.ratio",
        check=between(0, 1),
    ),
    Definition(
        "min.compaction.lag.ms",
        _L,
        0,
        "The shortest time for which a record of a compacted topic stays uncompacted.",
        "log.cleaner.min.compaction.lag.ms",
        check=at_least(0),
    ),
    Definition(
        "min.insync.replicas",
        _I,
        1,
        _IDLE + "a record is durable in the object store before it is acknowledged.",
        "min.insync.replicas",
        check=at_least(1),
    ),
    Definition(
        "preallocate",
        _B,
        False,
        _IDLE + "there are no segment files on a disk.",
        "log.preallocate",
    ),
    Definition("remote.log.copy.disable", _B, False, _IDLE + _NO_TIERS + "."),
    Definition("remote.log.delete.on.disable", _B, False, _IDLE + _NO_TIERS + "."),
    Definition(
        "remote.storage.enable",
        _B,
        False,
        "Only 'false': " + _NO_TIERS + ".",
        check=only(False, _NO_TIERS),
    ),
    Definition(
        "retention.bytes",
        _L,
        -1,
        "How large a partition grows before its oldest records are dropped ('delete'); -1: as"
        " large as it gets.",
        "log.retention.bytes",
    ),
    Definition(
        "retention.ms",
        _L,
        WEEK_MS,
        "How old records get before they are dropped ('delete'); -1: as old as they get.",
        "log.retention.ms",
        broker_default=False,
        check=at_least(-1),
    ),
    Definition(
        "segment.bytes",
        _I,
        1 << 30,
        _IDLE + "objects are closed by size and time for all topics together.",
        "log.segment.bytes",
        check=at_least(SEGMENT_BYTES_MIN),
    ),
    Definition(
        "segment.index.bytes",
        _I,
        10 << 20,
        _IDLE + "there are no segment files on a disk.",
        "log.index.size.max.bytes",
        check=at_least(4),
    ),
    Definition(
        "segment.jitter.ms",
        _L,
        0,
        _IDLE + "objects are closed by size and time for all topics together.",
        "log.roll.jitter.ms",
        broker_default=False,
        check=at_least(0),
    ),
    Definition(
        "segment.ms",
        _L,
        WEEK_MS,
        _IDLE + "objects are closed by size and time for all topics together.",
        "log.roll.ms",
        broker_default=False,
        check=at_least(1),
    ),
    Definition(
        "unclean.leader.election.enable",
        _B,
        False,
        _IDLE + "no broker leads, so none can lead uncleanly.",
        "unclean.leader.election.enable",
    ),
    Definition(
        "lakelog.format",
        _S,
        Format.PARQUET.value,
        "What compacted files are: 'parquet' (the topic is an Iceberg table) or 'kfs' (row"
        " segments, no table).",
        check=one_of(*(form.value for form in Format)),
    ),
    Definition(
        "lakelog.snapshots.history.ms",
        _L,
        30 * DAY_MS,
        "How long it is known which offsets a snapshot of the topic's table held, once the table"
        " let go of it; 0: not at all, -1: for ever.",
        check=at_least(-1),
    ),
    Definition(
        "lakelog.table.freshness.ms",
        _L,
        60_000,
        "How old records get before they are rows of the topic's table; less makes more and"
        " smaller files.",
        check=at_least(0),
    ),
    Definition(
        "lakelog.table.retention.ms",
        _L,
        -1,
        "How old rows of the topic's table get before they are deleted; -1: the table keeps them"
        " when the log drops them.",
        check=at_least(-1),
    ),
)

DEFINITIONS: Final[Mapping[str, Definition]] = MappingProxyType(
    {definition.name: definition for definition in sorted(_DEFINITIONS, key=lambda d: d.name)}
)
"""Every config a topic may have, by name, in the order of the names."""


def values(configs: Mapping[str, str]) -> dict[str, Value]:
    """Check a topic's own configs and return every config's value, defaults included."""
    found: dict[str, Value] = {name: known.default for name, known in DEFINITIONS.items()}
    for name, text in configs.items():
        definition = DEFINITIONS.get(name)
        if definition is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        found[name] = definition.parse(text)
    return found


def check_lags(found: Mapping[str, Value | None]) -> None:
    """Raises `InvalidConfig` when compaction must wait for longer than it may wait."""
    least, most = found["min.compaction.lag.ms"], found["max.compaction.lag.ms"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({least}) >"
            f" max.compaction.lag.ms ({most})"
        )
