"""B4: a consumer reads a backlog, from WAL objects and from data files, with Kafka beside it.

Ours holds nothing of the topic: the broker was started again. The clock starts when both are warm:
ours has written and read other topics, has loaded its compiled kernels and is idle again; Kafka
stays up, has read the topic for as long as a warm-up lasts and serves from the page cache. The
consumer is a bare socket with one request under way (`bench.raw_fetch`); MB are record
values. `amplification` is what the broker read of its objects for each byte that it served, which
is less than one where data files are smaller than their batches; `read_times_stored` is what it
read for each byte of those files.
`tail`: a producer and a consumer of another topic, alone and while the backlog is read again and
again; from the write of a batch until its consumer has it.
"""

import asyncio
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench import b3_fetch
from bench.arena import Arena, Arm
from bench.broker import BROKER_CORE, ProcessBroker
from bench.clients import CPU_SECONDS_MIN, ClientError
from bench.lake import Lake, Workshop, catch_up, create_topics, in_workshop
from bench.pipeline import make_batches, run_loop
from bench.raw import PRODUCE, PRODUCE_VERSION, Client, Pipe, check_produced, produce_body
from bench.raw_fetch import FETCH, FETCH_VERSION, drain, drain_for, fetch_body, fetched
from bench.results import OURS, Metric, Sample, percentiles_ms
from lakelog.pipeline.files.run_task import InlineEngine

NAME = "b4"
PARTITIONS = b3_fetch.PARTITIONS
RECORD_BYTES = 1_024
SIZES = (256 << 20, 1 << 30)
SIZES_QUICK = SIZES[:1]
WARM_BYTES = 16 << 20
"""More than a broker of ours sees before it loads its compiled kernels."""
WARM_TAIL_S = 1.0
BACKLOG, WARM, WRITTEN = "backlog", "warm", "written"
FILES = "compaction/v1"
"""Where data files are among the objects."""
TAIL_RATE_BYTES_S = 4e6
TAIL_RECORDS = 16
METRICS = (
    Metric("wall_mb_s", "MB/s"),
    Metric("mb_per_cpu_s", "MB/broker-cpu-s"),
    Metric("amplification", "bytes read/served", more_is_better=False),
    Metric("read_times_stored", "x", more_is_better=False),
    Metric("gets_per_mib", "GET/MiB", more_is_better=False),
    Metric("tail_p50_ms", "ms", more_is_better=False),
    Metric("tail_p99_ms", "ms", more_is_better=False),
    Metric("tail_alone_p99_ms", "ms", more_is_better=False),
    Metric("tail_times_alone", "x", more_is_better=False),
)
_numbers = itertools.count()


class OurSide:
    """Ours: cold before every reading."""

    name = OURS

    def __init__(self, folder: Path, backlog_bytes: int) -> None:
        self.lake = Lake(folder / self.name, BROKER_CORE)
        self.lake.start()
        topics = (WARM, WRITTEN, BACKLOG)
        create_topics(self.broker.bootstrap, topics, PARTITIONS, freshness_ms=0)
        for topic, size in ((WARM, WARM_BYTES), (BACKLOG, backlog_bytes)):
            b3_fetch.fill(self.broker, topic, RECORD_BYTES, size)
        self.ends = ends_of(self.broker, BACKLOG)

    @property
    def broker(self) -> ProcessBroker:
        """The broker that serves now."""
        return self.lake.broker

    def make_ready(self) -> None:
        """Start again, write one other topic and read another, and wait until that is over."""
        self.lake.start()
        b3_fetch.fill(self.broker, WRITTEN, RECORD_BYTES, WARM_BYTES)
        drain(self.broker.port, WARM, ends_of(self.broker, WARM))
        self.broker.settle()

    def counted(self) -> dict[str, float]:
        """Return what was read of objects, what was served, and how many reads there were."""
        return {
            "read": float(self.lake.read_bytes()),
            "served": self.lake.counter("lakelog_fetched_bytes_total"),
            "gets": self.lake.counter("lakelog_objects_got_total"),
        }

    def stored_bytes(self) -> int:
        """Return the bytes of the backlog's data files; 0 before there are any."""
        files = (self.lake.data / "objects" / FILES / f"topic={BACKLOG}").rglob("*.parquet")
        return sum(file.stat().st_size for file in files)

    def compact(self) -> None:
        """Make data files of everything."""
        rows = 0

        async def work(shop: Workshop) -> None:
            nonlocal rows
            with ThreadPoolExecutor(1) as pool:
                rows = await catch_up(shop.pipeline(InlineEngine(shop.objects, pool)))

        in_workshop(self.lake.data, work)
        wanted = sum(self.ends.values()) + WARM_BYTES // RECORD_BYTES
        if rows < wanted:
            raise ClientError(f"{rows} rows were compacted of {wanted}")

    def stop(self) -> None:
        """Stop the broker."""
        self.lake.stop()


class PeerSide:
    """Kafka: warm, and everything is in the page cache."""

    def __init__(self, arm: Arm, folder: Path, backlog_bytes: int, warm_up_s: float) -> None:
        self.name = arm.name
        self.broker = arm.launch(folder / arm.name, BROKER_CORE)
        self.broker.wait_ready()
        with Client(self.broker.port) as client:
            client.create_topic(BACKLOG, PARTITIONS)
        b3_fetch.fill(self.broker, BACKLOG, RECORD_BYTES, backlog_bytes)
        self.ends = ends_of(self.broker, BACKLOG)
        drain_for(self.broker.port, BACKLOG, self.ends, warm_up_s)

    def make_ready(self) -> None:
        """It stays as it is, but for what its compiler has left to do."""
        self.broker.settle()

    def counted(self) -> dict[str, float]:
        """Nothing is counted."""
        return {}

    def stored_bytes(self) -> int:
        """There are no data files."""
        return 0

    def stop(self) -> None:
        """Stop the broker."""
        self.broker.stop()


Side = OurSide | PeerSide


def run(arena: Arena) -> None:
    """Measure each size from WAL objects, then from data files; the peer beside both."""
    with spare_process() as spare:
        for size in SIZES_QUICK if arena.scale.quick else SIZES:
            with (
                arena.folder() as folder,
                opened(arena, folder, size) as sides,
            ):
                for source in ("WAL", "Parquet"):
                    if source == "Parquet":
                        compact_ours(sides)
                    cell = f"{size >> 20:,} MiB from {source}"
                    if not arena.wants(cell):
                        continue
                    for number in range(arena.scale.rounds):
                        for side in sides:
                            values = read(side) | tail_beside(arena, side, spare)
                            arena.recorder.add(Sample(NAME, cell, side.name, number, values))


@contextmanager
def spare_process() -> Iterator[ProcessPoolExecutor]:
    """Lend a process for the reader, so that the tail's clock is in another."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as spare:
        spare.submit(len, ()).result()
        yield spare


@contextmanager
def opened(arena: Arena, folder: Path, size: int) -> Iterator[list[Side]]:
    """Start and fill every side, and stop them all afterwards."""
    sides: list[Side] = []
    try:
        for arm in arena.arms:
            ours = arm.name == OURS
            warm_up_s = arena.scale.warm_up_seconds
            sides.append(OurSide(folder, size) if ours else PeerSide(arm, folder, size, warm_up_s))
        yield sides
    finally:
        for side in sides:
            side.stop()


def compact_ours(sides: list[Side]) -> None:
    """Make data files where there is somebody who has them."""
    for side in sides:
        if isinstance(side, OurSide):
            side.compact()


def ends_of(broker: ProcessBroker, topic: str) -> dict[int, int]:
    """Return the end offset of every partition of a topic."""
    with Client(broker.port) as client:
        return client.end_offsets(topic, PARTITIONS)


def read(side: Side) -> dict[str, float]:
    """Read the backlog once."""
    side.make_ready()
    counted, cpu = side.counted(), side.broker.cpu_seconds()
    done = drain(side.broker.port, BACKLOG, side.ends)
    cpu = side.broker.cpu_seconds() - cpu
    after = side.counted()
    megabytes = done.records * RECORD_BYTES / 1e6
    values = {
        "wall_mb_s": megabytes / done.seconds,
        "mb_per_cpu_s": megabytes / max(cpu, CPU_SECONDS_MIN),
        "cpu_s": cpu,
        "wire_times_values": done.wire_bytes / (done.records * RECORD_BYTES),
    }
    if after:
        spent = {name: after[name] - counted[name] for name in after}
        values["read_mb"], values["served_mb"] = spent["read"] / 1e6, spent["served"] / 1e6
        values["amplification"] = spent["read"] / spent["served"]
        if stored_bytes := side.stored_bytes():
            values["read_times_stored"] = spent["read"] / stored_bytes
        values["gets_per_mib"] = spent["gets"] / (spent["served"] / (1 << 20))
    return values


def tail_beside(arena: Arena, side: Side, spare: ProcessPoolExecutor) -> dict[str, float]:
    """Follow another topic, alone and then while the backlog is read."""
    seconds = max(arena.scale.seconds, 2.0)
    side.make_ready()
    tail(side.broker, WARM_TAIL_S)
    _, alone_p99, _ = percentiles_ms(tail(side.broker, seconds))
    reading = spare.submit(drain_for, side.broker.port, BACKLOG, side.ends, seconds)
    p50, p99, _ = percentiles_ms(tail(side.broker, seconds))
    done = reading.result()
    return {
        "tail_p50_ms": p50,
        "tail_p99_ms": p99,
        "tail_alone_p99_ms": alone_p99,
        "tail_times_alone": p99 / alone_p99,
        "beside_mb_s": done.records * RECORD_BYTES / 1e6 / done.seconds,
    }


def tail(broker: ProcessBroker, seconds: float) -> list[float]:
    """Write at a fixed rate and follow; return seconds from each write until it was fetched."""
    topic = f"tail-{next(_numbers)}"
    with Client(broker.port) as client:
        client.create_topic(topic, 1)
    return run_loop(write_and_follow(broker.port, topic, seconds))


async def write_and_follow(port: int, topic: str, seconds: float) -> list[float]:
    """Write batches whatever the answers do, and note when each reaches a consumer."""
    prepared = make_batches(RECORD_BYTES, TAIL_RECORDS)
    rate = TAIL_RATE_BYTES_S / (RECORD_BYTES * TAIL_RECORDS)
    total = int(rate * seconds)
    sent_at: list[float] = []
    latencies: list[float] = []

    async def write(pipe: Pipe) -> None:
        started = time.perf_counter()
        for index in range(total):
            pause = started + index / rate - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            sent_at.append(time.perf_counter())
            body = produce_body(topic, [(0, prepared[index % len(prepared)])])
            await pipe.send(PRODUCE, PRODUCE_VERSION, body)

    async def acknowledge(pipe: Pipe) -> None:
        for _ in range(total):
            check_produced(await pipe.receive())

    async def follow(pipe: Pipe) -> None:
        offset = 0
        while offset < total * TAIL_RECORDS:
            answer = await pipe.call(FETCH, FETCH_VERSION, fetch_body(topic, [(0, offset)]))
            now = time.perf_counter()
            for one in fetched(answer, {0: offset}):
                new = range(offset // TAIL_RECORDS, one.next_offset // TAIL_RECORDS)
                latencies.extend(now - sent_at[index] for index in new)
                offset = one.next_offset

    writer, reader = await Pipe.connect(port), await Pipe.connect(port, limit=4 << 20)
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(reader))
        group.create_task(acknowledge(writer))
        group.create_task(write(writer))
    await writer.close()
    await reader.close()
    return latencies
