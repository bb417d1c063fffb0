"""The copies of keys that a broker holds: how current they are, and the one of the topics.

A revision key moves with every change; a copy is as current as the revision it was read at
(`CacheFreshness`). One look at the revision serves everyone who asked before it began. Topics have
one such copy, the configs of groups another.

The copy of the topic keys is `TopicCache` (pure). Keys are learnt one by one as they are read and
written, and all together when a full reading is installed. A key's version only grows, also when
the key is made again, so an older reading never replaces a newer one; what was learnt while a full
reading was under way is put on top of it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Generic, Protocol, TypeVar

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

ScanT = TypeVar("ScanT")


class KeyCache(Protocol[ScanT]):
    """A copy of all keys with one prefix."""

    def scan(self) -> AbstractContextManager[ScanT]:
        """Opened before all keys are read, so that what is learnt meanwhile is not lost."""

    def install(self, scan: ScanT, found: Iterable[KeyValue]) -> None:
        """These are all the keys there were."""


class CacheFreshness(Generic[ScanT]):
    """Keeps a copy current: of the topics, unless other keys are named."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        cache: KeyCache[ScanT],
        *,
        prefix: str = keys.TOPICS,
        revision: str = keys.TOPICS_REVISION,
    ) -> None:
        self._store = store
        self._clock = clock
        self._cache = cache
        self._prefix = prefix
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
                raise Unavailable(f"{self._prefix} cannot be read")  # so it did for another
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
            found_keys = await self._store.range(self._prefix)
            self._cache.install(scan, found_keys)
        self._revision = revision
        self._loaded_s = now_s


@dataclass(frozen=True, slots=True, eq=False)
class TopicScan:
    """A full reading under way: what was learnt since it began, by name."""

    learnt: dict[str, tuple[int, Topic | None]] = field(default_factory=dict)


class TopicCache:
    """Topics by name, in whatever state, and those that can be seen by id too."""

    def __init__(self, defaults: Mapping[str, str]) -> None:
        self._static = ConfigLayer(ConfigSource.STATIC, defaults)
        self.layers: tuple[ConfigLayer, ...] = (self._static,)
        self.defaults = defaults
        self.listeners: list[Callable[[], None]] = []
        """Told after a change of what clients may see."""
        self._by_name: dict[str, Topic] = {}
        self._visible: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._unified: dict[str, set[str]] = {}
        self._unfinished: dict[str, Topic] = {}
        self._sorted: tuple[Topic, ...] | None = None
        self._scans: list[TopicScan] = []
        self._is_changed = False

    def version(self, name: str) -> int:
        """The version of the key as it is known, 0 for a name that is not."""
        topic = self._by_name.get(name)
        return 0 if topic is None else topic.version

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
        for topic in list(self._by_name.values()):
            own = tuple(sorted(topic.configs.items()))
            if own not in shared:
                shared[own] = in_effect(topic.configs, self.defaults)
            self._set(replace(topic, settings=shared[own]))
        self._tell()

    def learn(self, topic: Topic) -> None:
        """The key was read or written at this version."""
        settings = in_effect(topic.configs, self.defaults)
        if settings != topic.settings:  # the defaults moved while a change of it was under way
            topic = replace(topic, settings=settings)
        for scan in self._scans:
            scan.learnt[topic.name] = (topic.version, topic)
        if topic.version >= self.version(topic.name):
            self._set(topic)
            self._tell()

    def forget(self, name: str, *, version: int) -> None:
        """The key was found absent or was deleted when its last version was this one."""
        for scan in self._scans:
            scan.learnt[name] = (version, None)
        if self.version(name) <= version:
            self._unset(name)
            self._tell()

    @contextmanager
    def scan(self) -> Iterator[TopicScan]:
        """Opened before all keys are read, so that `install` knows what was learnt meanwhile."""
        scan = TopicScan()
        self._scans.append(scan)
        try:
            yield scan
        finally:
            self._scans.remove(scan)

    def install(self, scan: TopicScan, found: Iterable[KeyValue]) -> None:
        """These are all the keys there were; raises `Corrupt`, and then nothing changes.

        Keys whose version is known already are not decoded again.
        """
        topics: list[Topic] = []
        for key_value in found:
            topic = self._by_name.get(key_value.key.removeprefix(keys.TOPICS))
            if topic is None or topic.version != key_value.version:
                topic = decode(key_value.value, version=key_value.version, defaults=self.defaults)
            topics.append(topic)
        present = {topic.name for topic in topics}
        for name in [name for name in self._by_name if name not in present]:
            if name not in scan.learnt:
                self._unset(name)
        for topic in topics:
            version, _ = scan.learnt.get(topic.name, (0, None))
            if topic.version > version:
                self._set(topic)
        self._tell()

    def _tell(self) -> None:
        if self._is_changed:
            self._is_changed = False
            for listener in self.listeners:
                listener()

    def _set(self, topic: Topic) -> None:
        name = topic.name
        if self._by_name.get(name) is topic:
            return
        self._unset(name)
        self._by_name[name] = topic
        if topic.state is TopicState.LIVE:
            self._visible[name] = topic
            self._by_id[topic.id] = topic
            self._is_changed = True
        if topic.state is not TopicState.DELETING and failures.can_collide(name):
            self._unified.setdefault(failures.unified_name(name), set()).add(name)
        if not topic.at_rest:
            self._unfinished[name] = topic

    def _unset(self, name: str) -> None:
        self._sorted = None
        topic = self._by_name.pop(name, None)
        if topic is None:
            return
        if self._visible.pop(name, None) is not None:
            self._is_changed = True
        self._by_id.pop(topic.id, None)
        self._unfinished.pop(name, None)
        alike = self._unified.get(failures.unified_name(name))
        if alike is not None:
            alike.discard(name)
            if not alike:
                del self._unified[failures.unified_name(name)]
