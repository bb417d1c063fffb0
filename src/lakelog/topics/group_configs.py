"""The configs of groups: names, bounds and effect, as one broker knows them, and every change.

Names, defaults and bounds are those of Kafka 4.3; what it knows of share and streams groups is not
here. The bounds are Kafka's defaults (`group.consumer.min.session.timeout.ms` and so on), and reach
at least as far as what the operator chose for all groups. A value that is out of them, because
another broker took it in, counts as the nearest that is not, as in Kafka.

A group that sets something itself has a key in the metadata store; whether there is such a group
does not matter. What is known is a copy of these keys (see `key_cache`): heartbeats ask it and
nothing else, and it is at most about a second old. What this broker changes it knows at once.

Two writers of one key meet at its version. A change is worked out again from what is there, so one
whose outcome is unknown can be made once more: it says what shall be, not by how much.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec

from lakelog.clock import Clock
from lakelog.groups.state import GroupSettings
from lakelog.meta import keys
from lakelog.meta.port import VALUE_BYTES_MAX, KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable
from lakelog.telemetry import event
from lakelog.topics.config_values import ConfigType, at_least, show
from lakelog.topics.configs import Definition
from lakelog.topics.failures import InvalidConfig, TooLarge
from lakelog.topics.key_cache import CacheFreshness, VersionedKeyCache
from lakelog.topics.settings import NONE_SET

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


KEY_FORMAT: Final = 1
"""The layout of a group's key; a greater one was written by a newer version."""

REFRESH_S: Final = 1.0
ATTEMPTS_MAX: Final = 100

Alteration: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""From a group's own configs to what they shall be; raises `TopicFailure`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """What a group sets itself, at one version of its key, and what that comes to."""

    group_id: str
    configs: Mapping[str, str]
    settings: GroupSettings
    version: int


class _Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of a group's key."""

    format: int
    group_id: str
    configs: dict[str, str]


class _Format(msgspec.Struct):
    format: int


def encode(group_id: str, configs: Mapping[str, str]) -> bytes:
    """The value of a group's key; raises `TooLarge` when no key could hold it."""
    value = msgspec.json.encode(_Key(KEY_FORMAT, group_id, dict(configs)))
    if len(value) > VALUE_BYTES_MAX:
        raise TooLarge(f"The configs of a group with so long a name need {len(value)} bytes.")
    return value


def decode(found: KeyValue, defaults: GroupSettings) -> GroupRecord:
    """The record of a group's key; raises `Corrupt` when it is not one we can read."""
    try:
        written = msgspec.json.decode(found.value, type=_Format).format
        if written > KEY_FORMAT:
            raise Corrupt(f"a group key has format {written}, this version knows {KEY_FORMAT}")
        key = msgspec.json.decode(found.value, type=_Key)
        in_effect = settings(key.configs, defaults)
    except (msgspec.MsgspecError, ValueError, InvalidConfig) as reason:
        raise Corrupt(f"a group key cannot be read: {reason}") from reason
    if keys.group_configs(key.group_id) != found.key:
        raise Corrupt(f"{found.key} is not the key of group {key.group_id!r}")
    return GroupRecord(key.group_id, key.configs, in_effect, found.version)


class GroupConfigCache(VersionedKeyCache[GroupRecord]):
    """The copy of the keys, whose names are hashes of the groups that they are of."""

    def __init__(self, defaults: GroupSettings) -> None:
        super().__init__(keys.GROUP_CONFIGS)
        self.defaults = defaults
        self.by_group: dict[str, GroupRecord] = {}

    def use(self, defaults: GroupSettings) -> None:
        """Groups get these defaults from now on."""
        self.defaults = defaults
        for name, record in list(self._values.items()):
            self._set(name, replace(record, settings=settings(record.configs, defaults)))

    def _name(self, value: GroupRecord) -> str:
        return key_name(value.group_id)

    def _decode(self, found: KeyValue) -> GroupRecord:
        return decode(found, self.defaults)

    def _set(self, name: str, value: GroupRecord) -> None:
        super()._set(name, value)
        self.by_group[value.group_id] = value

    def _unset(self, name: str) -> GroupRecord | None:
        record = super()._unset(name)
        if record is not None:
            del self.by_group[record.group_id]
        return record


def key_name(group_id: str) -> str:
    """The name of a group's key, which a hash keeps short."""
    return keys.group_configs(group_id).removeprefix(keys.GROUP_CONFIGS)


class GroupConfigs:
    """Finds and changes what groups set for themselves; `defaults` hold for all others."""

    def __init__(self, store: MetadataStore, clock: Clock, defaults: GroupSettings) -> None:
        self.defaults = defaults
        self._store = store
        self._cache = GroupConfigCache(defaults)
        self._freshness = CacheFreshness(
            store, clock, self._cache, revision=keys.GROUP_CONFIGS_REVISION
        )
        self._changing = asyncio.Lock()

    def use(self, defaults: GroupSettings) -> None:
        """Give groups these defaults from now on."""
        self.defaults = defaults
        self._cache.use(defaults)

    def of(self, group_id: str) -> GroupSettings:
        """What is in effect for the group, as far as is known."""
        record = self._cache.by_group.get(group_id)
        return self.defaults if record is None else record.settings

    def own(self, group_id: str) -> Mapping[str, str]:
        """What the group sets itself, as far as is known."""
        record = self._cache.by_group.get(group_id)
        return NONE_SET if record is None else record.configs

    def group_ids(self) -> list[str]:
        """The groups that set something themselves, in order, as far as is known."""
        return sorted(self._cache.by_group)

    async def current(self) -> None:
        """After it, every change that was announced before the call is known."""
        await self._freshness.prove()

    async def run(self) -> None:
        """Notice for ever what others changed, about once a second."""
        while True:
            try:
                await self.current()
            except Unavailable as reason:
                event(_log, "group_configs_stale", logging.WARNING, reason=str(reason))
            await asyncio.sleep(REFRESH_S)

    async def alter(
        self, group_id: str, alteration: Alteration, *, validate_only: bool = False
    ) -> None:
        """Change what the group sets itself, from what that is now; raises `TopicFailure`."""
        is_tried = False
        async with self._changing:
            for _ in range(ATTEMPTS_MAX):
                version, present = await self._read(group_id)
                configs = checked(alteration(present), self.defaults)
                if validate_only or (configs == present and not is_tried):
                    return
                if configs != present:
                    is_tried = True
                    try:
                        await self._write(group_id, configs, version=version)
                    except (Conflict, OutcomeUnknown):
                        continue  # what is there now tells whether it was done
                await self._freshness.announce()
                return
        raise Unavailable(f"the configs of group '{group_id}' are changed too often")

    async def _read(self, group_id: str) -> tuple[int, Mapping[str, str]]:
        """The version of the group's key, 0 for none, and what it says now."""
        version = self._cache.version(key_name(group_id))
        found = await self._store.get(keys.group_configs(group_id))
        if found is None:
            self._cache.forget(key_name(group_id), version=version)
            return 0, NONE_SET
        record = decode(found, self.defaults)
        self._cache.learn(record)
        return record.version, record.configs

    async def _write(self, group_id: str, configs: Mapping[str, str], *, version: int) -> None:
        key = keys.group_configs(group_id)
        if not configs:
            await self._store.put(key, None, expect=version)
            self._cache.forget(key_name(group_id), version=version)
            return
        written = await self._store.put(key, encode(group_id, configs), expect=version)
        in_effect = settings(configs, self.defaults)
        self._cache.learn(GroupRecord(group_id, configs, in_effect, written))
