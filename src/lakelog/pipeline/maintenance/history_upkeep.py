"""Upkeep of the histories of snapshots: what is too old goes, and all of it with its topic.

A history belongs to a topic that is gone if the topic is not in a list that was asked for after the
history was seen, for a topic is there before its table, and an id never comes back. It is deleted
when it was seen so in two passes one grace apart: a commit that was under way when the topic went
has ended by then, and puts down nothing more. What is seen is in the memory of this object; a new
process begins anew.

How long snapshots are remembered is the topic's `lakelog.snapshots.history.ms`, counted from when
the table let go of them. Each history is looked at once in a while, and costs two reads then.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.snapshot_page import FOR_EVER, kept_from
from lakelog.clock import Clock
from lakelog.index.ports import IndexedTopic, LogIndex
from lakelog.model.failures import Failure
from lakelog.pipeline.waits import reading, writing


@dataclass(frozen=True, slots=True)
class HistoryUpkeepOptions:
    """How patient the upkeep is, and how often it looks."""

    grace_ms: int = 10 * 60 * 1000
    """The history of a topic is deleted when the topic was missing in two passes this far apart."""
    trim_ms: int = 3_600_000
    """How often each history is looked at for what is too old."""
    index_s: float = 30.0
    store_s: float = 60.0
    """How long one question to a broker, or one piece of work in the metadata store, may take."""

    def __post_init__(self) -> None:
        assert min(self.grace_ms, self.trim_ms) >= 0, self


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """What one pass deleted, and what it could not do."""

    pages: int
    """Sealed pages of which everything was too old."""
    topics: int
    """Whole histories of topics that are gone."""
    problems: tuple[str, ...]


class HistoryUpkeep:
    """Deletes what need not be remembered of the snapshots of all tables."""

    def __init__(
        self, history: SnapshotHistory, index: LogIndex, clock: Clock, options: HistoryUpkeepOptions
    ) -> None:
        self.is_clock_right: Callable[[], Awaitable[bool]] = _trust
        """Whether our clock is that of the object store, nearly (rule 20)."""
        self._history = history
        self._index = index
        self._clock = clock
        self._options = options
        self._missing: dict[str, float] = {}
        """Histories without a topic, and since when."""
        self._trimmed: dict[str, float] = {}
        """When each history was looked at last."""

    async def apply_once(self) -> HistoryReport:
        """One pass over all histories; `Unavailable` when store or broker do not answer."""
        ids = await reading(self._history.topic_ids(), limit_s=self._options.store_s)
        topics = await reading(self._index.topics(), limit_s=self._options.index_s)
        live = {topic.topic_id.hex(): topic for topic in topics}
        self._trimmed = {one: at for one, at in self._trimmed.items() if one in live}
        gone = {one for one in ids if one not in live}
        self._missing = {one: at for one, at in self._missing.items() if one in gone}
        pages = forgotten = 0
        problems = []
        for topic_id in ids:
            try:
                topic = live.get(topic_id)
                if topic is None:
                    forgotten += await self._forgotten(topic_id)
                else:
                    pages += await self._trim(topic)
            except Failure as error:
                problems.append(f"the history of snapshots of topic {topic_id}: {error!r}")
        return HistoryReport(pages, forgotten, tuple(problems))

    async def _forgotten(self, topic_id: str) -> bool:
        now_s = self._clock.monotonic_s()
        since_s = self._missing.get(topic_id)
        if since_s is None:
            self._missing[topic_id] = now_s
            return False
        if now_s - since_s < self._options.grace_ms / 1000:
            return False
        await writing(self._history.forget(topic_id), limit_s=self._options.store_s)
        del self._missing[topic_id]
        return True

    async def _trim(self, topic: IndexedTopic) -> int:
        kept_ms, topic_id = topic.snapshots_history_ms, topic.topic_id.hex()
        now_s = self._clock.monotonic_s()
        seen_s = self._trimmed.get(topic_id)
        is_due = seen_s is None or now_s - seen_s >= self._options.trim_ms / 1000
        if kept_ms == FOR_EVER or not is_due:
            return 0
        if not await self.is_clock_right():
            return 0
        kept_from_ms = kept_from(kept_ms, now_ms=self._clock.now_ms())
        work = self._history.trim(topic_id, kept_from_ms=kept_from_ms)
        pages = await writing(work, limit_s=self._options.store_s)
        self._trimmed[topic_id] = now_s
        return pages


async def _trust() -> bool:
    return True
