"""The copies of keys that a broker holds: the newest reading of each, and how current they are.

A revision key moves with every change; a copy is as current as the revision it was read at
(`CacheFreshness`). One look at the revision serves everyone who asked before it began.

A copy is a `VersionedKeyCache` (pure). Keys are learnt one by one as they are read and written, and
all together when a full reading is installed. A key's version only grows, also when the key is made
again, so an older reading never replaces a newer one; what was learnt while a full reading was
under way is put on top of it. Topics have one such copy (`TopicCache`), the configs of groups
another.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, TypeVar

from lakelog.clock import Clock
from lakelog.meta import keys
from lakelog.meta.port import KeyValue, MetadataStore
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable
from lakelog.model.ids import TopicId
from lakelog.topics import failures
from lakelog.topics.config_values import ConfigSource
from lakelog.topics.settings import ConfigLayer, TopicSettings, in_effect, merged
from lakelog.topics.topic import Topic, TopicState, decode

RELOAD_S: Final = 30.0
"""Everything is read again this often, should an author have died before announcing."""

ATTEMPTS_MAX: Final = 100


class Versioned(Protocol):
    """What a key says, at one version of it."""

    @property
    def version(self) -> int:
        """The version that the key had."""


ValueT = TypeVar("ValueT", bound=Versioned)


@dataclass(frozen=True, slots=True, eq=False)
class KeyScan:
    """A full reading under way: the versions that were learnt since it began, by name."""

    learnt: dict[str, int] = field(default_factory=dict)


class VersionedKeyCache(ABC, Generic[ValueT]):
    """The newest reading of every key with one prefix; what follows the prefix is a key's name."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._values: dict[str, ValueT] = {}
        self._scans: list[KeyScan] = []

    @abstractmethod
    def _name(self, value: ValueT) -> str:
        """The name of the key that says this."""

    @abstractmethod
    def _decode(self, found: KeyValue) -> ValueT:
        """What the key says; raises `Corrupt`."""

    def version(self, name: str) -> int:
        """The version of the key as it is known, 0 for one that is not."""
        value = self._values.get(name)
        return 0 if value is None else value.version

    def learn(self, value: ValueT) -> None:
        """The key was read or written at this version."""
        name = self._name(value)
        self._note(name, value.version)
        if value.version >= self.version(name):
            self._set(name, value)
            self._tell()

    def forget(self, name: str, *, version: int) -> None:
        """The key was found absent or was deleted when its last version was this one."""
        self._note(name, version)
        if self.version(name) <= version:
            self._unset(name)
            self._tell()

    @contextmanager
    def scan(self) -> Iterator[KeyScan]:
        """Opened before all keys are read, so that `install` knows what was learnt meanwhile."""
        scan = KeyScan()
        self._scans.append(scan)
        try:
            yield scan
        finally:
            self._scans.remove(scan)

    def install(self, scan: KeyScan, found: Iterable[KeyValue]) -> None:
        """These are all the keys there were; raises `Corrupt`, and then nothing changes."""
        values = [self._known_or_decoded(key_value) for key_value in found]
        present = {self._name(value): value for value in values}
        for name in [name for name in self._values if name not in present]:
            if name not in scan.learnt:
                self._unset(name)
        for name, value in present.items():
            if value.version > scan.learnt.get(name, 0):
                self._set(name, value)
        self._tell()

    def _known_or_decoded(self, found: KeyValue) -> ValueT:
        """A key whose version is known already is not decoded again."""
        value = self._values.get(found.key.removeprefix(self.prefix))
        is_known = value is not None and value.version == found.version
        return value if value is not None and is_known else self._decode(found)

    def _note(self, name: str, version: int) -> None:
        for scan in self._scans:
            scan.learnt[name] = version

    def _set(self, name: str, value: ValueT) -> None:
        self._values[name] = value

    def _unset(self, name: str) -> ValueT | None:
        return self._values.pop(name, None)

    def _tell(self) -> None:
        """Changes were made."""


class CacheFreshness:
    """Keeps a copy current."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        cache: VersionedKeyCache[Any],
        *,
        revision: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._cache = cache
        self._revision_key = revision
        self._revision = -1  # of the revision key; -1 until the first full reading
        self._loaded_s = 0.0
        self._asked = 0
        self._proved = 0
        self._failed = 0
        self._reading = asyncio.Lock()
        self._announcing = asyncio.Lock()

    async def prove(self) -> None:
        """After it, every change that was announced before the call is known."""
        self._asked += 1
        ticket = self._asked
        async with self._reading:
            if self._proved >= ticket:
                return  # another's look began after we asked
            if self._failed >= ticket:
                raise Unavailable(f"{self._cache.prefix} cannot be read")  # so it did for another
            asked = self._asked
            try:
                await self._look()
            except Unavailable:
                self._failed = asked
                raise
            self._proved = asked

    async def announce(self) -> None:
        """Move the revision; if nobody else moved it since our reading, ours stays current."""
        async with self._announcing:
            expected = self._revision if self._revision >= 0 else None
            for _ in range(ATTEMPTS_MAX):
                try:
                    revision = await self._store.put(self._revision_key, b"1", expect=expected)
                except (Conflict, OutcomeUnknown):
                    expected = None  # moving it once more does no harm
                    continue
                if expected is not None:
                    self._revision = revision
                return
        raise Unavailable(f"{self._revision_key} cannot be moved")

    async def _look(self) -> None:
        """Read the revision and, if it moved or it is time, the keys."""
        found = await self._store.get(self._revision_key)
        revision = 0 if found is None else found.version
        now_s = self._clock.monotonic_s()
        if revision == self._revision and now_s - self._loaded_s < RELOAD_S:
            return
        with self._cache.scan() as scan:
            found_keys = await self._store.range(self._cache.prefix)
            self._cache.install(scan, found_keys)
        self._revision = revision
        self._loaded_s = now_s


class TopicCache(VersionedKeyCache[Topic]):
    """Topics by name, in whatever state, and those that can be seen by id too."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        super().__init__(keys.TOPICS)
        self._static = ConfigLayer(ConfigSource.STATIC, defaults)
        self.layers: tuple[ConfigLayer, ...] = (self._static,)
        self.defaults = defaults
        self.listeners: list[Callable[[], None]] = []
        """Told after a change of what clients may see."""
        self._visible: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._unified: dict[str, set[str]] = {}
        self._unfinished: dict[str, Topic] = {}
        self._sorted: tuple[Topic, ...] | None = None
        self._is_changed = False

    def visible(self, name: str) -> Topic | None:
        """The topic of that name, if clients may see it."""
        return self._visible.get(name)

    def visible_id(self, topic_id: TopicId) -> Topic | None:
        """The topic of that id, if clients may see it."""
        return self._by_id.get(topic_id)

    def all(self) -> tuple[Topic, ...]:
        """The topics that clients may see, by name."""
        if self._sorted is None:
            self._sorted = tuple(self._visible[name] for name in sorted(self._visible))
        return self._sorted

    def unfinished(self) -> list[Topic]:
        """The topics that are not at rest."""
        return [self._unfinished[name] for name in sorted(self._unfinished)]

    def collider(self, name: str) -> str | None:
        """Another name, of a topic that is or comes to be, which differs only in `.` and `_`."""
        others = (
            other for other in self._unified.get(failures.unified_name(name), ()) if other != name
        )
        return min(others, default=None)

    def use(self, altered: Sequence[ConfigLayer]) -> None:
        """Give topics these defaults on top of the broker's own ones, from now on."""
        self.layers = (*altered, self._static)
        self.defaults = merged(self.layers)
        shared: dict[tuple[tuple[str, str], ...], TopicSettings] = {}  # most topics set nothing
        for topic in list(self._values.values()):
            own = tuple(sorted(topic.configs.items()))
            if own not in shared:
                shared[own] = in_effect(topic.configs, self.defaults)
            self._set(topic.name, replace(topic, settings=shared[own]))
        self._tell()

    def learn(self, value: Topic) -> None:
        """The key was read or written at this version."""
        in_force = in_effect(value.configs, self.defaults)
        if in_force != value.settings:  # the defaults moved while a change of it was under way
            value = replace(value, settings=in_force)
        super().learn(value)

    def _name(self, value: Topic) -> str:
        return value.name

    def _decode(self, found: KeyValue) -> Topic:
        return decode(found.value, version=found.version, defaults=self.defaults)

    def _tell(self) -> None:
        if self._is_changed:
            self._is_changed = False
            for listener in self.listeners:
                listener()

    def _set(self, name: str, value: Topic) -> None:
        if self._values.get(name) is value:
            return
        self._unset(name)
        super()._set(name, value)
        if value.state is TopicState.LIVE:
            self._visible[name] = value
            self._by_id[value.id] = value
            self._is_changed = True
        if value.state is not TopicState.DELETING and failures.can_collide(name):
            self._unified.setdefault(failures.unified_name(name), set()).add(name)
        if not value.at_rest:
            self._unfinished[name] = value

    def _unset(self, name: str) -> Topic | None:
        self._sorted = None
        topic = super()._unset(name)
        if topic is None:
            return None
        if self._visible.pop(name, None) is not None:
            self._is_changed = True
        self._by_id.pop(topic.id, None)
        self._unfinished.pop(name, None)
        alike = self._unified.get(failures.unified_name(name))
        if alike is not None:
            alike.discard(name)
            if not alike:
                del self._unified[failures.unified_name(name)]
        return topic
