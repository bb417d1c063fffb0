"""The keys of the configuration: our own, and the Kafka names that mean the same. Pure."""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from lakelog.config.options import Options

KAFKA_NAMES: Final = {
    "advertised.listeners": "broker.advertised",
    "auto.create.topics.enable": "topics.auto_create",
    "broker.id": "broker.id",
    "broker.rack": "broker.zone",
    "default.replication.factor": "topics.default_replication_factor",
    "group.consumer.assignment.interval.ms": "groups.assignment_interval_ms",
    "group.consumer.assignors": "groups.consumer_assignors",
    "group.consumer.heartbeat.interval.ms": "groups.consumer_heartbeat_interval_ms",
    "group.consumer.max.size": "groups.consumer_members_max",
    "group.consumer.session.timeout.ms": "groups.consumer_session_timeout_ms",
    "group.initial.rebalance.delay.ms": "groups.initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "groups.session_timeout_max_ms",
    "group.max.size": "groups.members_max",
    "group.min.session.timeout.ms": "groups.session_timeout_min_ms",
    "listeners": "broker.listen",
    "log.cleanup.policy": "topics.cleanup_policy",
    "log.message.timestamp.type": "topics.message_timestamp_type",
    "log.retention.bytes": "topics.retention_bytes",
    "log.retention.check.interval.ms": "log.retention_interval_ms",
    "log.retention.ms": "topics.retention_ms",
    "max.connections": "server.connections_max",
    "message.max.bytes": "topics.max_message_bytes",
    "node.id": "broker.id",
    "num.partitions": "topics.num_partitions",
    "offset.metadata.max.bytes": "groups.offset_metadata_characters_max",
    "offsets.retention.check.interval.ms": "groups.offsets_retention_check_ms",
    "producer.id.expiration.ms": "log.producer_expiry_ms",
}
"""Names from Kafka's `server.properties` whose meaning is the same here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """One key: the section it stands in, its field there, and what it takes."""

    section: str
    field: str
    kind: object
    default: object

    @property
    def name(self) -> str:
        """As it is written: `section.field`."""
        return f"{self.section}.{self.field}"

    @property
    def is_table(self) -> bool:
        """Whether it holds entries of the user's own naming."""
        return typing.get_origin(self.kind) is Mapping


def sections() -> dict[str, type[Any]]:
    """The options class of each section, by the section's name."""
    hints = typing.get_type_hints(Options)
    return {
        name: kind
        for name, kind in hints.items()
        if isinstance(kind, type) and dataclasses.is_dataclass(kind)
    }


@cache
def known() -> dict[str, Key]:
    """Every key by its name."""
    found = {}
    for section, kind in sections().items():
        hints = typing.get_type_hints(kind)
        for each in dataclasses.fields(kind):
            default = each.default
            if each.default_factory is not dataclasses.MISSING:
                default = each.default_factory()
            key = Key(section, each.name, hints[each.name], default)
            found[key.name] = key
    return found


def find(name: str) -> tuple[Key, str] | None:
    """The key of that name, ours or Kafka's, and for a key that is a table the entry named."""
    found = known().get(KAFKA_NAMES.get(name, name))
    if found is not None and not found.is_table:
        return found, ""
    section, _, rest = name.partition(".")
    table, _, entry = rest.partition(".")
    found = known().get(f"{section}.{table}")
    return (found, entry) if found is not None and found.is_table and entry else None


def suggestion(name: str, choices: Iterable[str]) -> str:
    """A closing remark that names what may have been meant, or nothing."""
    close = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
