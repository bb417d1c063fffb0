"""The configs of brokers that can be altered while they run: names, bounds, effect, every change.

These are Kafka 4.3's dynamic broker configs, as far as what they steer exists here or nobody can
miss it. Three kinds: those that give topics their defaults, by their broker-wide names; the one
that groups get; and those of threads, cleaner and replication that are accepted without effect,
because nothing of the kind is here. What would promise more (TLS, limits, tiers) is refused, and so
is what a broker reads from its configuration file when it starts.

One key in the metadata store holds them: those for all brokers, and those for single ones. Each
broker keeps a copy, reads it again about once a second, and tells whoever lives by it; what it
changes itself it knows at once. A configuration file is below all of this: what was altered hides
what the file says, until it is altered back, as in Kafka.

Two writers meet at the key's version. A change is worked out again from what is there, so one whose
outcome is unknown can be made once more: it says what shall be, not by how much.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from lakelog.groups.state import GroupSettings
from lakelog.meta import keys
from lakelog.meta.port import VALUE_BYTES_MAX, KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.telemetry import event
from lakelog.topics.config_values import Check, ConfigSource, ConfigType, Value, at_least, show
from lakelog.topics.configs import DEFINITIONS as TOPIC_DEFINITIONS
from lakelog.topics.configs import Definition, check_lags
from lakelog.topics.failures import InvalidChange, InvalidConfig, TooLarge
from lakelog.topics.group_configs import ASSIGNMENT_INTERVAL
from lakelog.topics.group_configs import DEFINITIONS as GROUP_DEFINITIONS
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


KEY_FORMAT: Final = 1
"""The layout of the key; a greater one was written by a newer version."""

ALL_BROKERS: Final = ""
"""The name of the resource that stands for all brokers."""

REFRESH_S: Final = 1.0
ATTEMPTS_MAX: Final = 100

Alteration: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""From the configs of a broker, or of all, to what they shall be; raises `TopicFailure`."""

_log = logging.getLogger(__name__)


class _Key(msgspec.Struct, frozen=True):
    """The JSON of the key: configs by the name of their resource, "" for all brokers."""

    format: int
    configs: dict[str, dict[str, str]]


def encode(configs: Mapping[str, Mapping[str, str]]) -> bytes:
    """The value of the key; raises `TooLarge` when no key could hold it."""
    kept = {name: dict(own) for name, own in sorted(configs.items()) if own}
    value = msgspec.json.encode(_Key(KEY_FORMAT, kept))
    if len(value) > VALUE_BYTES_MAX:
        raise TooLarge(f"The configs of all brokers together need {len(value)} bytes.")
    return value


def decode(found: KeyValue) -> dict[str, dict[str, str]]:
    """The configs by the name of their resource; raises `Corrupt` when they cannot be read."""
    try:
        key = msgspec.json.decode(found.value, type=_Key)
    except msgspec.MsgspecError as reason:
        raise Corrupt(f"{found.key} cannot be read: {reason}") from reason
    if key.format > KEY_FORMAT:
        raise Corrupt(f"{found.key} has format {key.format}, this version knows {KEY_FORMAT}")
    return key.configs


class BrokerConfigs:
    """Finds and changes what was altered, on top of what this broker's options say."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        static: Mapping[str, str],
    ) -> None:
        self._store = store
        self._name = str(broker_id)
        self._static = ConfigLayer(ConfigSource.STATIC, static)
        self._known: Mapping[str, Mapping[str, str]] = {}
        self._version = 0
        self._listeners: list[Callable[[], None]] = []
        self._changing = asyncio.Lock()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call it whenever something that is in effect here has changed."""
        self._listeners.append(listener)

    def altered(self) -> tuple[ConfigLayer, ConfigLayer]:
        """What was altered: for this broker, then for all."""
        return (
            ConfigLayer(ConfigSource.BROKER, readable(self._known.get(self._name, {}))),
            ConfigLayer(ConfigSource.DEFAULT_BROKER, readable(self._known.get(ALL_BROKERS, {}))),
        )

    def layers(self) -> tuple[ConfigLayer, ...]:
        """All that was set: for this broker, for all, and by the options."""
        return (*self.altered(), self._static)

    def below(self, name: str) -> dict[str, str]:
        """What the configs of this resource hide: of a broker, those of all and the options'."""
        own = 1 if name != ALL_BROKERS else 2
        return merged(self.layers()[own:])

    async def current(self) -> None:
        """After it, every change that was made before the call is known."""
        await self._read()

    async def run(self) -> None:
        """Notice for ever what others changed, about once a second."""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.current()
            except (Unavailable, Corrupt) as reason:
                event(_log, "broker_configs_stale", logging.WARNING, reason=str(reason))

    async def alter(
        self, name: str, alteration: Alteration, *, validate_only: bool = False
    ) -> None:
        """Change the configs of this broker, or of all, from what they are now.

        Raises `TopicFailure`.
        """
        assert name in (ALL_BROKERS, self._name), name
        async with self._changing:
            for _ in range(ATTEMPTS_MAX):
                version = await self._read()
                present = dict(self._known.get(name, {}))
                asked = alteration(present)
                if name == ALL_BROKERS:
                    check_for_all(asked)
                configs = checked(asked, below=self.below(name))
                if validate_only or configs == present:
                    return
                value = encode({**self._known, name: configs})
                try:
                    written = await self._store.put(keys.BROKER_CONFIGS, value, expect=version)
                except (Conflict, OutcomeUnknown):
                    continue  # what is there now tells whether it was done
                self._learn(KeyValue(keys.BROKER_CONFIGS, value, written))
                return
        raise Unavailable("the configs of brokers are changed too often")

    async def _read(self) -> int:
        """The version of the key, 0 for none; what it says is known from then on."""
        found = await self._store.get(keys.BROKER_CONFIGS)
        if found is None:
            return 0
        self._learn(found)
        return found.version

    def _learn(self, found: KeyValue) -> None:
        """The key was read or written; its version only grows, so an older reading is dropped."""
        if found.version <= self._version:
            return
        before = self.altered()
        self._known = decode(found)
        self._version = found.version
        if self.altered() != before:
            event(_log, "broker_configs", version=found.version)
            for listener in self._listeners:
                listener()
