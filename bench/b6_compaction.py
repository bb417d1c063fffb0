"""B6: compaction of a WAL backlog, against pyarrow writing the same rows that lie ready in memory.

The peer is not Kafka but the library that writes our files: it gets a prepared table and the same
settings (zstd 1, row groups of 12 MiB) and has nothing to read, check or decode. Ours reads WAL
objects, checks CRCs, decompresses, decodes and writes with statistics, and puts the file durably.
MB are bytes of keys and values. Both run on one core; files of both go through the same store.

Through Spark the same tasks run once more (`bench.compaction_engines`): one slot on one core
against the same in process, two slots on two cores, a whole round of a thousand tiny streams beside
a running broker, and the memory of one task.
"""

import asyncio
import io
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import compaction_engines
from bench.arena import Arena
from bench.results import OURS, Metric, Sample
from bench.wal_backlog import fill, open_objects
from lakelog.objects.local import LocalObjectStore
from lakelog.pipeline.files.file_task import FileResult, FileTask
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.codecs import Codec
from lakelog.records.kernels import keep_freed_memory

NAME = "b6"
METRICS = (
    Metric("mb_cpu_s", "MB/cpu-s"),
    Metric("pyarrow_mb_cpu_s", "MB/cpu-s"),
    Metric("times_pyarrow", "x"),
    Metric("wall_mb_s", "MB/s"),
    *compaction_engines.METRICS,
)
STREAMS = 4
ROUNDS = 40
CODECS = (Codec.LZ4, Codec.ZSTD, Codec.NONE)
ROW_GROUP_ROWS = 52_000
"""About 12 MiB of these rows."""


def run(arena: Arena) -> None:
    """Measure each codec, ours and pyarrow one after the other."""
    keep_freed_memory()  # for both, as a worker of Spark does
    for number in range(arena.scale.rounds):
        for codec in CODECS if not arena.scale.quick else CODECS[:1]:
            with arena.folder() as folder:
                values = asyncio.run(measure(folder, codec))
            cell = f"{codec.name.lower()}, one core, in process"
            arena.recorder.add(Sample(NAME, cell, OURS, number, values))
        for cell, values in compaction_engines.measure(arena):
            arena.recorder.add(Sample(NAME, cell, OURS, number, values))


async def measure(folder: Path, codec: Codec) -> dict[str, float]:
    """Compact every stream, then write the same rows with pyarrow alone."""
    chunk = 8 if codec is Codec.NONE else 16
    tasks = await fill(folder, streams=STREAMS, rounds=ROUNDS, batches_per_chunk=chunk, codec=codec)
    objects = await open_objects(folder)
    await run_task(objects, tasks[0])  # what is compiled and imported at first use
    cpu, wall = time.process_time(), time.perf_counter()
    results = [await run_task(objects, task) for task in tasks]
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    total_mb = 0.0
    raw_cpu = 0.0
    for task, result in zip(tasks, results, strict=True):
        assert isinstance(result, FileResult), result
        size, seconds = await write_again(objects, task)
        total_mb += size / 1e6
        raw_cpu += seconds
    await objects.close()
    return {
        "mb_cpu_s": total_mb / cpu,
        "pyarrow_mb_cpu_s": total_mb / raw_cpu,
        "times_pyarrow": raw_cpu / cpu,
        "wall_mb_s": total_mb / wall,
    }


async def write_again(objects: LocalObjectStore, task: FileTask) -> tuple[int, float]:
    """Write the rows of a task's file once more; returns their bytes and the CPU seconds."""
    table = pq.read_table(pa.BufferReader(await objects.get(task.key)), use_threads=False)
    table = table.combine_chunks()
    size = sum(table[name].nbytes for name in ("key", "value"))
    began = time.process_time()
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=["partition", "attributes"],
        write_statistics=["partition", "offset", "timestamp"],
        store_schema=False,
        row_group_size=ROW_GROUP_ROWS,
    )
    await objects.put(task.key + ".raw", [sink.getvalue()])
    return size, time.process_time() - began
