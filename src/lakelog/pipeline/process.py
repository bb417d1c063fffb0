"""The pipeline's process: its stores, its index, its engine, and the rounds that it makes.

`catch_up` compacts what is there and ends; `run_rounds` goes on until it is cancelled, keeps Spark
warm and tidies up now and then. A round that is cancelled ends its jobs; the tasks it held are let
go of, so that the next pipeline does not wait for their leases.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import Tables
from lakelog.catalog.tables import builtin_tables, external_tables
from lakelog.clock import (
    Clock,
    Entropy,
    SystemClock,
    SystemEntropy,
    Tasks,
    agreed_now_ms,
)
from lakelog.config.options import Options
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.http_client import brokers_at
from lakelog.index.ports import LogIndex
from lakelog.index.remote_index import RemoteIndex
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Failure, Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.maintenance.file_gc import FileSweeper, SweepOptions
from lakelog.pipeline.maintenance.retention import (
    HistoryRetention,
    HistoryRetentionOptions,
    RetentionOptions,
    TableRetention,
)
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.small_files import FILES_MIN, RewriteOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.ports import AvailableNowIndex, EngineObserver, InstrumentedEngine
from lakelog.pipeline.round_report import RoundReport, Totals
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.spark.engine import SparkEngine
from lakelog.pipeline.spark.key_scan import SparkScanner
from lakelog.pipeline.spark.settings import SparkOptions, check_reach
from lakelog.telemetry import event
from lakelog.topics.cluster import ClusterRecord, pipeline_token

FRUITLESS_MAX: Final = 3
"""So many rounds in a row that bring no task to its end, and catching up gives up."""

OnReport = Callable[[RoundReport], None]
log = logging.getLogger("lakelog.pipeline")


@dataclass(frozen=True, slots=True)
class RunningPipeline:
    """A pipeline that can make rounds."""

    pipeline: Pipeline
    engine: SparkEngine
    retention: TableRetention
    histories: HistoryRetention
    sweeper: FileSweeper
    clock: Clock
    spark: SparkOptions
    tidy_s: float
    """How often rows that are too old and files that nobody names are looked for."""


def spark_options(options: Options) -> SparkOptions:
    """What Spark is told."""
    section = options.pipeline
    return SparkOptions(
        master=section.master,
        remote=section.remote,
        driver_memory_bytes=section.driver_memory_bytes,
        settings=section.settings,
    )


def compaction_options(options: Options, *, domains: int) -> PipelineOptions:
    """What the rounds are told; a range is cut at half to twice the size of a target file."""
    section = options.compaction
    target = section.target_file_size_bytes
    few = section.parquet_max_files_per_partition
    return PipelineOptions(
        domains=domains,
        namespace=options.tables.namespace,
        plan=PlanOptions(
            object_age_ms_max=section.wal_max_age_ms,
            bytes_min=target // 2,
            bytes_target=target,
            bytes_max=target * 2,
        ),
        rewrite=RewriteOptions(bytes_target=target, files_min=min(FILES_MIN, few), files_kept=few),
    )


def check_stores(options: Options) -> None:
    """Raises `Refused` when the stores are of a kind that a pipeline cannot share."""
    if options.metadata_url().startswith("memory:"):
        raise Refused(
            "the metadata is in the memory of one broker, and the pipeline is another process:"
            " set metadata.url to sqlite:PATH"
        )
    check_reach(spark_options(options), options.objects_url())


@contextlib.asynccontextmanager
async def open_pipeline(
    options: Options, observer: EngineObserver, *, until_now: bool
) -> AsyncIterator[RunningPipeline]:
    """Everything that a pipeline needs, opened; raises `Refused`, `Unavailable` and `Corrupt`."""
    check_stores(options)
    clock, entropy = SystemClock(), SystemEntropy()
    async with contextlib.AsyncExitStack() as stack:
        meta = await open_metadata(options.metadata_url(), clock)
        stack.push_async_callback(meta.close)
        cluster = await _cluster(meta, options.metadata_url())
        objects = await open_objects(
            options.objects_url(),
            options.objects.options,
            clock,
            entropy,
            clock_jump_max_ms=options.objects.clock_jump_max_ms,
        )
        stack.push_async_callback(objects.close)
        index = await _index(options, meta, clock, entropy)
        stack.push_async_callback(index.close)
        tables = _tables(options, meta, objects, clock)
        stack.push_async_callback(tables.close)
        spark = spark_options(options)
        engine = await SparkEngine.open(spark, _workers_url(options), options.objects.options)
        stack.push_async_callback(engine.close)
        seen: LogIndex = AvailableNowIndex(index) if until_now else index
        namespace = options.tables.namespace
        pipeline = Pipeline(
            meta,
            objects,
            seen,
            tables,
            InstrumentedEngine(engine, observer),
            clock=clock,
            entropy=entropy,
            options=compaction_options(options, domains=cluster.domains),
            scanner=SparkScanner(engine, engine.address),
        )
        stack.push_async_callback(pipeline.close)
        keeping = RetentionOptions(namespace=namespace)
        retention = TableRetention(objects, index, tables, clock, keeping)
        sweeping = SweepOptions(namespaces=(namespace,), grace_ms=options.pipeline.grace_ms)
        sweeper = FileSweeper(meta, objects, index, tables, clock, sweeping)
        forgetting = HistoryRetentionOptions(grace_ms=options.pipeline.grace_ms)
        histories = HistoryRetention(SnapshotHistory(meta, clock), index, clock, forgetting)
        histories.is_clock_right = partial(_is_clock_right, objects, clock, keeping)
        tidy_s = options.pipeline.tidy_s
        yield RunningPipeline(pipeline, engine, retention, histories, sweeper, clock, spark, tidy_s)


async def run_rounds(running: RunningPipeline, *, interval_s: float, heard: OnReport) -> None:
    """Round after round, until this is cancelled or Spark is lost (`Unavailable`)."""
    tasks = Tasks()
    tasks.spawn(_keep_rounding(running, interval_s, heard), name="rounds")
    tasks.spawn(_keep_warm(running), name="warm")
    tasks.spawn(_keep_tidy(running), name="upkeep")
    try:
        await tasks.failed()
    finally:
        with contextlib.suppress(Exception):  # what failed is raised above
            await tasks.close()


async def catch_up(running: RunningPipeline, *, heard: OnReport) -> Totals:
    """Rounds until what was there at the beginning is compacted, or nothing more can be."""
    totals = Totals()
    fruitless = 0
    while fruitless < FRUITLESS_MAX:
        report = await _round(running, heard)
        totals = totals.plus(report)
        if report.is_idle:
            break
        await running.pipeline.settled()
        ended = sum(topic.ended for topic in report.topics)
        fruitless = 0 if ended else fruitless + 1
    return totals


async def _round(running: RunningPipeline, heard: OnReport) -> RoundReport:
    report = await running.pipeline.round()
    heard(report)
    if running.engine.loss is not None:
        raise Unavailable(f"Spark has ended: {running.engine.loss}")
    return report


async def _keep_rounding(running: RunningPipeline, interval_s: float, heard: OnReport) -> None:
    while True:
        began_s = running.clock.monotonic_s()
        await _round(running, heard)
        left_s = interval_s - (running.clock.monotonic_s() - began_s)
        await asyncio.sleep(max(0.0, left_s))


async def _keep_warm(running: RunningPipeline) -> None:
    """Load what workers need before the first task does, and do not let them be ended."""
    work = running.engine.warm
    while True:
        try:
            await work()
        except Unavailable as error:
            if running.engine.loss is not None:
                raise
            event(log, "probe_failed", logging.WARNING, reason=error)
        work = running.engine.probe
        await asyncio.sleep(running.spark.probe_s)


async def _keep_tidy(running: RunningPipeline) -> None:
    while True:
        await asyncio.sleep(running.tidy_s)
        try:
            removed = await running.retention.apply_once()
            forgotten = await running.histories.apply_once()
            swept = await running.sweeper.sweep_once()
        except Failure as error:
            event(log, "upkeep_failed", logging.WARNING, reason=error)
            continue
        if removed.files or swept.deleted:
            event(log, "tidied", rows=removed.rows, files=removed.files, objects=swept.deleted)
        for problem in (*removed.problems, *forgotten.problems, *swept.problems):
            event(log, "upkeep_problem", logging.WARNING, reason=problem)


async def _is_clock_right(objects: ObjectStore, clock: Clock, keeping: RetentionOptions) -> bool:
    skew_max_ms = keeping.clock_skew_max_ms
    return await agreed_now_ms(clock, objects.clock_skew_ms, skew_max_ms=skew_max_ms) is not None


async def _cluster(meta: MetadataStore, url: str) -> ClusterRecord:
    found = await meta.get(keys.CLUSTER)
    if found is None:
        raise Refused(f"{url} holds no cluster: start a broker first (`lakelog up`)")
    try:
        return msgspec.json.decode(found.value, type=ClusterRecord)
    except msgspec.MsgspecError as reason:
        raise Corrupt(f"the cluster's record cannot be read: {reason}") from reason


async def _index(
    options: Options, meta: MetadataStore, clock: Clock, entropy: Entropy
) -> RemoteIndex:
    """The index by the broker that was named, else by those that the metadata store knows."""
    server = options.pipeline.server
    if not server:
        return await RemoteIndex.open(meta, clock, entropy)
    return RemoteIndex(brokers_at(server), await pipeline_token(meta, entropy), clock)


def _tables(options: Options, meta: MetadataStore, objects: ObjectStore, clock: Clock) -> Tables:
    section = options.tables
    if section.is_builtin():
        return builtin_tables(meta, objects, clock)
    properties = {"type": section.catalog, **section.options}
    history = SnapshotHistory(meta, clock)
    return external_tables(properties, objects, clock, history=history)


def _workers_url(options: Options) -> str:
    """The object store's URL as another process understands it, wherever it runs."""
    scheme, _, rest = options.objects_url().partition(":")
    if scheme != "file":
        return options.objects_url()
    return f"file:{Path(rest.removeprefix('//')).resolve()}"
