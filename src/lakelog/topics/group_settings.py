"""The configs of a consumer group: their names, bounds and effect. Pure.

Names, defaults and bounds are those of Kafka 4.3; what it knows of share and streams groups is not
here. The bounds are Kafka's defaults (`group.consumer.min.session.timeout.ms` and so on), and reach
at least as far as what the operator chose for all groups. A value that is out of them, because
another broker took it in, counts as the nearest that is not, as in Kafka.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from lakelog.groups.state import GroupSettings
from lakelog.topics.config_values import ConfigType, at_least, show
from lakelog.topics.configs import Definition
from lakelog.topics.failures import InvalidConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_DEFINITIONS: Final = (
    Definition(
        ASSIGNMENT_INTERVAL,
        ConfigType.INT,
        1_000,
        "The group gets a new assignment at most this often.",
        "group.consumer.assignment.interval.ms",
        check=at_least(0),
    ),
    Definition(
        HEARTBEAT_INTERVAL,
        ConfigType.INT,
        5_000,
        "How often a member of a consumer group reports.",
        "group.consumer.heartbeat.interval.ms",
        check=at_least(1),
    ),
    Definition(
        SESSION_TIMEOUT,
        ConfigType.INT,
        45_000,
        "How long a member may be silent before it is taken for gone.",
        "group.consumer.session.timeout.ms",
        check=at_least(1),
    ),
)

DEFINITIONS: Final[Mapping[str, Definition]] = MappingProxyType(
    {definition.name: definition for definition in _DEFINITIONS}
)
"""Every config a group may have, by name, in the order of the names."""

_BOUNDS: Final = (
    (HEARTBEAT_INTERVAL, 5_000, 15_000),
    (SESSION_TIMEOUT, 45_000, 60_000),
    (ASSIGNMENT_INTERVAL, 0, 15_000),
)
"""In the order in which Kafka looks at them, because clients see the first that fails."""


def default_values(defaults: GroupSettings) -> dict[str, int]:
    """What a group has that sets nothing itself, by the names of the configs."""
    return {
        SESSION_TIMEOUT: defaults.session_timeout_ms,
        HEARTBEAT_INTERVAL: defaults.heartbeat_interval_ms,
        ASSIGNMENT_INTERVAL: defaults.assignment_interval_ms,
    }


def checked(configs: Mapping[str, str], defaults: GroupSettings) -> dict[str, str]:
    """A group's own configs in their canonical form; raises `InvalidConfig`."""
    for name in configs:
        if name not in DEFINITIONS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    own = {name: _parsed(name, text) for name, text in configs.items()}
    values = {**default_values(defaults), **own}
    for name, (least, most) in _bounds(defaults).items():
        if values[name] < least:
            raise InvalidConfig(f"{name} must be greater than or equal to {least}")
        if values[name] > most:
            raise InvalidConfig(f"{name} must be less than or equal to {most}")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise InvalidConfig(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")
    return {name: show(value) for name, value in own.items()}


def settings(configs: Mapping[str, str], defaults: GroupSettings) -> GroupSettings:
    """What is in effect for a group with these configs; raises `InvalidConfig`.

    Names that are unknown are those of a newer version, and mean nothing here.
    """
    values = default_values(defaults)
    for name, (least, most) in _bounds(defaults).items():
        if name in configs:
            values[name] = min(max(_parsed(name, configs[name]), least), most)
    return GroupSettings(
        session_timeout_ms=values[SESSION_TIMEOUT],
        heartbeat_interval_ms=values[HEARTBEAT_INTERVAL],
        assignment_interval_ms=values[ASSIGNMENT_INTERVAL],
    )


def _bounds(defaults: GroupSettings) -> dict[str, tuple[int, int]]:
    chosen = default_values(defaults)
    return {
        name: (min(least, chosen[name]), max(most, chosen[name])) for name, least, most in _BOUNDS
    }


def _parsed(name: str, text: str) -> int:
    value = DEFINITIONS[name].parse(text)
    assert isinstance(value, int), (name, value)
    return value
