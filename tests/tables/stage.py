"""Rounds of the pipeline beside a running broker, with tables that keep few snapshots."""

from pathlib import Path

from tests.lake.running import EAGER, Broker

from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import CatalogLimits, Tables
from lakelog.catalog.tables import builtin_tables, external_tables
from lakelog.clock import Clock, SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.http_client import brokers_at
from lakelog.index.remote_index import RemoteIndex
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.maintenance.retention import (
    HistoryReport,
    HistoryRetention,
    HistoryRetentionOptions,
)
from lakelog.pipeline.rounds import Pipeline
from lakelog.topics.cluster import pipeline_token

FRESH = {"lakelog_table_freshness_ms": "0"}
"""What a topic is told whose records become rows in the next round."""


def compact(broker: Broker, *, snapshots_kept: int = 2, catalog: Path | None = None) -> None:
    """One round of the pipeline over everything, which makes one snapshot of a topic."""
    broker.call(_compact(broker, snapshots_kept, catalog))


def grow(
    broker: Broker, topic: str, rounds: int, *, partition: int = 0, catalog: Path | None = None
) -> None:
    """So many snapshots, each with three rows more."""
    for number in range(rounds):
        broker.produce(topic, [b"%d-%d" % (number, one) for one in range(3)], partition=partition)
        compact(broker, catalog=catalog)


async def _compact(broker: Broker, snapshots_kept: int, catalog: Path | None) -> None:
    clock, entropy, options = SystemClock(), SystemEntropy(), broker.options
    meta = await open_metadata(options.metadata_url(), clock)
    objects = await open_objects(options.objects_url(), {}, clock, entropy)
    index = await _index(broker, meta)
    tables = _tables(meta, objects, clock, snapshots_kept, catalog)
    try:
        pipeline = Pipeline(
            meta,
            objects,
            index,
            tables,
            InlineEngine(objects),
            clock=clock,
            entropy=entropy,
            options=EAGER,
        )
        report = await pipeline.round()
        assert report.all_obstacles == (), report.all_obstacles
    finally:
        await tables.close()
        await index.close()
        await objects.close()
        await meta.close()


async def _index(broker: Broker, meta: MetadataStore) -> RemoteIndex:
    """By its address: a broker on a busy machine may lose its session for a moment."""
    token = await pipeline_token(meta, SystemEntropy())
    return RemoteIndex(brokers_at(broker.server), token, SystemClock())


def _tables(
    meta: MetadataStore,
    objects: ObjectStore,
    clock: Clock,
    snapshots_kept: int,
    catalog: Path | None,
) -> Tables:
    limits = CatalogLimits(snapshots_kept=snapshots_kept)
    if catalog is None:
        return builtin_tables(meta, objects, clock, limits)
    properties = {"type": "sql", "uri": f"sqlite:///{catalog}"}
    history = SnapshotHistory(meta, clock)
    return external_tables(properties, objects, clock, limits, history=history)


def tidied(broker: Broker, *, passes: int = 1) -> list[HistoryReport]:
    """Passes of the upkeep of histories that wait for nothing."""
    return broker.call(_tidied(broker, passes))


async def _tidied(broker: Broker, passes: int) -> list[HistoryReport]:
    clock = SystemClock()
    meta = await open_metadata(broker.options.metadata_url(), clock)
    index = await _index(broker, meta)
    options = HistoryRetentionOptions(grace_ms=0, trim_ms=0)
    upkeep = HistoryRetention(SnapshotHistory(meta, clock), index, clock, options)
    try:
        return [await upkeep.apply_once() for _ in range(passes)]
    finally:
        await index.close()
        await meta.close()


def history_keys(broker: Broker) -> list[str]:
    """Everything that is written down of snapshots."""

    async def found() -> list[str]:
        meta = await open_metadata(broker.options.metadata_url(), SystemClock())
        try:
            prefixes = (keys.SNAPSHOTS, keys.SNAPSHOT_PAGES)
            return [one.key for prefix in prefixes for one in await meta.range(prefix)]
        finally:
            await meta.close()

    return broker.call(found())
