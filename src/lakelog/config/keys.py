"""The keys of the configuration, Kafka's names for them, and what a user's value means. Pure.

A user writes TOML values in a file and text in the environment and in flags; both end here. Sizes
and durations may carry a unit (`64MiB`, `7d`), which is converted to the unit that the key's name
ends with, so that `retention_ms = "7d"` means what it says.
"""

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from lakelog.config.options import Options

Raw: TypeAlias = str | int | float | bool | list[object]
"""What a file, the environment or a flag holds."""

BYTE_UNITS: Final = {
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
TIME_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
TRUE: Final = frozenset({"true", "yes", "on", "1"})
FALSE: Final = frozenset({"false", "no", "off", "0"})
_QUANTITY: Final = re.compile(r"(?P<number>-?\d+(\.\d+)?)\s*(?P<unit>[A-Za-z]+)")


class BadValueError(ValueError):
    """What a user wrote is not a value of this key; the text says what is."""


@runtime_checkable
class Parsed(Protocol):
    """A type that knows how it is written."""

    @classmethod
    def parse(cls, text: str) -> object:
        """Read the value; raises ValueError with the reason."""


def convert(raw: Raw, kind: object, *, key: str) -> object:
    """The value as the options class wants it; raises ValueError with the reason."""
    options = typing.get_args(kind)
    if isinstance(kind, types.UnionType) and type(None) in options:
        if raw == "":
            return None
        kind = next(option for option in options if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(raw, kind)
    if isinstance(kind, Parsed):
        if not isinstance(raw, str):
            raise BadValueError(f"needs a text in quotes, not {raw!r}")
        return kind.parse(raw)
    if typing.get_origin(kind) is tuple:
        return tuple(_texts(raw))
    reader = _SCALARS.get(kind)
    assert reader is not None, f"{key}: an options class has a field of type {kind}"
    return reader(raw, key)


def _texts(raw: Raw) -> list[str]:
    if isinstance(raw, str):
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(raw, list) and all(isinstance(part, str) for part in raw):
        return [str(part) for part in raw]
    raise BadValueError(f"needs a list of texts, not {raw!r}")


def _enum(raw: Raw, kind: type[Enum]) -> Enum:
    for member in kind:
        if str(raw).lower() in {str(member.value).lower(), member.name.lower()}:
            return member
    allowed = ", ".join(str(member.value) for member in kind)
    raise BadValueError(f"is {raw!r}, but must be one of: {allowed}")


def _boolean(raw: Raw, _: str) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in TRUE | FALSE:
        return raw.lower() in TRUE
    raise BadValueError(f"needs true or false, not {raw!r}")


def _integer(raw: Raw, key: str) -> int:
    number = _number(raw, key)
    if number != int(number):
        raise BadValueError(f"needs a whole number, not {raw!r}")
    return int(number)


def _number(raw: Raw, key: str) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise BadValueError(f"needs a number, not {raw!r}")
    if not isinstance(raw, str):
        return raw
    text = raw.strip().replace("_", "")
    try:
        return int(text)
    except ValueError:
        pass
    found = _QUANTITY.fullmatch(text)
    if found is not None:
        return _quantity(float(found["number"]), found["unit"], key)
    try:
        return float(text)
    except ValueError:
        raise BadValueError(f"needs a number, not {raw!r}") from None


def _quantity(number: float, unit: str, key: str) -> float:
    allowed = _units_of(key)
    if unit not in allowed:
        known = ", ".join(allowed) if allowed else "no unit"
        raise BadValueError(f"has the unit {unit!r}, but takes {known}")
    return number * allowed[unit]


def _units_of(key: str) -> Mapping[str, float]:
    words = key.replace(".", "_").split("_")
    if "bytes" in words:
        return BYTE_UNITS
    if words[-1] == "ms":
        return TIME_UNITS_MS
    if words[-1] == "s":
        return {unit: length / 1000 for unit, length in TIME_UNITS_MS.items()}
    return {}


def _text(raw: Raw, _: str) -> str:
    if isinstance(raw, str):
        return raw
    raise BadValueError(f"needs a text in quotes, not {raw!r}")


_SCALARS: Final[dict[object, Callable[[Raw, str], object]]] = {
    bool: _boolean,
    int: _integer,
    float: lambda raw, key: float(_number(raw, key)),
    str: _text,
}


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
