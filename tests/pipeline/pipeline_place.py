"""A log, its tables and pipelines over the same stores, for tests of whole rounds."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.log.tables import read_all
from tests.memory_cluster import MemoryCluster, MemoryNode, batch
from tests.records.table_cases import Row

from lakelog.catalog.port import DataFileView, TableName, Tables
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import Clock, SystemClock, SystemEntropy
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.ports import IndexedTopic, LogIndex
from lakelog.meta.port import MetadataStore
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.ids import TopicId
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.maintenance.key_scan import Scanner
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.ports import Effects, TaskEngine
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.saga.task_record import TASKS, TaskState, decode_record
from lakelog.records.table_schema import table_schema

CLUSTER = "cluster-1"
NAMESPACE = "lakelog"
EAGER = PipelineOptions(domains=1, plan=PlanOptions(freshness_ms=0), retry_ms=1, retry_ms_max=1)
"""Everything is due at once, and what failed too."""


class PlaceIndex(BrokerIndex):
    """The real index over a log, with topics that a test says."""

    def __init__(
        self, node: MemoryNode, topics: Callable[[], Sequence[IndexedTopic]], clock: Clock
    ) -> None:
        self._log = node.log
        self._clock = clock
        self._topics = topics

    async def cluster_id(self) -> str:
        return CLUSTER

    async def topics(self) -> Sequence[IndexedTopic]:
        return list(self._topics())


def topic_view(name: str, streams: Sequence[int], **changes: Any) -> IndexedTopic:
    """A topic whose id follows from its first stream."""
    view = IndexedTopic(
        name=name,
        topic_id=TopicId(streams[0].to_bytes(16, "big")),
        streams=tuple(streams),
        has_table=True,
        freshness_ms=0,
        message_bytes_max=1_048_588,
        table_retention_ms=-1,
        is_compacted=False,
        delete_retention_ms=86_400_000,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=1 << 60,
        dirty_ratio_min=0.5,
    )
    return replace(view, **changes)


@dataclass
class Place:
    """One log and everything that pipelines share."""

    cluster: MemoryCluster
    node: MemoryNode
    tables: Tables
    topics: list[IndexedTopic] = field(default_factory=list)

    @property
    def meta(self) -> MetadataStore:
        return self.cluster.metadata

    @property
    def objects(self) -> ObjectStore:
        return self.cluster.objects

    @property
    def clock(self) -> Clock:
        return self.cluster.clock

    @property
    def index(self) -> PlaceIndex:
        return PlaceIndex(self.node, lambda: self.topics, self.clock)

    async def topic(self, name: str, streams: Sequence[int], **changes: Any) -> IndexedTopic:
        view = topic_view(name, streams, **changes)
        await self.node.log.create_streams(view.topic_id, first_partition=0, streams=list(streams))
        self.topics.append(view)
        return view

    async def produce(self, *streams: int, batches: int = 2, records: int = 3) -> None:
        """So many batches to each stream; all of a turn in one object."""
        for number in range(batches):
            values = [b"%d-%d" % (number, at) for at in range(records)]
            sent = [batch(*values, timestamp_ms=1000 + number * 10)] * len(streams)
            await self.node.log.append(list(streams), sent, deadline_s=self.cluster.soon())

    def pipeline(
        self,
        *,
        options: PipelineOptions = EAGER,
        effects: Effects | None = None,
        engine: TaskEngine | None = None,
        tables: Tables | None = None,
        index: LogIndex | None = None,
        meta: MetadataStore | None = None,
        clock: Clock | None = None,
        scanner: Scanner | None = None,
    ) -> Pipeline:
        return Pipeline(
            meta or self.meta,
            self.objects,
            index or self.index,
            tables or self.tables,
            engine or InlineEngine(self.objects),
            clock=clock or self.clock,
            entropy=SystemEntropy(),
            options=options,
            effects=effects,
            scanner=scanner,
        )

    async def rows(self, stream: int) -> list[Row]:
        """What a consumer reads of a stream."""
        facts = self.node.log.facts(stream)
        assert facts is not None
        return await read_all(self.cluster, self.node, stream, offset=facts.log_start)

    async def files(self, topic: str, partition: int) -> list[DataFileView]:
        name = TableName(NAMESPACE, topic)
        return await self.tables.files(name, partition=partition, start=0, end=1 << 62)

    async def table_rows(self, topic: str, partition: int) -> pa.Table:
        """The rows of a partition in the files that the newest snapshot names."""
        parts = []
        for file in await self.files(topic, partition):
            content = await self.objects.get(file.key)
            parts.append(pq.read_table(pa.BufferReader(content)))
        return pa.concat_tables(parts) if parts else table_schema().empty_table()

    async def kinds(self, stream: int) -> list[str]:
        """What the index names, in order: WAL objects or keys of files."""
        return [getattr(one.name, "key", "wal") for one in self.node.log.pieces(stream)]


async def assert_exact(place: Place, topic: str, partition: int, stream: int) -> None:
    """The log and the table have the same rows, each once."""
    rows = await place.rows(stream)
    table = await place.table_rows(topic, partition)
    assert table["offset"].to_pylist() == [row.offset for row in rows]
    assert table["value"].to_pylist() == [row.value for row in rows]
    assert "wal" not in await place.kinds(stream)


async def states(place: Place) -> dict[int, TaskState]:
    records = [decode_record(one.value) for one in await place.meta.range(TASKS)]
    return {one.stream: one.state for one in records}


@asynccontextmanager
async def memory_place() -> AsyncIterator[Place]:
    """Memory stores and the built-in catalog."""
    cluster = MemoryCluster()
    node = await cluster.node()
    tables = builtin_tables(cluster.metadata, cluster.objects, cluster.clock)
    try:
        yield Place(cluster, node, tables)
    finally:
        await tables.close()
        await cluster.close()


@asynccontextmanager
async def sqlite_place(folder: Path, *, local: bool = True) -> AsyncIterator[Place]:
    """SQLite, a directory (or memory) for objects, and the built-in catalog."""
    clock = SystemClock()
    meta = await SqliteMetadataStore.open(folder / "meta.db", clock)
    cluster = MemoryCluster(clock, metadata=meta)
    if local:
        cluster.objects = await LocalObjectStore.open(folder / "objects", clock, SystemEntropy())
    node = await cluster.node()
    tables = builtin_tables(cluster.metadata, cluster.objects, cluster.clock)
    try:
        yield Place(cluster, node, tables)
    finally:
        await tables.close()
        await cluster.close()
        await cluster.objects.close()
        await meta.close()


def run(scenario: Callable[[Place], Awaitable[None]], *, limit_s: float = 60.0) -> None:
    """Run a scenario over memory stores, bounded in time."""

    async def bounded() -> None:
        async with asyncio.timeout(limit_s), memory_place() as place:
            await scenario(place)

    asyncio.run(bounded())
