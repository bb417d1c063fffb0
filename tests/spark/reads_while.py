"""Reads while producers write and the pipeline compacts, merges and deletes: all are exact.

    python -m tests.spark.reads_while --times 200

What the record at an offset of a partition has is a function of the two, and producers are
idempotent, so every read can be compared with what the log has at its offset vector: all columns,
every offset once, up to at least what was acknowledged when the read began. Files that are
replaced are deleted after a grace that is far shorter than a pipeline's own.
"""

import argparse
import asyncio
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.lake.running import Broker, running_broker
from tests.spark.kinds import configure, reader

import lakelog
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects
from lakelog.index.remote_index import RemoteIndex
from lakelog.lake.read.read_request import PartitionName, arrow_schema, default_columns
from lakelog.model.failures import Failure
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.maintenance.file_gc import FileSweeper, SweepOptions
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.spark.diagnosis import spark_failures, text_of
from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions
from lakelog.spark.frames import pin

PARTITIONS = 4
BURST_MAX = 60
RECORDS_PER_READ = 400
"""How much a partition grows from read to read at most, so that it still does at the last one."""
FIRST_MS = 1_700_000_000_000
EAGER = PipelineOptions(
    domains=1,
    plan=PlanOptions(freshness_ms=0),
    upkeep_ms=500,
    rewrite=RewriteOptions(files_min=3),
    retry_ms=1,
    retry_ms_max=1,
)
COLUMNS = default_columns(include_headers=True)
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def record(partition: int, offset: int) -> dict[str, object]:
    """What the log has there."""
    seed = blake2b(b"%d/%d" % (partition, offset), digest_size=24).digest()
    return {
        "key": None if seed[0] % 7 == 0 else seed[:4],
        "value": None if seed[1] % 50 == 0 else seed * (seed[2] % 12),
        "topic": "busy",
        "partition": partition,
        "offset": offset,
        "timestamp": (FIRST_MS + int.from_bytes(seed[:3], "big")) * 1000,
        "timestampType": 0,
        "headers": [{"key": "n", "value": seed[4:8]}] if seed[3] % 3 == 0 else None,
    }


@dataclass
class Expected:
    """The rows that a partition has, made as far as they are asked for."""

    partition: int
    rows: pa.Table = field(default_factory=lambda: arrow_schema(COLUMNS).empty_table())

    def slice(self, start: int, end: int) -> pa.Table:
        """The rows with the offsets [start, end)."""
        there = self.rows.num_rows
        if end > there:
            more = [record(self.partition, at) for at in range(there, end)]
            table = pa.Table.from_pylist(more, self.rows.schema)
            self.rows = pa.concat_tables([self.rows, table]).combine_chunks()
        return self.rows.slice(start, end - start)


class Producing:
    """Writes bursts of records to all partitions, and counts what was acknowledged."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.allowed = RECORDS_PER_READ
        self.sent = [0] * PARTITIONS
        self.acknowledged = [0] * PARTITIONS
        self._random = random.Random(seed)
        settings = {"bootstrap.servers": str(broker.running.address), "enable.idempotence": True}
        self._producer = Producer({**settings, "linger.ms": 2})

    def burst(self) -> None:
        for partition in range(PARTITIONS):
            room = max(0, self.allowed - self.sent[partition])
            count = min(self._random.randint(0, BURST_MAX), room)
            for offset in range(self.sent[partition], self.sent[partition] + count):
                self._send(record(partition, offset))
            self.sent[partition] += count
        assert self._producer.flush(60) == 0
        self.acknowledged = list(self.sent)

    def _send(self, wanted: dict[str, object]) -> None:
        headers = wanted["headers"]
        self._producer.produce(
            "busy",
            wanted["value"],
            wanted["key"],
            wanted["partition"],
            timestamp=int(str(wanted["timestamp"])) // 1000,
            headers=[(one["key"], one["value"]) for one in headers]
            if isinstance(headers, list)
            else [],
        )


async def keep_compacting(broker: Broker, stop: threading.Event, grace_ms: int) -> int:
    """Rounds and sweeps of one pipeline; returns how many objects it deleted."""
    clock, entropy, options = SystemClock(), SystemEntropy(), broker.options
    deleted = 0
    async with AsyncExitStack() as stack:
        meta = await open_metadata(options.metadata_url(), clock)
        stack.push_async_callback(meta.close)
        objects = await open_objects(options.objects_url(), {}, clock, entropy)
        stack.push_async_callback(objects.close)
        index = await RemoteIndex.open(meta, clock, entropy)
        stack.push_async_callback(index.close)
        tables = builtin_tables(meta, objects, clock)
        stack.push_async_callback(tables.close)
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
        sweeping = SweepOptions(grace_ms=grace_ms)
        sweeper = FileSweeper(meta, objects, index, tables, clock, sweeping)
        while not stop.is_set():
            try:
                await pipeline.round()
                deleted += (await sweeper.sweep_once()).deleted
            except Failure as reason:  # a machine under load: the next round does better
                print(f"  a round failed: {reason}", flush=True)
            await asyncio.sleep(0.05)
    return deleted


@dataclass
class Reads:
    """The three ways to read, each with a vector that is chosen anew."""

    spark: SparkSession
    broker: Broker
    producing: Producing
    random: random.Random
    expected: list[Expected] = field(
        default_factory=lambda: [Expected(one) for one in range(PARTITIONS)]
    )
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, number: int) -> None:
        """One read, compared."""
        ways = (self.by_format, self.by_scan, self.by_arrow)
        way = ways[number % len(ways)]
        self.producing.allowed = (number + 2) * RECORDS_PER_READ
        acknowledged = list(self.producing.acknowledged)
        starts = [0] * PARTITIONS
        if number % 4 == 3:
            starts = [self.random.randint(0, there) for there in acknowledged]
        began = time.monotonic()
        table = way(starts)
        took_s = time.monotonic() - began
        sent = self.producing.sent  # grows before records are sent
        by_partition = table.sort_by([("partition", "ascending"), ("offset", "ascending")])
        total = 0
        for partition, start in enumerate(starts):
            rows = by_partition.filter(pc.field("partition") == partition)
            end = start + rows.num_rows
            assert acknowledged[partition] <= end <= sent[partition] + BURST_MAX, (partition, end)
            wanted = self.expected[partition].slice(start, end)
            assert rows.select(COLUMNS).cast(wanted.schema).equals(wanted), (
                f"read {number} by {way.__name__}: partition {partition} [{start}, {end}) differs"
            )
            total += rows.num_rows
        assert total == table.num_rows
        self.counts[way.__name__] += 1
        print(f"{number:4} {way.__name__:9} {total:7} rows {took_s:5.1f} s", flush=True)

    def options(self, starts: list[int]) -> dict[str, str]:
        offsets = json.dumps({"busy": {str(at): start for at, start in enumerate(starts)}})
        splits = str(self.random.randint(1, 9))
        return {"startingOffsets": offsets, "minPartitions": splits, "includeHeaders": "true"}

    def by_format(self, starts: list[int]) -> pa.Table:
        """The data source, with and without push-down."""
        self.spark.conf.set(PUSH_DOWN, str(self.random.random() < 0.5).lower())
        frame = reader(self.spark, self.broker, "busy", **self.options(starts)).load()
        return frame.where("offset >= 0 and partition < 100").toArrow()

    def by_scan(self, starts: list[int]) -> pa.Table:
        """Spark's own scan of data files, and the rest; its vector is known beforehand."""
        pinned = pin(self.spark, "busy", server=self.broker.server, options=self.options(starts))
        frame = pinned.frame()
        self.counts["data files"] += len(frame.inputFiles())
        try:
            table = frame.toArrow()
        except spark_failures() as error:
            if "FILE_NOT_EXIST" not in text_of(error):
                raise
            self.counts["scans done again"] += 1
            table = pinned.frame().toArrow()
        check_vector(table, pinned.vector)
        return table

    def by_arrow(self, starts: list[int]) -> pa.Table:
        """Without Spark."""
        return lakelog.read("busy", server=self.broker.server, options=self.options(starts))


def check_vector(table: pa.Table, vector: Mapping[PartitionName, tuple[int, int]]) -> None:
    """As many rows of every partition as the vector says."""
    found = Counter(table["partition"].to_pylist())
    wanted = {place.partition: end - start for place, (start, end) in vector.items()}
    assert found == {one: count for one, count in wanted.items() if count}, (found, vector)


def prove(
    spark: SparkSession, broker: Broker, *, times: int, seed: int, grace_ms: int = 20_000
) -> Counter[str]:
    """So many reads, each of them compared."""
    broker.create("busy", PARTITIONS, lakelog_table_freshness_ms="0", retention_ms="-1")
    producing = Producing(broker, seed)
    producing.burst()
    stop = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], int]) -> Callable[[], int]:
        def run() -> int:
            try:
                return work()
            except BaseException as failure:
                failures.append(failure)
                stop.set()
                raise

        return run

    def keep_producing() -> int:
        while not stop.wait(0.3):
            producing.burst()
        return sum(producing.sent)

    reads = Reads(spark, broker, producing, random.Random(seed))
    with ThreadPoolExecutor(2) as pool:
        producer = pool.submit(guarded(keep_producing))
        compacting = pool.submit(
            guarded(lambda: asyncio.run(keep_compacting(broker, stop, grace_ms)))
        )
        try:
            for number in range(times):
                assert not failures, failures
                if number % 20 == 10:  # for a while, segments in the place of data files
                    kind = "kfs" if number // 20 % 2 == 0 else "parquet"
                    configure(broker, "busy", {"lakelog.format": kind})
                reads.check(number)
        finally:
            stop.set()
        reads.counts["objects deleted"] = compacting.result(60)
        reads.counts["records"] = producer.result(60)
    return reads.counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--grace-ms", type=int, default=20_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder)) as broker:
        with ThreadPoolExecutor(1) as pool:
            session = pool.submit(SessionStart(SparkOptions(master="local[2]")).run).result()
        try:
            counts = prove(
                session.spark,
                broker,
                times=chosen.times,
                seed=chosen.seed,
                grace_ms=chosen.grace_ms,
            )
        finally:
            session.close()
    print(f"{chosen.times} reads equal the log at their offsets: {dict(counts)}")


if __name__ == "__main__":
    main()
