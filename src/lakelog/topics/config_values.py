"""Config values as text and as values: Kafka's types, bounds and the words of their refusals. Pure.

A value is stored as the client wrote it and shown in its canonical form, as Kafka does.
"""

import math
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, TypeAlias

from lakelog.topics.failures import InvalidConfig

Value: TypeAlias = bool | int | float | str | tuple[str, ...]
Check: TypeAlias = Callable[[str, Value], None]
"""Raises `InvalidConfig` when the value of the config of that name is not allowed."""

LONG_MAX: Final = (1 << 63) - 1
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL: Final = re.compile(
    r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?"
)
_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
SHOWN_CHARACTERS_MAX: Final = 200
"""How much of a bad value an error message repeats."""


class ConfigType(IntEnum):
    """The type of a config as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from as DescribeConfigs numbers it."""

    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_INTEGER_MAX: Final = {
    ConfigType.SHORT: (1 << 15) - 1,
    ConfigType.INT: (1 << 31) - 1,
    ConfigType.LONG: LONG_MAX,
}


def refusal(name: str, value: Value, reason: str) -> InvalidConfig:
    """The failure for a value, in Kafka's words."""
    return InvalidConfig(
        f"Invalid value {show(value)[:SHOWN_CHARACTERS_MAX]} for configuration {name}: {reason}"
    )


def parse(name: str, kind: ConfigType, text: str) -> Value:
    """The value of a text; raises `InvalidConfig` when it is not of that type."""
    text = text.strip()
    if kind in _INTEGER_MAX:
        return _integer(name, kind, text)
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in {"true", "false"}:
                raise refusal(name, text, "Expected value to be either true or false")
            return text.lower() == "true"
        case ConfigType.DOUBLE:
            if _DECIMAL.fullmatch(text) is None:
                raise refusal(name, text, "Not a number of type DOUBLE")
            return float(text)
        case ConfigType.LIST:
            return tuple(part.strip() for part in text.split(",")) if text else ()
        case _:
            return text


def show(value: Value) -> str:
    """The canonical text of a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _integer(name: str, kind: ConfigType, text: str) -> int:
    most = _INTEGER_MAX[kind]
    if _DIGITS.fullmatch(text) is not None and -most - 1 <= int(text) <= most:
        return int(text)
    raise refusal(name, text, f"Not a number of type {kind.name}")


def at_least(least: float) -> Check:
    """The value is no smaller."""

    def check(name: str, value: Value) -> None:
        assert isinstance(value, int | float), (name, value)
        if not value >= least:
            raise refusal(name, value, f"Value must be at least {least}")

    return check


def between(least: float, most: float) -> Check:
    """The value is neither smaller nor greater."""

    def check(name: str, value: Value) -> None:
        assert isinstance(value, int | float), (name, value)
        if math.isnan(value) or value < least:
            raise refusal(name, value, f"Value must be at least {least}")
        if value > most:
            raise refusal(name, value, f"Value must be no more than {most}")

    return check


def gzip_level(name: str, value: Value) -> None:
    """-1 stands for gzip's own default; 0 would be no compression at all."""
    assert isinstance(value, int), (name, value)
    if value != -1 and not 1 <= value <= 9:
        raise refusal(name, value, "Value must be between 1 and 9 or equal to -1")


def one_of(*allowed: str) -> Check:
    """The value is one of these words."""

    def check(name: str, value: Value) -> None:
        if value not in allowed:
            raise refusal(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def all_of(*allowed: str) -> Check:
    """Every element of the list is one of these words; the list may be empty."""

    def check(name: str, value: Value) -> None:
        assert isinstance(value, tuple), (name, value)
        for part in value:
            if part not in allowed:
                raise refusal(name, part, f"String must be one of: {', '.join(allowed)}")

    return check


def throttled_replicas(name: str, value: Value) -> None:
    """A star, or pairs of partition and broker."""
    assert isinstance(value, tuple), (name, value)
    if value not in ((), ("*",)) and not all(map(_REPLICA.fullmatch, value)):
        raise refusal(
            name,
            value,
            "must be the literal '*' or a list of replicas in the following format:"
            " [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def only(honoured: Value, reason: str) -> Check:
    """One value is honoured; all others are refused with the reason."""

    def check(name: str, value: Value) -> None:
        if value != honoured:
            raise refusal(name, value, reason)

    return check
