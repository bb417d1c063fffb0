"""Engines of compaction side by side: in process and on Spark, the same tasks on the same cores.

One core: everything of the engine on it, Java too. Two cores: Spark's two slots. Every engine does
the whole job once before the clock runs, as in a pipeline that has been up for a while.
"""

import asyncio
import contextlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench.arena import Arena
from bench.broker import ALL_CORES, BROKER_CORE, CAN_PIN, CLIENT_CORE
from bench.clients import ClientError
from bench.lake import Lake, Workshop, check_round, create_topics, objects_url, workshop
from bench.pipeline import make_batches
from bench.raw import PRODUCE, PRODUCE_VERSION, Client, check_produced, produce_body
from bench.results import Metric
from bench.wal_backlog import fill, open_objects, payload_bytes, task_of
from lakelog.model.failures import Refused
from lakelog.pipeline.files.file_task import FileResult, FileTask, WalInputs
from lakelog.pipeline.files.run_task import InlineEngine, run_task
from lakelog.pipeline.ports import TaskEngine
from lakelog.pipeline.spark.engine import SparkEngine
from lakelog.pipeline.spark.settings import SparkOptions
from lakelog.records.kernels import keep_freed_memory

ROUNDS = 40
BATCHES_PER_CHUNK = 16
STREAMS, STREAMS_QUICK = 30, 12
"""About 70 MB of keys and values each."""
MEMORY_ROUNDS, MEMORY_ROUNDS_QUICK = 460, 80
TINY_STREAMS = 1_000
METRICS = (
    Metric("times_in_process", "x", more_is_better=False),
    Metric("times_one_slot", "x"),
    Metric("round_s", "s", more_is_better=False),
    Metric("input_mb", "MB"),
    Metric("file_mb", "MB"),
    Metric("peak_mb", "MB", more_is_better=False),
    Metric("peak_over_idle_mb", "MB", more_is_better=False),
)
Cell = tuple[str, dict[str, float]]


def measure(arena: Arena) -> Iterator[Cell]:
    """Yield every cell as it is measured."""
    with arena.folder() as folder:
        yield from task_cells(folder, arena.scale.quick)
    for topics in (1,) if arena.scale.quick else (1, 100):
        with arena.folder() as folder:
            yield from tiny_cells(folder, topics)
    with arena.folder() as folder:
        yield memory_cell(folder, arena.scale.quick)


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Have threads and processes that are started meanwhile run on these cores."""
    if not CAN_PIN:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def spark(master: str, url: str) -> AsyncIterator[SparkEngine]:
    """Start Spark, warm; raises `ClientError` where it cannot be had."""
    try:
        engine = await SparkEngine.open(SparkOptions(master=master), url, {})
    except Refused as reason:
        raise ClientError(f"Spark: {reason}") from reason
    try:
        await engine.warm()
        yield engine
    finally:
        await engine.close()


def task_cells(folder: Path, quick: bool) -> Iterator[Cell]:
    """Compact the same backlog in process, by one slot of Spark and by two."""
    tasks = asyncio.run(
        fill(
            folder,
            streams=STREAMS_QUICK if quick else STREAMS,
            rounds=ROUNDS,
            batches_per_chunk=BATCHES_PER_CHUNK,
        )
    )
    megabytes = sum(map(payload_bytes, tasks)) / 1e6
    what = f"lz4, {megabytes:,.0f} MB"
    with on_cores({CLIENT_CORE}):
        in_process = asyncio.run(in_process_effort(folder, tasks))
    yield f"{what}, in process, one core", in_process.values(megabytes)
    with on_cores({CLIENT_CORE}):
        one = asyncio.run(spark_effort(folder, "local[1]", tasks))
    values = one.values(megabytes) | {"times_in_process": one.wall_s / in_process.wall_s}
    yield f"{what}, Spark, 1 slot on one core", values
    with on_cores(ALL_CORES):
        two = asyncio.run(spark_effort(folder, "local[2]", tasks))
    values = two.values(megabytes) | {"times_one_slot": one.wall_s / two.wall_s}
    yield f"{what}, Spark, 2 slots on two cores", values


@dataclass(frozen=True, slots=True)
class Effort:
    """What a job took, on the clock and of all processes' CPU."""

    wall_s: float
    cpu_s: float

    def values(self, megabytes: float) -> dict[str, float]:
        """Return both as rates."""
        return {"wall_mb_s": megabytes / self.wall_s, "mb_cpu_s": megabytes / self.cpu_s}


async def in_process_effort(folder: Path, tasks: Sequence[FileTask]) -> Effort:
    """Measure an engine in this process, with the one thread of a Spark worker."""
    objects = await open_objects(folder)
    with ThreadPoolExecutor(1) as pool:
        engine = InlineEngine(objects, pool, slots=1)
        took = await timed(engine, tasks)
    await objects.close()
    return took


async def spark_effort(folder: Path, master: str, tasks: Sequence[FileTask]) -> Effort:
    """Measure one job."""
    async with spark(master, objects_url(folder)) as engine:
        return await timed(engine, tasks)


async def timed(engine: TaskEngine, tasks: Sequence[FileTask]) -> Effort:
    """Do the job for what is loaded at first use, then measure it."""
    await engine.run(tasks)
    began_s, cpu_s = time.perf_counter(), all_cpu_s()
    answers = await engine.run(tasks)
    took = Effort(time.perf_counter() - began_s, all_cpu_s() - cpu_s)
    for answer in answers:
        if not isinstance(answer, FileResult):
            raise ClientError(f"a task failed: {answer}")
    return took


def all_cpu_s() -> float:
    """Return the CPU seconds so far of this process and all that run below it."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def tiny_cells(folder: Path, topics: int) -> Iterator[Cell]:
    """Take a thousand streams with a few records each through one round, by both engines."""
    lake = Lake(folder / "ours", BROKER_CORE)
    lake.start()
    try:
        what = f"a round of {TINY_STREAMS:,} tiny streams of {topics} topics"
        seconds = asyncio.run(tiny_round(lake, topics, "inline", None))
        yield f"{what}, in process", {"round_s": seconds}
        with on_cores(ALL_CORES):
            seconds = asyncio.run(tiny_round(lake, topics, "spark", "local[2]"))
        yield f"{what}, Spark, 2 slots", {"round_s": seconds}
    finally:
        lake.stop()


async def tiny_round(lake: Lake, topics: int, name: str, master: str | None) -> float:
    """Return the seconds of the round that compacts them all."""
    async with workshop(lake.data) as shop:
        if master is None:
            return await timed_round(lake, shop, InlineEngine(shop.objects), (name, topics))
        async with spark(master, objects_url(lake.data)) as engine:
            return await timed_round(lake, shop, engine, (name, topics))


async def timed_round(
    lake: Lake, shop: Workshop, engine: TaskEngine, made: tuple[str, int]
) -> float:
    """Make one round for what is loaded at first use, then the one that counts."""
    name, topics = made
    pipeline = shop.pipeline(engine)
    produce_tiny(lake, f"{name}-warm", 1, 4)
    check_round(await pipeline.round())
    produce_tiny(lake, name, topics, TINY_STREAMS // topics)
    began = time.perf_counter()
    report = await pipeline.round()
    took = time.perf_counter() - began
    check_round(report)
    ended = sum(topic.ended for topic in report.topics)
    if ended != TINY_STREAMS:
        raise ClientError(f"{ended} tasks of {TINY_STREAMS} came to their end in one round")
    await pipeline.close()
    return took


def produce_tiny(lake: Lake, name: str, topics: int, partitions: int) -> None:
    """Give every partition of new topics one batch of two records."""
    (batch,) = make_batches(100, 2, count=1)
    names = [f"{name}-{number}" for number in range(topics)]
    create_topics(lake.broker.bootstrap, names, partitions, freshness_ms=0)
    with Client(lake.broker.port) as client:
        for topic in names:
            body = produce_body(topic, [(at, batch) for at in range(partitions)])
            check_produced(client.call(PRODUCE, PRODUCE_VERSION, body))


def memory_cell(folder: Path, quick: bool) -> Cell:
    """Make one large file in a process of its own, and see how much memory that takes."""
    count = MEMORY_ROUNDS_QUICK if quick else MEMORY_ROUNDS
    (task,) = asyncio.run(
        fill(folder, streams=1, rounds=count, batches_per_chunk=BATCHES_PER_CHUNK)
    )
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        values = process.submit(memory_of, folder, task).result()
    return "memory of one task", values


def memory_of(folder: Path, task: FileTask) -> dict[str, float]:
    """Run a small task, then this one; both figures are of the whole process."""
    keep_freed_memory()  # as a worker of Spark does

    async def work() -> dict[str, float]:
        objects = await open_objects(folder)
        assert isinstance(task.inputs, WalInputs), task
        first = task_of(task.stream, task.inputs.pieces[:1])
        small = replace(first, key=f"{task.key}.small")
        with ThreadPoolExecutor(1) as pool:
            await run_task(objects, small, pool=pool)
            idle_mb = forget_peak_mb()
            done = await run_task(objects, task, pool=pool)
        await objects.close()
        if not isinstance(done, FileResult):
            raise ClientError(f"a task failed: {done}")
        peak_mb = status_mb("VmHWM")
        return {
            "input_mb": done.read_bytes / 1e6,
            "file_mb": done.facts.size_bytes / 1e6,
            "peak_mb": peak_mb,
            "peak_over_idle_mb": peak_mb - idle_mb,
        }

    return asyncio.run(work())


def forget_peak_mb() -> float:
    """Have the kernel count this process's peak from now on; return what it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_mb("VmRSS")


def status_mb(name: str) -> float:
    """Return a figure of this process from the kernel's page about it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        found, _, value = line.partition(":")
        if found == name:
            return int(value.split()[0]) * 1_024 / 1e6
    raise ClientError(f"the kernel does not say {name}")
