"""B18: a topic in Spark, against Spark's own Kafka connector reading the same records.

One session on two cores asks `count, sum(length(value)), sum(offset)` of the same records: the
connector from Apache Kafka and from our broker, our data source from WAL objects and from data
files (all columns, then two), and `lakelog.spark.read` with Spark's own Parquet scan. The ceiling
is a Python data source whose batches lie ready in memory; `lakelog.open` is the same read without
Spark. Everybody warms up and then takes turns. Java runs with its own defaults.

Then: what planning a hundred thousand index entries takes, and what a trigger without data takes.
"""

import pickle
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from bench.arena import Arena
from bench.broker import ALL_CORES, HOST, ProcessBroker
from bench.clients import ClientError
from bench.compaction_engines import on_cores
from bench.lake import Lake, Workshop, catch_up, create_topics, in_workshop
from bench.peer import PeerAbsentError
from bench.pipeline import make_batches
from bench.raw import PRODUCE, PRODUCE_VERSION, Client, check_produced, produce_body
from bench.results import KAFKA, OURS, Metric, Sample
from bench.spark_connector import SparkConnector, find_connector, spark_session
from bench.spark_scans import (
    TWO_COLUMNS,
    Answer,
    Scan,
    Shape,
    by_connector,
    by_format,
    cpu_s,
    generated,
    natively,
    register_generator,
    without_spark,
)
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.spark.batch_reader import batch_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "b18"
METRICS = (
    Metric("mrow_s", "Mrow/s"),
    Metric("mrow_cpu_s", "Mrow/cpu-s, brokers included"),
    Metric("times_connector", "x"),
    Metric("of_ceiling", "x"),
    Metric("broker_cpu_s", "s", more_is_better=False),
    Metric("plan_s", "s", more_is_better=False),
    Metric("plan_mb", "MB of splits", more_is_better=False),
    Metric("idle_p50_ms", "ms", more_is_better=False),
    Metric("idle_max_ms", "ms", more_is_better=False),
)
TOPIC = "rows"
PARTITIONS = 4
KEY_BYTES, VALUE_BYTES = 8, 92
FILLING = b"x" * (VALUE_BYTES - VALUE_BYTES // 4)
NOISE_BYTES, NOISE_STEP = 64 << 20, 7_919
ROWS, ROWS_QUICK = 10_000_000, 2_000_000
ROUNDS_MIN = 3
FLUSH_S = 120.0
PLANNED_PARTITIONS, PLANNED_OBJECTS = 1_000, 100
IDLE_TRIGGERS = 60
PATIENCE_S = 120.0
IDLE_TRIGGER = "100 milliseconds"
SETTINGS = {
    # Not the pipeline's quick start, which would hold the connector back: there Java does the work.
    "spark.driver.extraJavaOptions": "",
    "spark.sql.streaming.noDataProgressEventInterval": "0",
}
CONNECTOR = "kafka connector"
FROM_WAL, FROM_FILES = "lakelog, WAL objects", "lakelog, data files"
TWO_FROM_WAL, TWO_FROM_FILES = f"{FROM_WAL}, 2 columns", f"{FROM_FILES}, 2 columns"
NATIVE = "lakelog.spark.read, data files"
CEILING, CEILING_TWO = "generated, 7 columns", "generated, 2 columns"
ALONE = "lakelog.open"


def run(arena: Arena) -> None:
    """Measure scans, then planning, then idle triggers."""
    connector = connector_or_none()
    rows = ROWS_QUICK if arena.scale.quick else ROWS
    # The command line's own rounds are for drivers whose runs are short.
    rounds = max(arena.scale.rounds, ROUNDS_MIN) if arena.scale.quick else ROUNDS_MIN
    with ExitStack() as stack:
        folder = stack.enter_context(arena.folder())
        stack.enter_context(on_cores(ALL_CORES))
        lake = Lake(folder / "ours", None)
        lake.start()
        stack.callback(lake.stop)
        kafka = None
        for arm in arena.arms:
            if arm.name == KAFKA and connector is not None:
                kafka = arm.launch(folder / "kafka", None)
                stack.callback(kafka.stop)
                kafka.wait_ready()
        spark = stack.enter_context(spark_session(connector, SETTINGS))
        field = Field(arena, spark, lake, kafka, is_connected=connector is not None)
        field.scans(rows, rounds)
        field.planning(rounds)
        field.idle()


def connector_or_none() -> SparkConnector | None:
    """Spark's connector; says so where it cannot be had."""
    try:
        found = find_connector()
    except PeerAbsentError as reason:
        print(f"no Kafka connector for Spark: {reason}")
        return None
    print(f"Spark's Kafka connector {found.version}")
    return found


@dataclass(frozen=True, slots=True)
class Field:
    """A session, the brokers, and where figures go."""

    arena: Arena
    spark: "SparkSession"
    lake: Lake
    kafka: ProcessBroker | None
    is_connected: bool

    @property
    def server(self) -> str:
        """Our HTTP port."""
        return f"http://{HOST}:{self.lake.http_port}"

    def add(self, cell: str, arm: str, number: int, values: Mapping[str, float]) -> None:
        """Keep one figure."""
        self.arena.recorder.add(Sample(NAME, cell, arm, number, values))

    def scans(self, rows: int, rounds: int) -> None:
        """Scan WAL objects, have them compacted, scan data files."""
        create_topics(self.lake.broker.bootstrap, [TOPIC], PARTITIONS, freshness_ms=0)
        produce(self.lake.broker.bootstrap, rows)
        if self.kafka is not None:
            with Client(self.kafka.port) as client:
                client.create_topic(TOPIC, PARTITIONS)
            produce(self.kafka.bootstrap, rows)
        expected = answer_of(rows)
        spark, server = self.spark, self.server
        self._rounds(
            [
                Scan(FROM_WAL, lambda: by_format(spark, server, TOPIC)),
                Scan(TWO_FROM_WAL, lambda: by_format(spark, server, TOPIC, TWO_COLUMNS)),
                Scan(f"{ALONE}, WAL objects", lambda: without_spark(server, TOPIC)),
            ],
            expected,
            rounds,
        )
        in_workshop(self.lake.data, compacted)
        self._rounds(
            [
                Scan(FROM_FILES, lambda: by_format(spark, server, TOPIC)),
                Scan(TWO_FROM_FILES, lambda: by_format(spark, server, TOPIC, TWO_COLUMNS)),
                Scan(NATIVE, lambda: natively(spark, server, TOPIC)),
                Scan(f"{ALONE}, data files", lambda: without_spark(server, TOPIC)),
            ],
            expected,
            rounds,
        )

    def _rounds(self, ours: Sequence[Scan], expected: Answer, rounds: int) -> None:
        """Everybody twice for what is loaded and compiled at first, then in turns."""
        named = [(scan.name, OURS, scan) for scan in ours]
        scans = [*self._connectors(), *self._ceilings(expected.rows), *named]
        for _, _, scan in (*scans, *scans):
            scan.timed(expected)
        for number in range(rounds):
            rates: dict[str, float] = {}
            for place, arm, scan in scans:
                own_s, all_s = self.lake.broker.cpu_seconds(), cpu_s()
                rate = expected.rows / scan.timed(expected) / 1e6
                rates[place] = rate
                # Never nothing: what a worker used is lost when Spark kills it with its parent.
                used_s = max(cpu_s() - all_s, 0.01)
                values = {"mrow_s": rate, "mrow_cpu_s": expected.rows / used_s / 1e6}
                values |= compared(place, rates)
                if arm == OURS:
                    values["broker_cpu_s"] = self.lake.broker.cpu_seconds() - own_s
                self.add(f"{expected.rows:,} rows, {scan.name}", arm, number, values)

    def planning(self, rounds: int) -> None:
        """Plan a read of very many index entries."""
        topic = "planned"
        create_topics(self.lake.broker.bootstrap, [topic], PLANNED_PARTITIONS, freshness_ms=10**9)
        (batch,) = make_batches(100, 1, count=1)
        body = produce_body(topic, [(at, batch) for at in range(PLANNED_PARTITIONS)])
        with Client(self.lake.broker.port) as client:
            for _ in range(PLANNED_OBJECTS):
                check_produced(client.call(PRODUCE, PRODUCE_VERSION, body))
        options = {"lakelog.server": self.server, "subscribe": topic}
        schema = self.spark.read.format("lakelog").options(**options).load().schema
        for number in range(-1, rounds):
            began = time.perf_counter()
            splits = batch_reader(options, schema).partitions()
            took = time.perf_counter() - began
            if number >= 0:
                size_mb = sum(len(pickle.dumps(one)) for one in splits) / 1e6
                cell = f"planning {PLANNED_PARTITIONS * PLANNED_OBJECTS:,} index entries"
                self.add(cell, OURS, number, {"plan_s": took, "plan_mb": size_mb})

    def idle(self) -> None:
        """Let streams run without data."""
        streams = [(OURS, "lakelog", "lakelog.server", self.server)]
        if self.kafka is not None:
            streams.append((KAFKA, "kafka", "kafka.bootstrap.servers", self.kafka.bootstrap))
        for arm, kind, option, address in streams:
            reader = self.spark.readStream.format(kind).option(option, address)
            p50, most = idle_ms(reader.option("subscribe", TOPIC).load())
            self.add("a trigger without data", arm, 0, {"idle_p50_ms": p50, "idle_max_ms": most})

    def _connectors(self) -> list[tuple[str, str, Scan]]:
        """Spark's own, from both brokers: each with a name for the round, and its arm."""
        if not self.is_connected:
            return []
        brokers = [(CONNECTOR, OURS, self.lake.broker.bootstrap)]
        if self.kafka is not None:
            brokers.insert(0, (KAFKA, KAFKA, self.kafka.bootstrap))
        return [(place, arm, self._connector(at)) for place, arm, at in brokers]

    def _connector(self, bootstrap: str) -> Scan:
        return Scan(CONNECTOR, lambda: by_connector(self.spark, bootstrap, TOPIC))

    def _ceilings(self, rows: int) -> list[tuple[str, str, Scan]]:
        """What a Python data source can do at best."""
        shape = Shape(rows, PARTITIONS, key_bytes=KEY_BYTES, value_bytes=VALUE_BYTES)
        found = []
        for place, columns in ((CEILING, None), (CEILING_TWO, ("offset", "value"))):
            name = register_generator(self.spark, shape, columns)
            found.append((place, OURS, self._generated(place, name)))
        return found

    def _generated(self, place: str, name: str) -> Scan:
        return Scan(place, lambda: generated(self.spark, name), is_checked=False)


def compared(place: str, rates: Mapping[str, float]) -> dict[str, float]:
    """Return a rate by those of the connector and of the ceiling in the same round."""
    values = {}
    if place not in (KAFKA, CEILING, CEILING_TWO) and KAFKA in rates:
        values["times_connector"] = rates[place] / rates[KAFKA]
    if place.startswith("lakelog,"):
        ceiling = CEILING_TWO if place.endswith("2 columns") else CEILING
        values["of_ceiling"] = rates[place] / rates[ceiling]
    return values


def produce(bootstrap: str, rows: int) -> None:
    """Write the records to every partition in turn."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    noise = random.Random(1).randbytes(NOISE_BYTES)
    for number in range(rows):
        # A quarter of a value is noise that no codec has seen before.
        at = number * NOISE_STEP % (NOISE_BYTES - VALUE_BYTES)
        value, key = noise[at : at + VALUE_BYTES // 4] + FILLING, b"%08d" % number
        while True:
            try:
                producer.produce(TOPIC, value, key, number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(FLUSH_S)
    if left:
        raise ClientError(f"{left} records were not delivered")


def answer_of(rows: int) -> Answer:
    """What every scan must find."""
    each = rows // PARTITIONS
    return Answer(rows, rows * VALUE_BYTES, PARTITIONS * (each * (each - 1) // 2))


async def compacted(shop: Workshop) -> None:
    """Turn all WAL objects into data files."""
    pipeline = shop.pipeline(InlineEngine(shop.objects))
    await catch_up(pipeline)
    await pipeline.close()


def idle_ms(stream: "DataFrame") -> tuple[float, float]:
    """Return the median and the longest time of a trigger that finds nothing."""
    query = stream.writeStream.format("noop").trigger(processingTime=IDLE_TRIGGER).start()
    deadline = time.monotonic() + PATIENCE_S
    found: dict[str, float] = {}
    try:
        while len(found) < IDLE_TRIGGERS:
            if time.monotonic() > deadline:
                raise ClientError(f"too few triggers without data: {query.lastProgress}")
            time.sleep(0.5)
            for progress in query.recentProgress:
                took = progress["durationMs"]
                if "addBatch" not in took and "triggerExecution" in took:
                    found[progress["timestamp"]] = float(took["triggerExecution"])
    finally:
        query.stop()
    # The first ones load what later ones have.
    settled = [found[when] for when in sorted(found)][IDLE_TRIGGERS // 2 :]
    return statistics.median(settled), max(settled)
