"""What every part of a round works with: the ports, with limits, and the streams that wait.

Every call of a port goes through here, so that each has a limit in time and, where many are made,
in number.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from lakelog.catalog.port import TableName, Tables
from lakelog.catalog.port import TableView as CatalogView
from lakelog.clock import Clock
from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.index.ports import IndexedTopic, LogIndex, StreamIndex, StreamRange, StreamView
from lakelog.model.failures import Refused, Unavailable
from lakelog.model.ids import TopicId
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.ports import Effects
from lakelog.pipeline.saga.record_store import RecordStore
from lakelog.pipeline.saga.table_view import table_name, topic_of
from lakelog.pipeline.waits import reading, writing
from lakelog.records.table_schema import FIELD_IDS

T = TypeVar("T")


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
        found = self._streams.get(stream)
        return found is not None and self._clock.monotonic_s() < found[1]


class Shop:
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
        found = await self.ask_table(lambda tables: tables.load(self.table_name(topic)))
        topic_id = None if found is None else topic_of(found)
        if found is not None and topic_id is not None:
            self._field_ids[topic_id] = found.field_ids
        return found

    async def field_ids(self, topic: str, topic_id: TopicId) -> tuple[tuple[str, int], ...]:
        """The ids of the columns of the topic's table, as tasks say them; `Refused` if some lack.

        A column keeps its id as long as there is the table, so what was loaded last is good.
        """
        if topic_id not in self._field_ids:
            await self.table(topic)
        found = self._field_ids.get(topic_id, FIELD_IDS)  # without a table, files are in no place
        lacking = sorted(FIELD_IDS.keys() - found.keys())
        if lacking:
            raise Refused(f"{topic}: its table has no column {', '.join(lacking)} any more")
        return () if found == FIELD_IDS else tuple(found.items())

    def keep(self, topics: Iterable[IndexedTopic]) -> None:
        """Forget what is known of topics that are gone."""
        left = {one.topic_id for one in topics}
        self._field_ids = {one: ids for one, ids in self._field_ids.items() if one in left}

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
