"""Carries a decided change of a topic through: its key, then its streams, then its key.

Rule 21: streams are created in their domain before the topic can be seen, and dropped after it
cannot be seen any more. Each step may be done twice and by anyone, so a broker that stops half-way
leaves work behind, never a mess. Names that differ only in `.` and `_` must not both become
visible: whoever carries a CREATING topic on looks for such a name after the decision was written,
so of two at least one sees the other and withdraws.

`OrphanStreams` drops what a creation that came too late left behind. A creator that stalls may
append its Create when another broker has finished the topic and somebody has deleted it: then the
streams come after their Drop. It drops them itself when it finds the key gone, unless it died, or
gave up before it heard that its record had landed. Such streams belong to a topic id that no key
has, and an id is never given to a second topic: so they are garbage, and stay it. Rules:

- The streams are looked at first and the keys after that: a key that is missing then was there.
- A stream is dropped only when it was garbage in two looks that are a grace apart.
- Only streams that never held a record are dropped. A late creation's never do, because nobody can
  see the topic; and should keys ever be lost, their topics' records are not.

`policies` is what each stream keeps, as retention asks for it: by the topics' configs, read right
now (T6).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from lakelog.clock import Clock, Entropy
from lakelog.log.log import Log
from lakelog.log.retention import Policy
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import TopicId
from lakelog.telemetry import event
from lakelog.topics.key_cache import TopicCache
from lakelog.topics.topic import StreamSpan, Topic, TopicState, decode, encode

if TYPE_CHECKING:
    from lakelog.topics.broker_configs import BrokerConfigs
    from lakelog.topics.registry import Topics

STREAMS_PER_CALL: Final = 1_024
"""So many streams are made or dropped at a time: a huge topic must not hold up the others."""

ATTEMPTS_MAX: Final = 100
"""Every failed attempt is another's progress; a topic is not changed that often in a second."""

_CHANGE_TOKEN_BYTES: Final = 8


class Streams(Protocol):
    """What a topic needs of the log: that its streams begin and cease to exist."""

    async def create_streams(
        self, topic: TopicId, *, first_partition: int, streams: Sequence[int]
    ) -> None:
        """Return when these streams exist; those that exist already are fine."""

    async def drop_streams(self, streams: Sequence[int]) -> None:
        """Return when none of these streams exists."""


class TopicChanges:
    """Moves the keys of topics from state to state; what it reads and writes becomes known.

    `collides` tells, for a topic that is being created, whether another one like it is there or
    comes to be; it must look after the topic's key was written.
    """

    def __init__(
        self,
        store: MetadataStore,
        streams: Streams,
        entropy: Entropy,
        cache: TopicCache,
        collides: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._streams = streams
        self._entropy = entropy
        self._cache = cache
        self._collides = collides

    async def read(self, name: str) -> Topic | None:
        """What the topic's key says now, in whatever state."""
        version = self._cache.version(name)
        found = await self._store.get(keys.topic(name))
        if found is None:
            self._cache.forget(name, version=version)
            return None
        topic = decode(found.value, version=found.version, defaults=self._cache.defaults)
        self._cache.learn(topic)
        return topic

    async def write(self, topic: Topic) -> Topic:
        """Put the topic's key in the place of its version; `Conflict`: look again.

        An unknown outcome is settled by reading: the key either is as we wrote it, or another
        change came first or after, which is for the caller to look at (F4).
        """
        value = encode(topic, change=self._entropy.token(_CHANGE_TOKEN_BYTES))
        key = keys.topic(topic.name)
        try:
            version = await self._store.put(key, value, expect=topic.version)
        except OutcomeUnknown:
            found = await self._store.get(key)
            if found is None or found.value != value:
                raise Conflict(f"{key} is not as it was written") from None
            version = found.version
        written = replace(topic, version=version)
        self._cache.learn(written)
        return written

    async def finish(self, topic: Topic) -> Topic | None:
        """Carry on what the key decided, until the topic is at rest or, as None, gone."""
        for _ in range(ATTEMPTS_MAX):
            if topic.at_rest:
                return topic
            if topic.state is TopicState.DELETING:
                await self._remove(topic)
                return None
            created = await self._create_streams(topic)
            try:
                topic = await self.write(await self._next(topic))
            except Conflict:
                found = await self.read(topic.name)
                if found is None or found.id != topic.id or found.state is TopicState.DELETING:
                    # The topic went while its streams came: nobody else drops these now.
                    await self._drop(created)
                    return None
                topic = found
        raise Unavailable(f"topic '{topic.name}' is changed too often")

    async def _next(self, topic: Topic) -> Topic:
        if topic.state is TopicState.LIVE:
            return topic.grown()
        collides = await self._collides(topic.name)
        return replace(topic, state=TopicState.DELETING if collides else TopicState.LIVE)

    async def _create_streams(self, topic: Topic) -> tuple[StreamSpan, ...]:
        growing = () if topic.growing is None else (topic.growing,)
        spans = topic.spans if topic.state is TopicState.CREATING else growing
        for span in spans:
            streams = span.streams()
            for start in range(0, span.count, STREAMS_PER_CALL):
                await self._streams.create_streams(
                    topic.id,
                    first_partition=span.first_partition + start,
                    streams=streams[start : start + STREAMS_PER_CALL],
                )
        return spans

    async def _drop(self, spans: Sequence[StreamSpan]) -> None:
        for span in spans:
            streams = span.streams()
            for start in range(0, span.count, STREAMS_PER_CALL):
                await self._streams.drop_streams(streams[start : start + STREAMS_PER_CALL])

    async def _remove(self, topic: Topic) -> None:
        """Drop the streams, then the key; whoever finds the key gone or another's is done too."""
        await self._drop(topic.spans)
        key = keys.topic(topic.name)
        for _ in range(ATTEMPTS_MAX):
            try:
                await self._store.put(key, None, expect=topic.version)
            except (Conflict, OutcomeUnknown):
                found = await self.read(topic.name)
                if found is None or found.id != topic.id:
                    return
                topic = found
            else:
                self._cache.forget(topic.name, version=topic.version)
                return
        raise Unavailable(f"{key} cannot be deleted")


LOOK_INTERVAL_S: Final = 300.0
GRACE_S: Final = 600.0

_log = logging.getLogger(__name__)


class OrphanStreams:
    """Finds and drops the streams that no topic has."""

    def __init__(self, store: MetadataStore, log: Log, clock: Clock) -> None:
        self._store = store
        self._streams = log
        self._clock = clock
        self._suspects: dict[TopicId, float] = {}

    async def run(self) -> None:
        """Look for ever, once an interval."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            try:
                await self.drop_once()
            except Failure as error:
                event(_log, "orphans_not_dropped", logging.WARNING, reason=repr(error))

    async def drop_once(self) -> int:
        """One look; returns how many streams were dropped."""
        empty = self._empty_streams()
        orphans = empty.keys() - await self._topics()
        now_s = self._clock.monotonic_s()
        self._suspects = {topic: self._suspects.get(topic, now_s) for topic in sorted(orphans)}
        condemned = [
            stream
            for topic, since_s in self._suspects.items()
            if now_s - since_s >= GRACE_S
            for stream in empty[topic]
        ]
        if condemned:
            await self._streams.drop_streams(condemned)
            event(_log, "orphans_dropped", streams=len(condemned))
        return len(condemned)

    def _empty_streams(self) -> dict[TopicId, list[int]]:
        """The streams that never held a record, by the topic they were made for."""
        found: dict[TopicId, list[int]] = {}
        for replica in self._streams.replicas:
            for topic, streams in replica.state.streams.empty_by_topic().items():
                found.setdefault(topic, []).extend(streams)
        return found

    async def _topics(self) -> set[TopicId]:
        """The ids of all topics that have a key, in whatever state."""
        found = await self._store.range(keys.TOPICS)
        return {decode(key.value, version=key.version).id for key in found}


async def policies(topics: "Topics", configs: "BrokerConfigs") -> Mapping[int, Policy]:
    """The policy of every stream whose topic drops old records; others are left out."""
    await configs.current()  # what topics get that do not say how long they keep records
    found: dict[int, Policy] = {}
    for topic in await topics.all():
        kept = topic.settings
        if kept.delete and (kept.retention_ms >= 0 or kept.retention_bytes >= 0):
            policy = Policy(kept.retention_ms, max(kept.retention_bytes, -1))
            found.update(dict.fromkeys(topic.streams(), policy))
    return found
