"""The topics of the cluster as one broker knows them, and every change of them.

What is known is a copy of the topic keys, as current as the revision key it was read at; a change
is announced by moving that key. Rules:

- A known topic is answered without asking the store; an unknown name or id is never answered
  "unknown" before the store was asked after the question came (T1). One look at the revision
  serves everyone who waits, so a storm of unknown names costs no more than one name.
- The revision moves after a change can be seen and before its author hears of it. Should its
  author die in between, the next full reading (see `key_cache`) finds the change.
- Work that somebody left half done (see `lakelog.topics.topic`) is finished by whoever needs the
  name, or by `refresh` when it has lain there for `LEFT_BEHIND_S`.
- Nothing here waits for ever on its own account; callers bound a whole change by a timeout, and a
  change that was cut short can be asked for again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from lakelog.clock import Clock, Entropy
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import TopicId
from lakelog.telemetry import event
from lakelog.topics import failures
from lakelog.topics.changes import ATTEMPTS_MAX, Streams, TopicChanges
from lakelog.topics.failures import (
    InvalidPartitions,
    InvalidReplication,
    InvalidTopic,
    NoSuchTopic,
    TooLarge,
    TopicExists,
)
from lakelog.topics.id_blocks import take_block
from lakelog.topics.key_cache import CacheFreshness, TopicCache
from lakelog.topics.settings import ConfigLayer, TopicDefaults, settings
from lakelog.topics.topic import StreamSpan, Topic, TopicState, new_topic_id

REFRESH_S: Final = 1.0
LEFT_BEHIND_S: Final = 10.0
PARTITIONS_MAX: Final = 100_000
"""The most partitions of one topic."""

FIRST_STREAM: Final = 1
UNCONFIRMED_MAX: Final = 1_000

Alteration: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""From a topic's own configs to what they shall be; raises `TopicFailure`."""

_log = logging.getLogger(__name__)


class Topics:
    """Finds and changes the topics of a cluster."""

    def __init__(
        self,
        store: MetadataStore,
        log: Streams,
        clock: Clock,
        entropy: Entropy,
        defaults: TopicDefaults | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._entropy = entropy
        self._cache = TopicCache((defaults or TopicDefaults()).configs())
        self._freshness = CacheFreshness(store, clock, self._cache, revision=keys.TOPICS_REVISION)
        self._changes = TopicChanges(store, log, entropy, self._cache, self._collides)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._unconfirmed: dict[str, Topic] = {}
        self._left_behind: dict[str, tuple[int, float]] = {}

    @property
    def defaults(self) -> Mapping[str, str]:
        """The configs that this broker gives topics which do not set them."""
        return self._cache.defaults

    @property
    def layers(self) -> tuple[ConfigLayer, ...]:
        """The same by where they were set; a layer before another hides what that one sets."""
        return self._cache.layers

    def use(self, altered: Sequence[ConfigLayer]) -> None:
        """Give topics these defaults on top of the options', from now on."""
        self._cache.use(altered)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call it whenever the topics that are known have changed."""
        self._cache.listeners.append(listener)

    def cached(self, name: str) -> Topic | None:
        """The topic of that name if it is known; None proves nothing (see `find`)."""
        return self._cache.visible(name)

    def cached_id(self, topic_id: TopicId) -> Topic | None:
        """The topic of that id if it is known; None proves nothing (see `find_id`)."""
        return self._cache.visible_id(topic_id)

    def cached_all(self) -> tuple[Topic, ...]:
        """The topics that are known, by name."""
        return self._cache.all()

    async def find(self, name: str) -> Topic | None:
        """The topic of that name, or None when there is none."""
        if self.cached(name) is None and failures.name_fault(name) is None:
            await self.current()
        return self.cached(name)

    async def find_id(self, topic_id: TopicId) -> Topic | None:
        """The topic of that id, or None when there is none."""
        if self.cached_id(topic_id) is None:
            await self.current()
        return self.cached_id(topic_id)

    async def all(self) -> tuple[Topic, ...]:
        """Every topic there is, by name."""
        await self.current()
        return self.cached_all()

    async def current(self) -> None:
        """After it, every change that was announced before the call is known."""
        await self._freshness.prove()

    async def refresh(self) -> None:
        """Notice what others changed, and finish what others left behind."""
        await self.current()
        now_s = self._clock.monotonic_s()
        seen = {topic.name: topic for topic in self._cache.unfinished()}
        for name in [name for name in self._left_behind if name not in seen]:
            del self._left_behind[name]
        for name, topic in seen.items():
            version, since_s = self._left_behind.setdefault(name, (topic.version, now_s))
            if version != topic.version:
                self._left_behind[name] = (topic.version, now_s)
            elif now_s - since_s >= LEFT_BEHIND_S:
                await self._finish_for_others(topic)

    async def run(self) -> None:
        """Refresh for ever, about once a second."""
        while True:
            try:
                await self.refresh()
            except (Unavailable, OutcomeUnknown) as reason:
                event(_log, "topics_stale", logging.WARNING, reason=str(reason))
            await asyncio.sleep(REFRESH_S)

    async def create(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic and return it once everybody can see it; raises `TopicFailure`."""
        failures.check_name(name)
        async with self._lock(name):
            for _ in range(ATTEMPTS_MAX):
                found = await self._changes.read(name)
                if found is not None:
                    topic = await self._came_late(found, partitions, replication_factor, configs)
                    if topic is not None:
                        return topic
                    continue
                draft = self._draft(name, partitions, replication_factor, configs)
                await self._refuse_collision(name)
                if validate_only:
                    return draft
                try:
                    return await self._begin(draft)
                except Conflict:
                    continue
        raise Unavailable(f"topic '{name}' is changed too often")

    async def ensure(self, name: str, *, partitions: int, replication_factor: int) -> Topic:
        """The topic of that name, made if there is none; a crowd that asks makes one topic."""
        async with self._lock(f"ensure {name}"):
            cache = self.cached(name)
            if cache is not None:
                return cache
            try:
                return await self.create(
                    name, partitions=partitions, replication_factor=replication_factor, configs={}
                )
            except TopicExists:
                topic = self.cached(name)
                if topic is None:
                    raise Unavailable(f"topic '{name}' comes and goes") from None
                return topic

    async def delete(self, topic: Topic) -> None:
        """Let nobody see the topic any more, then free what it holds; raises `NoSuchTopic`.

        From the moment nobody sees it the topic is deleted; should freeing fail, `refresh` of any
        broker goes on with it.
        """
        async with self._lock(topic.name):
            for _ in range(ATTEMPTS_MAX):
                found = await self._visible(topic)
                try:
                    marked = await self._changes.write(
                        replace(found.grown(), state=TopicState.DELETING)
                    )
                except Conflict:
                    continue
                await self._freshness.announce()
                try:
                    await self._changes.finish(marked)
                except (Unavailable, OutcomeUnknown) as reason:
                    event(_log, "topic_not_freed_yet", topic=topic.name, reason=str(reason))
                return
        raise Unavailable(f"topic '{topic.name}' is changed too often")

    async def grow(self, topic: Topic, count: int, *, validate_only: bool = False) -> Topic:
        """Give the topic partitions up to `count`; raises `TopicFailure`."""
        async with self._lock(topic.name):
            for _ in range(ATTEMPTS_MAX):
                found = await self._visible(topic)
                if found.growing is not None and not validate_only:
                    grown = await self._finished(found)
                    if found.partition_count < count == grown.partition_count:
                        return grown  # the same growth, asked for again
                    continue
                _check_growth(found, count)
                if validate_only:
                    return found
                added = count - found.partition_count
                block = await take_block(self._store, keys.NEXT_STREAM, added, first=FIRST_STREAM)
                span = StreamSpan(found.partition_count, block.start, added)
                try:
                    begun = await self._changes.write(replace(found, growing=span))
                except Conflict:
                    continue
                return await self._finished(begun)
        raise Unavailable(f"topic '{topic.name}' is changed too often")

    async def alter(
        self, topic: Topic, alteration: Alteration, *, validate_only: bool = False
    ) -> Topic:
        """Change the topic's own configs, starting from what they are now."""
        async with self._lock(topic.name):
            for _ in range(ATTEMPTS_MAX):
                found = await self._visible(topic)
                configs = alteration(found.configs)
                changed = replace(found, configs=configs, settings=settings(configs, self.defaults))
                if validate_only or configs == found.configs:
                    return changed
                try:
                    written = await self._changes.write(changed)
                except Conflict:
                    continue
                await self._freshness.announce()
                return written
        raise Unavailable(f"topic '{topic.name}' is changed too often")

    def _lock(self, name: str) -> asyncio.Lock:
        """One change of a topic at a time in this process; others are met at the store."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _collides(self, name: str) -> bool:
        """Whether a name like this one is there or comes to be, announced before we look."""
        if not failures.can_collide(name):
            return False
        await self._freshness.announce()
        await self.current()
        return self._cache.collider(name) is not None

    async def _refuse_collision(self, name: str) -> None:
        if failures.can_collide(name):
            await self.current()
            other = self._cache.collider(name)
            if other is not None:
                raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")

    def _draft(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> Topic:
        """The topic as asked for, checked, with an id and without streams of its own yet."""
        checked = settings(configs, self.defaults)
        if replication_factor < 1:
            raise InvalidReplication(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if partitions < 1:
            raise InvalidPartitions(
                "Number of partitions was set to an invalid non-positive value."
            )
        if partitions > PARTITIONS_MAX:
            raise TooLarge(f"A topic has at most {PARTITIONS_MAX} partitions.")
        return Topic(
            name=name,
            id=new_topic_id(self._entropy),
            spans=(StreamSpan(0, FIRST_STREAM, partitions),),
            replication_factor=replication_factor,
            configs=dict(configs),
            settings=checked,
            state=TopicState.CREATING,
        )

    async def _begin(self, draft: Topic) -> Topic:
        """Write the decision down and carry it out; `Conflict`: the name is taken meanwhile."""
        count = draft.partition_count
        block = await take_block(self._store, keys.NEXT_STREAM, count, first=FIRST_STREAM)
        begun = await self._changes.write(
            replace(draft, spans=(StreamSpan(0, block.start, count),))
        )
        if len(self._unconfirmed) >= UNCONFIRMED_MAX:
            self._unconfirmed.pop(next(iter(self._unconfirmed)))
        self._unconfirmed[draft.name] = begun
        done = await self._changes.finish(begun)
        await self._freshness.announce()
        self._unconfirmed.pop(draft.name, None)
        if done is None:
            other = self._cache.collider(draft.name)
            if other is not None:
                raise InvalidTopic(f"Topic '{draft.name}' collides with existing topic: {other}")
            return replace(begun, state=TopicState.LIVE)  # made, and deleted at once by another
        return done

    async def _came_late(
        self,
        found: Topic,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
    ) -> Topic | None:
        """The name is taken: raises `TopicExists`, unless the topic is on its way out (None) or
        is what this broker began for the same request and could not confirm.
        """
        topic = await self._changes.finish(found)
        if not found.at_rest:
            await self._freshness.announce()
        if topic is None:
            return None
        begun = self._unconfirmed.pop(found.name, None)
        if (
            begun is not None
            and begun.id == topic.id
            and topic.partition_count == partitions
            and topic.replication_factor == replication_factor
            and topic.configs == configs
        ):
            return topic
        raise TopicExists(f"Topic '{found.name}' already exists.")

    async def _visible(self, topic: Topic) -> Topic:
        """What the topic's key says now; raises `NoSuchTopic` when it is gone or another's."""
        found = await self._changes.read(topic.name)
        if found is None or found.id != topic.id or found.state is not TopicState.LIVE:
            if found is not None and found.state is TopicState.DELETING:
                await self._changes.finish(found)
            raise NoSuchTopic("This server does not host this topic-partition.")
        return found

    async def _finished(self, topic: Topic) -> Topic:
        done = await self._changes.finish(topic)
        await self._freshness.announce()
        if done is None:
            raise NoSuchTopic("This server does not host this topic-partition.")
        return done

    async def _finish_for_others(self, topic: Topic) -> None:
        async with self._lock(topic.name):
            found = await self._changes.read(topic.name)
            if found is None or found.version != topic.version:
                return
            try:
                await self._changes.finish(found)
                await self._freshness.announce()
            except Failure as reason:  # the others' work must not stop ours; it is tried again
                event(_log, "topic_left_behind", topic=topic.name, reason=str(reason))
            else:
                event(_log, "topic_finished_for_another", topic=topic.name, state=found.state.value)


def _check_growth(topic: Topic, count: int) -> None:
    if count == topic.partition_count:
        raise InvalidPartitions(f"Topic already has {count} partition(s).")
    if count < topic.partition_count:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {topic.partition_count} partition(s);"
            f" {count} would not be an increase."
        )
    if count > PARTITIONS_MAX:
        raise TooLarge(f"A topic has at most {PARTITIONS_MAX} partitions.")
