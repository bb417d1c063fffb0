"""B7: how soon a record is a row that others can query, and what a commit of the table costs.

Ours: `serve` and `pipeline` as processes, 10 MB/s, the send time in every value; the table is asked
for by its REST catalog every few milliseconds, and a record is visible when the offset vector of
the answer is beyond it. The peer is what one would write first: a consumer that appends with
PyIceberg to a SQL catalog every second. `commits`: appends to one table, one after another; what
the last ones take against the first ones, with the same of PyIceberg alone beside it.
"""

import asyncio
import http.client
import itertools
import json
import multiprocessing
import statistics
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message, Producer

from bench.arena import Arena
from bench.broker import HOST, ProcessBroker
from bench.clients import ClientError
from bench.lake import NAMESPACE, Lake, create_topics, start_pipeline, vector_of
from bench.naive_tables import Seen, append_again, append_loop
from bench.payload import payloads
from bench.results import OURS, Metric, Sample, percentiles_ms
from lakelog.catalog.port import Advance, DataFileFacts, TableDefinition, TableName
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects

NAME = "b7"
PARTITIONS = 4
RECORD_BYTES = 1_024
RATE_BYTES_S = 10e6
CHUNK_RECORDS = 50
FOLLOWED = 10
"""Of more topics only so many are looked at: each look takes a few milliseconds."""
SAMPLED = 10
"""One record of so many is followed."""
FRESHNESS_MS = 500
INTERVAL_S = 0.25
POLL_S = 0.01
PATIENCE_S = 120.0
TOPICS = (1, 100)
COMMITS, COMMITS_QUICK = 10_000, 1_000
COMPARED = 200
NAIVE_COMMITS, NAIVE_COMMITS_QUICK = 300, 60
METRICS = (
    Metric("p50_ms", "ms", more_is_better=False),
    Metric("p99_ms", "ms", more_is_better=False),
    Metric("commit_p50_ms", "ms", more_is_better=False),
    Metric("commit_p99_ms", "ms", more_is_better=False),
    Metric("snapshots_s", "1/s of a table"),
    Metric("pyiceberg_p50_ms", "ms", more_is_better=False),
    Metric("pyiceberg_p99_ms", "ms", more_is_better=False),
    Metric("first_ms", "ms", more_is_better=False),
    Metric("last_ms", "ms", more_is_better=False),
    Metric("last_times_first", "x", more_is_better=False),
    Metric("pyiceberg_first_ms", "ms", more_is_better=False),
    Metric("pyiceberg_last_ms", "ms", more_is_better=False),
    Metric("pyiceberg_last_times_first", "x", more_is_better=False),
)
Place = tuple[str, int]
"""A topic and a partition."""
_numbers = itertools.count()


def run(arena: Arena) -> None:
    """Measure freshness in turns, ours and the naive loop, then the commits once."""
    seconds = max(arena.scale.seconds, 5.0 if arena.scale.quick else 60.0)
    for number in range(arena.scale.rounds):
        for count in TOPICS[:1] if arena.scale.quick else TOPICS:
            with arena.folder() as folder:
                values = freshness(folder, count, seconds)
            cell = f"{RATE_BYTES_S / 1e6:.0f} MB/s, {count} topics, freshness {FRESHNESS_MS} ms"
            arena.recorder.add(Sample(NAME, cell, OURS, number, values))
    commits = COMMITS_QUICK if arena.scale.quick else COMMITS
    with arena.folder() as folder:
        values = asyncio.run(commit_costs(folder, commits))
        naive = NAIVE_COMMITS_QUICK if arena.scale.quick else NAIVE_COMMITS
        took = append_again(folder / "naive", naive)
    first, last = edges(took, naive // 6)
    values |= {"pyiceberg_first_ms": first, "pyiceberg_last_ms": last}
    values["pyiceberg_last_times_first"] = last / first
    cell = f"commits: {commits:,} of ours, {naive} of PyIceberg"
    arena.recorder.add(Sample(NAME, cell, OURS, 0, values))


@dataclass
class Stamps:
    """When records were sent, by place and offset, as delivery reports tell."""

    sent: dict[Place, list[tuple[int, float]]] = field(default_factory=dict)
    failures: int = 0

    def on_delivery(self, error: object, message: Message) -> None:
        """Take one report."""
        value = message.value()
        if error is not None or not isinstance(value, bytes):
            self.failures += 1
            return
        (sent_s,) = struct.unpack_from(">d", value)
        place = (message.topic(), message.partition())
        self.sent.setdefault(place, []).append((message.offset(), sent_s))

    def missing(self, vectors: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether any record that was followed is in no table yet."""
        return any(
            max(sent)[0] >= vectors.get(topic, {}).get(partition, 0)
            for (topic, partition), sent in self.sent.items()
        )

    def latencies(self, seen: Sequence[Seen]) -> list[float]:
        """Return the seconds from sending until the first sight that holds each record."""
        found: list[float] = []
        for (topic, partition), sent in self.sent.items():
            sights = [
                (one.vector[partition], one.seen_s)
                for one in seen
                if one.topic == topic and partition in one.vector
            ]
            at = 0
            for offset, sent_s in sorted(sent):
                while at < len(sights) and sights[at][0] <= offset:
                    at += 1
                if at == len(sights):
                    raise ClientError(f"offset {offset} of {topic} never became visible")
                found.append(sights[at][1] - sent_s)
        return found


class TableWatch(threading.Thread):
    """Asks the REST catalog for tables in turn, and notes when each one's vector was new."""

    def __init__(self, http_port: int, topics: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.seen: list[Seen] = []
        self.vectors: dict[str, dict[int, int]] = {}
        self.failure: Exception | None = None
        self._tags: dict[str, str] = {}
        self._topics = topics
        self._connection = http.client.HTTPConnection(HOST, http_port, timeout=10)
        self._ended = threading.Event()

    def run(self) -> None:
        """Ask until it is told to end."""
        try:
            while not self._ended.wait(POLL_S):
                for topic in self._topics:
                    self._look(topic)
        except (OSError, http.client.HTTPException, ClientError) as error:
            self.failure = error
        finally:
            self._connection.close()

    def end(self) -> None:
        """Stop asking; raise what went wrong."""
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise ClientError(f"watching the tables: {self.failure!r}")

    def _look(self, topic: str) -> None:
        path = f"/iceberg/v1/namespaces/{NAMESPACE}/tables/{topic}?snapshots=refs"
        self._connection.request("GET", path, headers={"If-None-Match": self._tags.get(topic, "")})
        answer = self._connection.getresponse()
        content = answer.read()
        seen_s = time.time()
        if answer.status == http.client.NOT_MODIFIED:
            return
        if answer.status != http.client.OK:
            raise ClientError(f"{path} answered {answer.status}")
        self._tags[topic] = answer.headers.get("etag", "")
        metadata = json.loads(content)["metadata"]
        self.vectors[topic] = vector_of(metadata)
        made_s = max((one["timestamp-ms"] for one in metadata.get("snapshots", ())), default=0)
        self.seen.append(Seen(topic, seen_s, self.vectors[topic], made_s / 1e3))


def freshness(folder: Path, count: int, seconds: float) -> dict[str, float]:
    """Run ours with its pipeline, then the naive loop on the same broker."""
    lake = Lake(folder / "ours", None)
    lake.start()
    try:
        topics = [f"fresh-{number}" for number in range(count)]
        values = watched(lake, topics, seconds)
        if count == 1:
            values |= naive(lake, folder, seconds)
    finally:
        lake.stop()
    return values


def watched(lake: Lake, topics: Sequence[str], seconds: float) -> dict[str, float]:
    """Produce while the pipeline runs and the tables are watched."""
    create_topics(lake.broker.bootstrap, topics, PARTITIONS, FRESHNESS_MS)
    with watching(lake, topics[:FOLLOWED]) as (watch, pipeline):
        # Spark starts, loads and compiles before the first record that counts.
        settle(watch, pipeline, produce(lake.broker, topics, 2.0))
        before, cpu = len(watch.seen), (lake.broker.cpu_seconds(), pipeline.cpu_seconds())
        stamps = produce(lake.broker, topics, seconds)
        settle(watch, pipeline, stamps)
        cpu = (lake.broker.cpu_seconds() - cpu[0], pipeline.cpu_seconds() - cpu[1])
    seen = watch.seen[before:]
    p50, p99, _ = percentiles_ms(stamps.latencies(seen))
    commit_p50, commit_p99, _ = percentiles_ms([one.seen_s - one.made_s for one in seen])
    return {
        "p50_ms": p50,
        "p99_ms": p99,
        "commit_p50_ms": commit_p50,
        "commit_p99_ms": commit_p99,
        "snapshots_s": len(seen) / seconds / min(len(topics), FOLLOWED),
        "broker_cpu_s": cpu[0],
        "pipeline_cpu_s": cpu[1],
    }


@contextmanager
def watching(lake: Lake, topics: Sequence[str]) -> Iterator[tuple[TableWatch, ProcessBroker]]:
    """Run the pipeline, and a thread that looks at the tables."""
    pipeline = start_pipeline(lake.data, master="local[2]", interval_s=INTERVAL_S)
    watch = TableWatch(lake.http_port, topics)
    watch.start()
    try:
        yield watch, pipeline
        watch.end()
    finally:
        pipeline.stop()


def settle(watch: TableWatch, pipeline: ProcessBroker, stamps: Stamps) -> None:
    """Wait until the tables hold everything that was sent."""
    deadline = time.monotonic() + PATIENCE_S
    while stamps.missing(watch.vectors):
        if not pipeline.is_alive():
            raise ClientError(f"the pipeline has ended: {pipeline.log()}")
        if time.monotonic() > deadline or not watch.is_alive():
            raise ClientError(f"the tables lack records: {watch.failure!r}, {pipeline.log()}")
        time.sleep(POLL_S)


def produce(broker: ProcessBroker, topics: Sequence[str], seconds: float) -> Stamps:
    """Write at a fixed rate, each value with the time at which it was handed over."""
    stamps = Stamps()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    pool = payloads(RECORD_BYTES - 8, 0.25, seed=1)
    started = time.perf_counter()
    sent = 0
    while (elapsed := time.perf_counter() - started) < seconds:
        for number in range(sent, sent + CHUNK_RECORDS):
            value = struct.pack(">d", time.time()) + pool[number % len(pool)]
            place = (number // CHUNK_RECORDS) % (len(topics) * PARTITIONS)
            topic, partition = topics[place // PARTITIONS], place % PARTITIONS
            if number % SAMPLED or place >= FOLLOWED * PARTITIONS:
                producer.produce(topic, value, partition=partition)
            else:
                told = stamps.on_delivery
                producer.produce(topic, value, partition=partition, on_delivery=told)
        sent += CHUNK_RECORDS
        producer.poll(0)
        time.sleep(max(sent * RECORD_BYTES / RATE_BYTES_S - elapsed, 0.0))
    left = producer.flush(60.0)
    if left or stamps.failures:
        raise ClientError(f"{left + stamps.failures} records were not delivered")
    return stamps


def naive(lake: Lake, folder: Path, seconds: float) -> dict[str, float]:
    """Have another process append what it consumes, every second."""
    topic = f"naive-{next(_numbers)}"
    create_topics(lake.broker.bootstrap, [topic], PARTITIONS, freshness_ms=3_600_000)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as spare:
        spare.submit(len, ()).result()
        warm = spare.submit(append_again, folder / "warm", 2)
        warm.result()
        running = spare.submit(
            append_loop, lake.broker.bootstrap, topic, PARTITIONS, folder / "naive"
        )
        stamps = produce(lake.broker, [topic], seconds)
        seen = running.result()
    p50, p99, _ = percentiles_ms(stamps.latencies(seen))
    return {"pyiceberg_p50_ms": p50, "pyiceberg_p99_ms": p99}


async def commit_costs(folder: Path, count: int) -> dict[str, float]:
    """Append to one table so often; files are facts alone, for a commit reads none."""
    clock, entropy = SystemClock(), SystemEntropy()
    meta = await open_metadata(f"sqlite:{folder / 'metadata.db'}", clock)
    objects = await open_objects(f"file:{folder / 'objects'}", {}, clock, entropy)
    tables = builtin_tables(meta, objects, clock)
    name, topic_id = TableName(NAMESPACE, "commits"), "0" * 32
    view = await tables.create(TableDefinition(name, name.table, topic_id, "bench"))
    took: list[float] = []
    for number in range(count):
        partition, start = number % PARTITIONS, (number // PARTITIONS) * 100
        key = f"compaction/v1/topic=commits/partition={partition}/{number}.parquet"
        facts = DataFileFacts(key, partition, start, start + 100, 100, 100_000, start, start + 100)
        advance = Advance(partition, start, start + 100, (facts,))
        began = time.perf_counter()
        done = await tables.append(
            name, [advance], topic_id=topic_id, commit_id=str(number), expect=view.token
        )
        took.append(time.perf_counter() - began)
        view = done.table
    for opened in (tables, objects, meta):
        await opened.close()
    first, last = edges(took, COMPARED)
    p50, p99, _ = percentiles_ms(took)
    values = {"commit_p50_ms": p50, "commit_p99_ms": p99, "first_ms": first, "last_ms": last}
    return values | {"last_times_first": last / first}


def edges(took: Sequence[float], count: int) -> tuple[float, float]:
    """Return the medians of the first and of the last ones, in milliseconds."""
    return statistics.median(took[:count]) * 1e3, statistics.median(took[-count:]) * 1e3
