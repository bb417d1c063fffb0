"""The configs of a broker that can be altered while it runs: names, bounds, effect. Pure.

These are Kafka 4.3's dynamic broker configs, as far as what they steer exists here or nobody can
miss it. Three kinds: those that give topics their defaults, by their broker-wide names; the one
that groups get; and those of threads, cleaner and replication that are accepted without effect,
because nothing of the kind is here. What would promise more (TLS, limits, tiers) is refused, and so
is what a broker reads from its configuration file when it starts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from lakelog.groups.state import GroupSettings
from lakelog.topics.config_values import Check, ConfigType, Value, at_least, show
from lakelog.topics.configs import DEFINITIONS as TOPIC_DEFINITIONS
from lakelog.topics.configs import Definition, check_lags
from lakelog.topics.failures import InvalidChange, InvalidConfig
from lakelog.topics.group_settings import ASSIGNMENT_INTERVAL
from lakelog.topics.group_settings import DEFINITIONS as GROUP_DEFINITIONS
from lakelog.topics.settings import ConfigLayer, merged

_I, _L, _D = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE
_THREADS: Final = "one loop answers all requests, and there are no threads to count."
_CLEANER: Final = "topics are compacted by the pipeline, with the resources that Spark has."
_REPLICATION: Final = "brokers do not replicate."
_KERBEROS: Final = "no client logs in with Kerberos."
DOUBLE_MAX: Final = 1.7976931348623157e308


def _idle(
    name: str, kind: ConfigType, default: Value | None, reason: str, check: Check | None = None
) -> Definition:
    """A config without effect; without a default, Kafka shows it only where it is set."""
    return Definition(
        name,
        kind,
        0 if default is None else default,
        f"Accepted and without effect: {reason}",
        name,
        broker_default=default is not None,
        check=check,
    )


_ONE, _ZERO = at_least(1), at_least(0)
_IDLE_DEFINITIONS: Final = (
    _idle("background.threads", _I, 10, _THREADS, _ONE),
    _idle("follower.replication.throttled.rate", _L, None, _REPLICATION, _ZERO),
    _idle("leader.replication.throttled.rate", _L, None, _REPLICATION, _ZERO),
    _idle("log.cleaner.backoff.ms", _L, 15_000, _CLEANER, _ZERO),
    _idle("log.cleaner.dedupe.buffer.size", _L, 134_217_728, _CLEANER),
    _idle("log.cleaner.io.buffer.load.factor", _D, 0.9, _CLEANER),
    _idle("log.cleaner.io.buffer.size", _I, 524_288, _CLEANER, _ZERO),
    _idle("log.cleaner.io.max.bytes.per.second", _D, DOUBLE_MAX, _CLEANER),
    _idle("log.cleaner.threads", _I, 1, _CLEANER, _ZERO),
    _idle("num.io.threads", _I, 8, _THREADS, _ONE),
    _idle("num.network.threads", _I, 3, _THREADS, _ONE),
    _idle("num.recovery.threads.per.data.dir", _I, 2, _THREADS, _ONE),
    _idle("num.replica.fetchers", _I, 1, _REPLICATION, _ONE),
    _idle("replica.alter.log.dirs.io.max.bytes.per.second", _L, None, _REPLICATION, _ZERO),
    _idle("sasl.kerberos.min.time.before.relogin", _L, 60_000, _KERBEROS),
    _idle("sasl.kerberos.ticket.renew.jitter", _D, 0.05, _KERBEROS),
    _idle("sasl.kerberos.ticket.renew.window.factor", _D, 0.8, _KERBEROS),
)

PER_BROKER_PREFIX: Final = "sasl."
"""Kafka takes these for a single broker only."""

_OF_GROUPS: Final = GROUP_DEFINITIONS[ASSIGNMENT_INTERVAL]
GROUP_NAME: Final = _OF_GROUPS.broker_name or ""

TOPIC_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        definition.broker_name: definition.name
        for definition in TOPIC_DEFINITIONS.values()
        if definition.broker_name is not None
    }
)
"""The topic's name of every broker-wide config that topics get their defaults from."""

_DEFINITIONS: Final = (
    *(replace(TOPIC_DEFINITIONS[of_topic], name=name) for name, of_topic in TOPIC_NAMES.items()),
    replace(_OF_GROUPS, name=GROUP_NAME),
    *_IDLE_DEFINITIONS,
)
DEFINITIONS: Final[Mapping[str, Definition]] = MappingProxyType(
    {definition.name: definition for definition in sorted(_DEFINITIONS, key=lambda d: d.name)}
)
"""Every config of a broker that can be altered, by name, in the order of the names."""


READ_ONLY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "advertised.listeners": "broker.advertised",
        "auto.create.topics.enable": "topics.auto_create",
        "broker.id": "broker.id",
        "broker.rack": "broker.zone",
        "default.replication.factor": "topics.default_replication_factor",
        "delete.topic.enable": "",
        "fetch.max.bytes": "",
        "group.consumer.heartbeat.interval.ms": "groups.consumer_heartbeat_interval_ms",
        "group.consumer.session.timeout.ms": "groups.consumer_session_timeout_ms",
        "listeners": "broker.listen",
        "log.dirs": "objects.url",
        "log.retention.hours": "topics.retention_ms",
        "max.incremental.fetch.session.cache.slots": "",
        "max.request.partition.size.limit": "",
        "node.id": "broker.id",
        "num.partitions": "topics.num_partitions",
        "process.roles": "",
        "socket.request.max.bytes": "",
    }
)
"""What a broker shows and nobody can alter, with the option that sets it; none: it is fixed."""


def checked(configs: Mapping[str, str], *, below: Mapping[str, str]) -> dict[str, str]:
    """Configs for a broker or for all, in their canonical form; raises `TopicFailure`.

    `below` is what these hide.
    """
    fixed = sorted(name for name in configs if name in READ_ONLY)
    if fixed:
        where = ", ".join(
            f"{name} ({f'set {READ_ONLY[name]} in the file' if READ_ONLY[name] else 'fixed'})"
            for name in fixed
        )
        raise InvalidChange(
            f"Cannot update these configs dynamically: {where}. The file is the broker's"
            " configuration file, which is read when it starts."
        )
    for name in configs:
        if name not in DEFINITIONS:
            raise InvalidConfig(
                f"Unknown broker config name: {name}. Lakelog has nothing that it could steer;"
                " what a broker can be told is in its configuration file."
            )
    found = {name: DEFINITIONS[name].parse(text) for name, text in configs.items()}
    together = {name: DEFINITIONS[name].parse(text) for name, text in below.items()} | found
    check_lags({of_topic: together.get(name) for name, of_topic in TOPIC_NAMES.items()})
    return {name: show(value) for name, value in found.items()}


def check_for_all(configs: Mapping[str, str]) -> None:
    """Raises `InvalidChange` for what can be set for a single broker only."""
    single = sorted(name for name in configs if name.startswith(PER_BROKER_PREFIX))
    if single:
        raise InvalidChange(
            "Cannot update these configs at default cluster level, broker id must be specified:"
            f" {', '.join(single)}"
        )


def readable(configs: Mapping[str, str]) -> dict[str, str]:
    """Those of stored configs that mean something here: a newer version may have stored others."""
    found = {}
    for name, text in configs.items():
        definition = DEFINITIONS.get(name)
        if definition is None:
            continue
        try:
            found[name] = show(definition.parse(text))
        except InvalidConfig:
            continue
    return found


def topic_layers(layers: Sequence[ConfigLayer]) -> tuple[ConfigLayer, ...]:
    """The same by the names that topics have for them, without what is not for topics."""
    return tuple(
        ConfigLayer(
            layer.source,
            {
                TOPIC_NAMES[name]: text
                for name, text in layer.configs.items()
                if name in TOPIC_NAMES
            },
        )
        for layer in layers
    )


def group_defaults(layers: Sequence[ConfigLayer], chosen: GroupSettings) -> GroupSettings:
    """What groups get that set nothing themselves, where the options chose this."""
    text = merged(layers).get(GROUP_NAME)
    if text is None:
        return chosen
    interval_ms = DEFINITIONS[GROUP_NAME].parse(text)
    assert isinstance(interval_ms, int), interval_ms
    return replace(chosen, assignment_interval_ms=interval_ms)


def static_configs(topics: Mapping[str, str], groups: GroupSettings) -> dict[str, str]:
    """What the options of a broker set, by its names for it; what they leave is not there."""
    found = {name: topics[of_topic] for name, of_topic in TOPIC_NAMES.items() if of_topic in topics}
    if groups.assignment_interval_ms != _OF_GROUPS.default:
        found[GROUP_NAME] = str(groups.assignment_interval_ms)
    return readable(found)
