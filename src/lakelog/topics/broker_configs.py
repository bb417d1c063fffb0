"""The configs of brokers that were altered while they ran, and every change of them.

One key in the metadata store holds them: those for all brokers, and those for single ones. Each
broker keeps a copy, reads it again about once a second, and tells whoever lives by it; what it
changes itself it knows at once. A configuration file is below all of this: what was altered hides
what the file says, until it is altered back, as in Kafka.

Two writers meet at the key's version. A change is worked out again from what is there, so one whose
outcome is unknown can be made once more: it says what shall be, not by how much.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from lakelog.meta import keys
from lakelog.meta.port import VALUE_BYTES_MAX, KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, OutcomeUnknown, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.telemetry import event
from lakelog.topics.broker_settings import check_for_all, checked, readable
from lakelog.topics.config_values import ConfigSource
from lakelog.topics.failures import TooLarge
from lakelog.topics.settings import ConfigLayer, merged

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
