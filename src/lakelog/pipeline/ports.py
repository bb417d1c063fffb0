"""The ports of a pipeline: an engine, its effects, and wrappers of ports, each with one job.

- `LimitedPorts` is what every part of a round works with. Every call of a port goes through it, so
  that each has a limit in time and, where many are made, in number. It also knows the streams that
  wait (`Pauses`).
- `AvailableNowIndex` is the index as it was at the first look, as Spark's `Trigger.AvailableNow`
  takes it: for a run that ends when what was there is compacted. Everything is due at once, and
  what came later is left to others. Without this a run beside a busy producer would never end, and
  one right after a quiet one would find nothing due.
- `InstrumentedEngine` tells an observer what is asked of an engine, as it happens.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from lakelog.catalog.port import TableName, Tables
from lakelog.catalog.port import TableView as CatalogView
from lakelog.clock import Clock
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import StreamIndex
from lakelog.index.ports import IndexedTopic, LogIndex, StreamRange, StreamView
from lakelog.model.failures import Refused, Unavailable
from lakelog.model.ids import TopicId
from lakelog.pipeline.files.file_task import FileAnswer, FileTask
from lakelog.pipeline.options import PipelineOptions, reading, writing
from lakelog.pipeline.saga.record_store import RecordStore
from lakelog.pipeline.saga.table_view import table_name, topic_of
from lakelog.records.table_schema import FIELD_IDS
from lakelog.streams.objects import FileKind

T = TypeVar("T")


class TaskEngine(Protocol):
    """Runs tasks, many at once, wherever it likes."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        """The answer to each task, in order; `Unavailable` when the engine itself failed."""


class Effects:
    """Every side effect of the saga goes through here by its name; a test makes it fail there."""

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        """Do it."""
        return await action()


class Pauses:
    """Streams that wait because somebody has to look; forgotten with the process."""

    def __init__(self, clock: Clock, options: PipelineOptions) -> None:
        self._clock = clock
        self._options = options
        self._streams: dict[int, tuple[int, float]] = {}

    def add(self, stream: int) -> None:
        """The stream waits, twice as long as the last time."""
        count = self._streams.get(stream, (0, 0.0))[0] + 1
        until_s = self._clock.monotonic_s() + self._options.wait_ms(count) / 1000
        self._streams[stream] = (count, until_s)

    def end(self, stream: int) -> None:
        """The stream went on."""
        self._streams.pop(stream, None)

    def holds(self, stream: int) -> bool:
        """Whether the stream still waits."""
        pause = self._streams.get(stream)
        return pause is not None and self._clock.monotonic_s() < pause[1]


class LimitedPorts:
    """The ports of one pipeline."""

    def __init__(
        self,
        records: RecordStore,
        index: LogIndex,
        tables: Tables,
        clock: Clock,
        options: PipelineOptions,
        effects: Effects,
    ) -> None:
        self.records = records
        self.clock = clock
        self.options = options
        self.effects = effects
        self.pauses = Pauses(clock, options)
        self.has_catalog = True
        """Whether the catalog answered when this round asked first: one wait is enough."""
        self._index = index
        self._tables = tables
        self._field_ids: dict[TopicId, Mapping[str, int]] = {}
        self._table_places = asyncio.Semaphore(options.tables_max)
        self._swap_places = asyncio.Semaphore(options.swaps_max)

    def table_name(self, topic: str) -> TableName:
        """The name of a topic's table."""
        return table_name(topic, namespace=self.options.namespace)

    async def table(self, topic: str) -> CatalogView | None:
        """The topic's table as it is now."""
        table = await self.ask_table(lambda tables: tables.load(self.table_name(topic)))
        topic_id = None if table is None else topic_of(table)
        if table is not None and topic_id is not None:
            self._field_ids[topic_id] = table.field_ids
        return table

    async def field_ids(self, topic: str, topic_id: TopicId) -> tuple[tuple[str, int], ...]:
        """The ids of the columns of the topic's table, as tasks say them; `Refused` if some lack.

        A column keeps its id as long as there is the table, so what was loaded last is good.
        """
        if topic_id not in self._field_ids:
            await self.table(topic)
        ids = self._field_ids.get(topic_id, FIELD_IDS)  # without a table, files are in no place
        missing = sorted(FIELD_IDS.keys() - ids.keys())
        if missing:
            raise Refused(f"{topic}: its table has no column {', '.join(missing)} any more")
        return () if ids == FIELD_IDS else tuple(ids.items())

    def keep(self, topics: Iterable[IndexedTopic]) -> None:
        """Forget what is known of topics that are gone."""
        left = {topic.topic_id for topic in topics}
        self._field_ids = {
            topic_id: ids for topic_id, ids in self._field_ids.items() if topic_id in left
        }

    async def ask_table(self, work: Callable[[Tables], Awaitable[T]]) -> T:
        """Ask the catalog something."""
        self._check_catalog()
        async with self._table_places:
            return await reading(work(self._tables), limit_s=self.options.table_s)

    async def change_table(self, work: Callable[[Tables], Awaitable[T]]) -> T:
        """Have the catalog change something."""
        self._check_catalog()
        async with self._table_places:
            return await writing(work(self._tables), limit_s=self.options.table_s)

    def _check_catalog(self) -> None:
        if not self.has_catalog:
            raise Unavailable("the catalog did not answer")

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return await reading(self._index.cluster_id(), limit_s=self.options.index_s)

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is."""
        return await reading(self._index.topics(), limit_s=self.options.index_s)

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that have WAL entries."""
        if not streams:
            return {}
        return await reading(self._index.backlog(streams), limit_s=self.options.index_s)

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams."""
        if not streams:
            return {}
        return await reading(self._index.columns(streams), limit_s=self.options.index_s)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range; None for a stream that is gone."""
        if not ranges:
            return ()
        return await reading(self._index.views(ranges), limit_s=self.options.index_s)

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what became of it."""
        async with self._swap_places:
            return await writing(self._index.swap(swap), limit_s=self.options.index_s)


class AvailableNowIndex:
    """An index that leaves out streams once they are compacted up to their first-seen end."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._heads: dict[int, int] = {}

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return await self._index.cluster_id()

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, its backlog due however fresh it is."""
        return [replace(topic, freshness_ms=0) for topic in await self._index.topics()]

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that are not compacted up to where they ended at first."""
        backlog = await self._index.backlog(streams)
        for stream in streams:
            # One that had nothing at first has nothing to compact: all of it is later.
            self._heads.setdefault(stream, backlog[stream].head if stream in backlog else 0)
        return {
            stream: index
            for stream, index in backlog.items()
            if _first_wal_start(index) < self._heads[stream]
        }

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""
        return await self._index.columns(streams)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""
        return await self._index.views(ranges)

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        return await self._index.swap(swap)

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        return await self._index.named_files()


def _first_wal_start(index: StreamIndex) -> int:
    """Where the first WAL entry starts; the end of the stream when there is none."""
    starts = index.columns.starts[index.columns.kinds == FileKind.WAL]
    return int(starts[0]) if len(starts) else index.head


class EngineObserver(Protocol):
    """Who is told; it must be quick and must not fail."""

    def began(self, tasks: Sequence[FileTask]) -> None:
        """These tasks are with the engine now."""

    def ended(self, tasks: Sequence[FileTask]) -> None:
        """They are no longer, whatever became of them."""


class InstrumentedEngine:
    """The engine, with a watcher."""

    def __init__(self, engine: TaskEngine, observer: EngineObserver) -> None:
        self._engine = engine
        self._observer = observer

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self._engine.slots

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        """The answer to each task, in order."""
        self._observer.began(tasks)
        try:
            return await self._engine.run(tasks)
        finally:
            self._observer.ended(tasks)
