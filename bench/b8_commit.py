"""B8: commits of 1 to 10,000 streams through the domain log, against a row per stream.

The peer is not Kafka but the obvious schema: one row per index entry and one per head, in one
transaction, in the same SQLite file settings (WAL, FULL). Both acknowledge after the commit is
durable; ours also applies it. Rebuild: a checkpoint with a million entries, loaded and served.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.arena import Arena
from bench.results import OURS, Metric, Sample, percentiles_ms
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.domain.checkpoint_store import CheckpointStore
from lakelog.domain.commit_event import Commit
from lakelog.domain.events import Create
from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.ids import TopicId, WalId
from lakelog.objects.local import LocalObjectStore

NAME = "b8"
STREAMS = (1, 64, 1_000, 10_000)
ENTRIES = 1_000_000
BATCH_BYTES = 200
METRICS = (
    Metric("commit_p50_ms", "ms", more_is_better=False),
    Metric("commit_p99_ms", "ms", more_is_better=False),
    Metric("streams_s", "streams/s"),
    Metric("row_per_stream_s", "streams/s"),
    Metric("times_row_per_stream", "x"),
    Metric("lookup_us", "us", more_is_better=False),
    Metric("rebuild_s", "s", more_is_better=False),
)


def run(arena: Arena) -> None:
    """Measure every size on a fresh file, then the rebuild."""
    for number in range(arena.scale.rounds):
        for streams in STREAMS:
            with arena.folder() as folder:
                values = asyncio.run(packed(folder, streams, arena.scale.seconds))
                rows = row_per_stream(folder / "rows.db", streams, arena.scale.seconds)
            values["row_per_stream_s"] = rows
            values["times_row_per_stream"] = values["streams_s"] / rows
            arena.recorder.add(Sample(NAME, f"{streams:,} streams a commit", OURS, number, values))
        with arena.folder() as folder:
            rebuilt = asyncio.run(rebuild(folder))
        cell = f"rebuild {ENTRIES:,} entries"
        arena.recorder.add(Sample(NAME, cell, OURS, number, rebuilt))


async def packed(folder: Path, streams: int, seconds: float) -> dict[str, float]:
    """Commit through a replica: encode, append, apply."""
    replica, close = await open_replica(folder)
    ids = np.arange(1, streams + 1, dtype=np.int64)
    await replica.submit(Create(TopicId(bytes(16)), 0, ids))
    taken: list[float] = []
    began = time.perf_counter()
    for event in commits(ids):
        started = time.perf_counter()
        await replica.submit(event)
        taken.append(time.perf_counter() - started)
        if time.perf_counter() - began > seconds:
            break
    total = time.perf_counter() - began
    p50, p99, _ = percentiles_ms(taken[1:] or taken)
    lookup_us = look_up(replica)
    await close()
    return {
        "commit_p50_ms": p50,
        "commit_p99_ms": p99,
        "streams_s": len(taken) * streams / total,
        "lookup_us": lookup_us,
    }


def look_up(replica: Replica) -> float:
    """Microseconds to find the entry of an offset in the middle of a stream."""
    state = replica.state
    row = state.streams.row_of[1]
    middle = int(state.streams.columns["head"][row]) // 2
    state.index.find(state.streams, row, middle)
    started = time.perf_counter()
    for _ in range(1_000):
        state.index.find(state.streams, row, middle)
    return (time.perf_counter() - started) * 1e3


def commits(ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Commit]:
    """Commits in which an idempotent producer goes on in every stream."""
    count = len(ids)
    now_ms = time.time_ns() // 1_000_000
    for number in range(1 << 30):
        yield Commit(
            wal_id=WalId((now_ms + number).to_bytes(6, "big") + bytes(10)),
            zone="bench",
            size_bytes=(count + 1) * BATCH_BYTES,
            stream=ids,
            byte_start=np.arange(count, dtype=np.uint32) * BATCH_BYTES,
            byte_length=np.full(count, BATCH_BYTES, dtype=np.uint32),
            offset_count=np.full(count, 2, dtype=np.uint32),
            max_timestamp=np.full(count, now_ms, dtype=np.int64),
            producer=np.full(count, 7, dtype=np.int64),
            epoch=np.zeros(count, dtype=np.int16),
            sequence=np.full(count, number * 2, dtype=np.int32),
        )


def row_per_stream(path: Path, streams: int, seconds: float) -> float:
    """Streams committed a second when every entry and every head is a row."""
    file = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=FULL",
        "CREATE TABLE entries (stream INTEGER, end INTEGER, value BLOB, PRIMARY KEY (stream, end))",
        "CREATE TABLE heads (stream INTEGER PRIMARY KEY, head INTEGER)",
    ):
        file.execute(statement)
    done, number = 0, 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        number += 1
        file.execute("BEGIN IMMEDIATE")
        entries = [(stream, number * 2, bytes(48)) for stream in range(streams)]
        file.executemany("INSERT INTO entries VALUES (?, ?, ?)", entries)
        heads = [(stream, number * 2) for stream in range(streams)]
        file.executemany("INSERT OR REPLACE INTO heads VALUES (?, ?)", heads)
        file.execute("COMMIT")
        done += streams
    file.close()
    return done / (time.perf_counter() - began)


async def rebuild(folder: Path) -> dict[str, float]:
    """Write a checkpoint with a million entries, then start a replica from it."""
    replica, close = await open_replica(folder)
    ids = np.arange(1, 10_001, dtype=np.int64)
    await replica.submit(Create(TopicId(bytes(16)), 0, ids))
    for event in commits(ids):
        await replica.submit(event)
        if replica.state.index.columns.count >= ENTRIES:
            break
    store, objects = replica._store, replica._checkpoints._objects
    await CheckpointStore(store, objects, domain=0, options=DomainOptions()).save(
        replica.state.frozen()
    )
    await close()
    started = time.perf_counter()
    again, close = await open_replica(folder)
    seconds = time.perf_counter() - started
    assert again.state.index.columns.count >= ENTRIES
    await close()
    return {"rebuild_s": seconds}


async def open_replica(folder: Path):  # type: ignore[no-untyped-def]  # - returns a local closer
    """A replica on SQLite and a local directory, and what closes it."""
    clock = SystemClock()
    store = await SqliteMetadataStore.open(folder / "metadata.db", clock)
    objects = await LocalObjectStore.open(folder / "objects", clock, SystemEntropy())
    options = DomainOptions(checkpoint_records=1 << 40, checkpoint_bytes=1 << 60)
    replica = Replica(Identity("bench", 0, "broker-1"), store, objects, clock, options)
    await replica.start(found=True)

    async def close() -> None:
        await replica.close()
        await store.close()
        await objects.close()

    return replica, close
