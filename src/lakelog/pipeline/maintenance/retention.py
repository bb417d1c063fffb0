"""Retention of tables: files whose rows are all too old, and snapshots remembered for too long.

A file goes when no index entry names it any more, that is when what it stands for lies wholly below
the first entry, and when its newest row is older than the topic's `lakelog.table.retention.ms`.
Files go from the beginning of a partition on and none is passed over: what is left has no gap.
The offset vector stays as it is. Each partition is one compare-and-swap on the snapshot that was
decided on; there is no record and nothing to resume: who finds another snapshot decides anew. The
objects are deleted by the sweeper, once no snapshot that is left names them.

What deletes by age asks a clock that agrees with the object store's (rule 20), and the topic's
setting is read right before a table is changed (T6). A task that was to replace one of the files
finds it gone and gives up.

Of the histories of snapshots, what is too old goes, and all of a history with its topic. A history
belongs to a topic that is gone if the topic is not in a list that was asked for after the history
was seen, for a topic is there before its table, and an id never comes back. It is deleted when it
was seen so in two passes one grace apart: a commit that was under way when the topic went has ended
by then, and puts down nothing more. What is seen is in the memory of this object; a new process
begins anew. How long snapshots are remembered is the topic's `lakelog.snapshots.history.ms`,
counted from when the table let go of them. Each history is looked at once in a while, and costs two
reads then.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import TOPIC_ID_PROPERTY, DataFileView, Replacement, TableName, Tables
from lakelog.catalog.snapshot_page import FOR_EVER, kept_from
from lakelog.clock import Clock, agreed_now_ms
from lakelog.index.ports import IndexedTopic, LogIndex, StreamRange
from lakelog.log.options import CLOCK_HINT
from lakelog.log.parquet_source import read_end
from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.options import reading, writing
from lakelog.records.table_file import TableFile
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.pipeline")


FOOTERS_AT_ONCE: Final = 8
AGES_MAX: Final = 100_000
"""The files whose age is remembered: of one that is too young, the footer is read once."""

_COMMIT_ID: Final = "retention"


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """How much is removed at once, and how long that may take."""

    namespace: str = "lakelog"
    files_max: int = 1000
    """The most files of a partition that one pass removes."""
    clock_skew_max_ms: int = 60_000
    """Rule 20: what deletes by age needs a clock this close to the object store's."""
    index_s: float = 30.0
    table_s: float = 120.0
    object_s: float = 30.0
    """How long one question to each of these may take."""


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """What one pass removed from tables, and what it could not do."""

    files: int
    rows: int
    size_bytes: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileAge:
    """What the footer of a file says: where the offsets end that it stands for, and how new it is.

    A file may stand for more offsets than it has rows, and an entry may name it for those alone.
    """

    end: int
    newest_us: int


@dataclass(frozen=True, slots=True)
class RetentionBounds:
    """What a partition keeps: files that end after `first_start` or have rows as new as that."""

    first_start: int
    """Where the first index entry begins."""
    kept_from_us: int


def bounds_of(topic: IndexedTopic, *, first_start: int, now_ms: int) -> RetentionBounds:
    """The bounds of a topic's partition, now; it has a retention."""
    assert topic.table_retention_ms >= 0, topic
    return RetentionBounds(first_start, (now_ms - topic.table_retention_ms) * 1000)


def is_expired(age: FileAge, bounds: RetentionBounds) -> bool:
    """Whether a file is wholly below the log and all of its rows are too old."""
    return age.end <= bounds.first_start and age.newest_us < bounds.kept_from_us


def plan_removal(
    files: Sequence[tuple[DataFileView, FileAge]], bounds: RetentionBounds, *, files_max: int
) -> tuple[DataFileView, ...]:
    """The files that go, of all those at the beginning of a partition, in order of offsets."""
    expired: list[DataFileView] = []
    for file, age in files[:files_max]:
        if not is_expired(age, bounds):
            break
        expired.append(file)
    return tuple(expired)


class TableRetention:
    """Removes what is too old from the tables of topics that say how long rows are kept."""

    def __init__(
        self,
        objects: ObjectStore,
        index: LogIndex,
        tables: Tables,
        clock: Clock,
        options: RetentionOptions,
    ) -> None:
        self._objects = objects
        self._index = index
        self._tables = tables
        self._clock = clock
        self._options = options
        self._ages: OrderedDict[str, FileAge] = OrderedDict()
        self._now_ms = 0
        """The time that this pass judges by: the clock was found right then."""
        self._removed: list[DataFileView] = []
        self._problems: list[str] = []

    async def apply_once(self) -> RetentionReport:
        """One pass over all topics; `Unavailable` when the broker does not answer."""
        self._removed, self._problems = [], []
        agreed = agreed_now_ms(
            self._clock, self._objects.clock_skew_ms, skew_max_ms=self._options.clock_skew_max_ms
        )
        now_ms = await reading(agreed, limit_s=self._options.object_s)
        if now_ms is None:
            event(_log, "clock_differs", logging.ERROR, hint=f"retention waits; {CLOCK_HINT}")
            self._problems.append("the clock differs from the object store's: nothing is removed")
            return self._report()
        self._now_ms = now_ms
        for topic in await self._topics():
            if topic.table_retention_ms < 0:
                continue
            try:
                await self._apply(topic)
            except Failure as error:
                self._problems.append(f"{topic.name}: {error!r}")
        return self._report()

    def _report(self) -> RetentionReport:
        rows = sum(file.row_count for file in self._removed)
        size_bytes = sum(file.size_bytes for file in self._removed)
        if self._removed:
            event(_log, "rows_expired", files=len(self._removed), rows=rows)
        return RetentionReport(len(self._removed), rows, size_bytes, tuple(self._problems))

    async def _topics(self) -> Sequence[IndexedTopic]:
        return await reading(self._index.topics(), limit_s=self._options.index_s)

    async def _apply(self, topic: IndexedTopic) -> None:
        name = TableName(self._options.namespace, topic.name)
        table = await reading(self._tables.load(name), limit_s=self._options.table_s)
        topic_id = topic.topic_id.hex()
        if table is None or table.properties.get(TOPIC_ID_PROPERTY) != topic_id:
            return
        ranges = [StreamRange(stream, 0, 1) for stream in topic.streams]
        views = await reading(self._index.views(ranges), limit_s=self._options.index_s)
        token = table.token
        for partition, view in enumerate(views):
            if view is None or not view.first_start or not table.vector.get(partition):
                continue  # the log has all that the table has, or the table has nothing of it
            removed = await self._expired(name, topic, partition, view.first_start)
            if removed:
                keys = tuple(file.key for file in removed)
                change = self._tables.replace(
                    name,
                    Replacement(partition, keys, added=(), drops_rows=True),
                    topic_id=topic_id,
                    commit_id=_COMMIT_ID,
                    expect=token,
                )
                token = (await writing(change, limit_s=self._options.table_s)).token
                self._removed += removed

    async def _expired(
        self, name: TableName, topic: IndexedTopic, partition: int, first_start: int
    ) -> tuple[DataFileView, ...]:
        """What goes from a partition, by the setting as it is now."""
        listing = self._tables.files(name, partition=partition, start=0, end=first_start)
        files = await reading(listing, limit_s=self._options.table_s)
        bounds = bounds_of(topic, first_start=first_start, now_ms=self._now_ms)
        aged = await self._aged(files[: self._options.files_max], bounds)
        planned = plan_removal(aged, bounds, files_max=self._options.files_max)
        if not planned:
            return ()
        # T6: a setting that was changed since this pass began counts.
        now = [other for other in await self._topics() if other.topic_id == topic.topic_id]
        if not now or now[0].table_retention_ms < 0:
            return ()
        bounds = bounds_of(now[0], first_start=first_start, now_ms=self._now_ms)
        return plan_removal(aged, bounds, files_max=len(planned))

    async def _aged(
        self, files: Sequence[DataFileView], bounds: RetentionBounds
    ) -> list[tuple[DataFileView, FileAge]]:
        """Files with their ages, as far as the first that stays."""
        aged: list[tuple[DataFileView, FileAge]] = []
        for start in range(0, len(files), FOOTERS_AT_ONCE):
            group = files[start : start + FOOTERS_AT_ONCE]
            ages = await asyncio.gather(*(self._age(file) for file in group))
            aged += zip(group, ages, strict=True)
            if not all(is_expired(age, bounds) for age in ages):
                break
        return aged

    async def _age(self, file: DataFileView) -> FileAge:
        age = self._ages.get(file.key)
        if age is None:
            read = _read_age(self._objects, file.key, file.size_bytes)
            age = self._ages[file.key] = await reading(read, limit_s=self._options.object_s)
            while len(self._ages) > AGES_MAX:
                self._ages.popitem(last=False)
        return age


async def _read_age(objects: ObjectStore, key: str, size_bytes: int) -> FileAge:
    """From the file's footer; `Corrupt` for a file that is not one of ours."""
    end = await read_end(objects, key, size_bytes)
    file = TableFile.open(end, size_bytes=size_bytes)
    newest_us = max((group.max_timestamp_us for group in file.row_groups), default=0)
    return FileAge(file.origin.end, newest_us)


@dataclass(frozen=True, slots=True)
class HistoryRetentionOptions:
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


class HistoryRetention:
    """Deletes what need not be remembered of the snapshots of all tables."""

    def __init__(
        self,
        history: SnapshotHistory,
        index: LogIndex,
        clock: Clock,
        options: HistoryRetentionOptions,
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
        self._trimmed = {topic_id: at for topic_id, at in self._trimmed.items() if topic_id in live}
        gone = {topic_id for topic_id in ids if topic_id not in live}
        self._missing = {topic_id: at for topic_id, at in self._missing.items() if topic_id in gone}
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
