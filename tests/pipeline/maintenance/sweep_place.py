"""A log, its tables, pipelines and both sweepers over one guarded object store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.memory_cluster import DOMAIN, MemoryCluster
from tests.pipeline.pipeline_place import NAMESPACE, Place

from lakelog.catalog.port import CatalogLimits, TableName, Tables
from lakelog.catalog.tables import builtin_tables, external_tables
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.domain.checkpoint import decode_manifest
from lakelog.domain.checkpoint_store import CheckpointStore
from lakelog.index.ports import IndexedTopic, LogIndex
from lakelog.log.options import LogOptions
from lakelog.log.retention import Sweeper
from lakelog.meta.port import MetadataStore
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.maintenance.file_gc import FileSweeper, SweepOptions, SweepReport
from lakelog.testing.guarded import (
    GuardedObjects,
    entries_of_replica,
    live_snapshots,
    open_tasks,
)

GRACE_MS = 600_000
DAYS_MS = 8 * 24 * 3600 * 1000
OPTIONS = replace(DOMAIN, checkpoint_records=8)
"""Checkpoints come often, so that a short test has many."""


class Ahead:
    """The machine's clock, put forward by a test."""

    def __init__(self, *, moves: bool = True) -> None:
        self._clock = SystemClock()
        self._moves = moves
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s() + (self.ahead_ms / 1000 if self._moves else 0)


@dataclass
class SweepPlace(Place):
    """A place whose every deletion is watched."""

    guard: GuardedObjects = None  # type: ignore[assignment]  # a field without default cannot follow
    checkpoints: CheckpointStore = None  # type: ignore[assignment]  # as above
    later: Ahead = None  # type: ignore[assignment]  # as above

    def files_sweeper(
        self,
        *,
        objects: ObjectStore | None = None,
        index: LogIndex | None = None,
        tables: Tables | None = None,
    ) -> FileSweeper:
        return FileSweeper(
            self.meta,
            objects or self.guard,
            index or self.index,
            tables or self.tables,
            self.later,
            SweepOptions(namespaces=(NAMESPACE,), grace_ms=GRACE_MS),
        )

    def wal_sweeper(self) -> Sweeper:
        """The broker's; its replica knows the real time alone, so it waits for no grace."""
        clock = Ahead(moves=False)
        clock.ahead_ms = GRACE_MS * 10
        return Sweeper(self.node.replica, self.guard, clock, LogOptions(grace_ms=0))

    async def sweep(self, sweeper: FileSweeper, *, passes: int = 2) -> list[SweepReport]:
        """Passes that are one grace apart."""
        reports = []
        for _ in range(passes):
            reports.append(await sweeper.sweep_once())
            self.later.ahead_ms += GRACE_MS
        assert not self.guard.violations
        return reports

    async def delete_topic(self, view: IndexedTopic) -> None:
        self.topics.remove(view)
        await self.node.log.drop_streams(list(view.streams))
        if view.has_table:
            name = TableName(NAMESPACE, view.name)
            await self.tables.drop(name, topic_id=view.topic_id.hex())

    async def checkpoint_keys(self) -> Collection[str]:
        """The objects of the domain's kept checkpoints, as its pointer and their manifests say."""
        pointer = await self.checkpoints.pointer()
        found = set()
        for kept in () if pointer is None else pointer.kept:
            key = self.checkpoints._manifest_key(kept)
            manifest = decode_manifest(await self.guard.inner.get(key))
            pages = (*manifest.pages, *manifest.group_pages)
            found |= {key, *(self.checkpoints._page_key(page) for page in pages)}
        return found


@asynccontextmanager
async def _stores(folder: Path | None) -> AsyncIterator[tuple[MemoryCluster, GuardedObjects]]:
    cluster = MemoryCluster()
    meta: MetadataStore = cluster.metadata
    objects: ObjectStore = MemoryObjectStore(cluster.clock)
    if folder is not None:
        meta = await SqliteMetadataStore.open(folder / "meta.db", cluster.clock)
        objects = await LocalObjectStore.open(folder / "objects", cluster.clock, SystemEntropy())
    guard = GuardedObjects(objects)
    cluster.metadata, cluster.objects = meta, guard
    try:
        yield cluster, guard
    finally:
        await objects.close()
        await meta.close()


def _tables(cluster: MemoryCluster, objects: ObjectStore, catalog: Path | None) -> Tables:
    """Those of the built-in catalog, or of one in a file of SQLite; two snapshots are kept."""
    limits = CatalogLimits(snapshots_kept=2)
    if catalog is None:
        return builtin_tables(cluster.metadata, objects, cluster.clock, limits)
    properties = {"type": "sql", "uri": f"sqlite:///{catalog}"}
    return external_tables(properties, objects, cluster.clock, limits)


@asynccontextmanager
async def guarded_place(
    folder: Path | None = None, catalog: Path | None = None
) -> AsyncIterator[SweepPlace]:
    """Memory stores, or SQLite and a directory."""
    async with _stores(folder) as (cluster, guard):
        node = await cluster.node(domain_options=OPTIONS)
        tables, plain = (_tables(cluster, one, catalog) for one in (guard, guard.inner))
        checkpoints = CheckpointStore(cluster.metadata, guard, domain=0, options=OPTIONS)
        place = SweepPlace(
            cluster, node, tables, guard=guard, checkpoints=checkpoints, later=Ahead()
        )
        guard.witnesses = {
            "an index entry": entries_of_replica(node.replica),
            "a live snapshot": live_snapshots(plain, NAMESPACE),
            "an open task": open_tasks(cluster.metadata),
            "a checkpoint": place.checkpoint_keys,
        }
        try:
            yield place
        finally:
            await tables.close()
            await plain.close()
            await cluster.close()


def run(
    scenario: Callable[[SweepPlace], Awaitable[None]],
    *,
    folder: Path | None = None,
    catalog: Path | None = None,
    limit_s: float = 120.0,
) -> None:
    """Run a scenario, bounded in time; nothing that is named was deleted or is missing."""

    async def bounded() -> None:
        async with asyncio.timeout(limit_s), guarded_place(folder, catalog) as place:
            await scenario(place)
            assert not place.guard.violations
            assert not await place.guard.missing()

    asyncio.run(bounded())
