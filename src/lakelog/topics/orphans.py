"""Streams whose topic is gone are dropped: what a creation that came too late left behind.

Streams are made after their topic's key was written, and dropped before it goes (rule 21). A
creator that stalls may append its Create when another broker has finished the topic and somebody
has deleted it: then the streams come after their Drop. It drops them itself when it finds the key
gone, unless it died, or gave up before it heard that its record had landed.

Such streams belong to a topic id that no key has, and an id is never given to a second topic: so
they are garbage, and stay it. Rules:

- The streams are looked at first and the keys after that: a key that is missing then was there.
- A stream is dropped only when it was garbage in two looks that are a grace apart.
- Only streams that never held a record are dropped. A late creation's never do, because nobody can
  see the topic; and should keys ever be lost, their topics' records are not.
"""

import asyncio
import logging
from typing import Final

from lakelog.clock import Clock
from lakelog.log.log import Log
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Failure
from lakelog.model.ids import TopicId
from lakelog.telemetry import event
from lakelog.topics.topic import decode

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
