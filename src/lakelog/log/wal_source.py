"""Reading WAL objects: runs of batches from memory, or from the store in few, merged reads.

What was read is checked once, on a thread: a whole object by its own checksum, part of one by those
of its batches. `ObjectReads` is shared with segments: each object is read once, whoever asks
meanwhile, and ranges of an object that lie close together are one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, TypeVar

import numpy as np

from lakelog.clock import Clock, lower_priority
from lakelog.log.cache import CachedObject, Run, RunCache, TailCache, run_behind_lengths
from lakelog.log.options import LogOptions
from lakelog.log.plan import Piece, PieceSource, StreamPlan, coalesce, cut_out
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.model.ids import ByteRange, DomainId, WalId
from lakelog.objects.port import ObjectStore
from lakelog.records import kernels
from lakelog.records.fetched_batches import TABLE_ROWS, FetchedBatches, header_table
from lakelog.records.kernels import crc32c
from lakelog.streams.objects import ObjectName, WalName
from lakelog.telemetry import MetricsRegistry
from lakelog.wal.layout import (
    BATCH_HEADER_BYTES,
    FOOTER,
    HEADER,
    PREFIX,
    decode_head,
    object_key,
    split_run,
    verify_run,
    wal_id_time_ms,
)

WHOLE_OBJECT_AGE_MS: Final = 60_000
"""A fresh object is read whole: other streams' consumers will want their part of it soon."""

WHOLE: Final = -1
"""Stands for the whole object where the first byte of a read is asked for."""

UNLIMITED: Final = 1 << 62
VERIFY_THREADS: Final = 2
BATCH_BYTES_MIN: Final = PREFIX.size + BATCH_HEADER_BYTES
ResultT = TypeVar("ResultT")


class ObjectReads:
    """Reads of the store that several may want at the same time."""

    def __init__(self, objects: ObjectStore, options: LogOptions, metrics: MetricsRegistry) -> None:
        self.objects = objects
        self._metrics = metrics
        self._running: dict[tuple[ObjectName, int], asyncio.Future[None]] = {}
        self._places = asyncio.Semaphore(options.reads_max)

    async def once(self, mark: tuple[ObjectName, int], read: Callable[[], Awaitable[None]]) -> None:
        """Do this read, or wait for the one that is under way."""
        running = self._running.get(mark)
        if running is not None:
            await asyncio.shield(running)
            return
        done = self._running[mark] = asyncio.get_running_loop().create_future()
        try:
            async with self._places:
                self._metrics.objects_got.inc()
                await read()
        finally:
            del self._running[mark]
            done.set_result(None)

    async def ranges(self, key: str, pieces: Sequence[Piece]) -> list[memoryview]:
        """The bytes of each piece of one object."""
        spans = [
            ByteRange(piece.byte_start, piece.byte_start + piece.byte_length) for piece in pieces
        ]
        merged = coalesce(spans)
        return cut_out(spans, merged, await self.objects.get_ranges(key, merged))


async def loaded_run(source: PieceSource, piece: Piece) -> Run:
    """The batches of a piece that is brought into memory if it is not there."""
    cached = source.cached(piece)
    if cached is None:
        await source.load(piece.name, [piece])
        cached = source.cached(piece)
    if cached is None:
        raise Unavailable("a read was pushed out of memory; raise log.read_cache_bytes")
    return cached


class WalSource:
    """The WAL objects that the index of one domain names."""

    has_parts = False
    is_ranged = True
    read_bytes_max = UNLIMITED

    def __init__(
        self, reads: ObjectReads, clock: Clock, *, domain: int, options: LogOptions, tail: TailCache
    ) -> None:
        self._reads = reads
        self._clock = clock
        self._domain = DomainId(domain)
        self._tail = tail
        self._runs: RunCache = RunCache(options.read_cache_bytes)

    def cached(self, piece: Piece) -> Run | None:
        """The batches of an entry, if they are in memory."""
        assert isinstance(piece.name, WalName)
        whole = self._tail.get(piece.name.wal_id)
        if whole is not None:
            return whole.run(piece.byte_start, piece.byte_length)
        return self._runs.get((piece.name, piece.byte_start))

    def knows(self, piece: Piece) -> bool:
        """An entry is read as it is."""
        del piece
        return True

    def known_parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The entry itself."""
        del offset
        return (piece,)

    async def parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The entry itself."""
        del offset
        return (piece,)

    async def open(self, plans: Sequence[StreamPlan]) -> None:
        """There is nothing to get to know."""

    async def admit(self, plans: Sequence[StreamPlan]) -> set[int]:
        """Nobody waits: what is read here pushes out only what was read before."""
        del plans
        return set()

    def reads_whole(self, name: ObjectName) -> bool:
        """Fresh objects are."""
        assert isinstance(name, WalName)
        return self._clock.now_ms() - wal_id_time_ms(name.wal_id) < WHOLE_OBJECT_AGE_MS

    async def load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        """Read the object whole while it is fresh, else these pieces of it."""
        assert isinstance(name, WalName)
        if all(self.cached(piece) is not None for piece in pieces):
            return  # somebody else brought it since it was planned
        if self.reads_whole(name):
            size_bytes = pieces[0].object_bytes
            await self._reads.once((name, WHOLE), lambda: self._load_whole(name, size_bytes))
        else:
            mark = (name, pieces[0].byte_start)
            await self._reads.once(mark, lambda: self._load_runs(name, pieces))

    async def run(self, piece: Piece) -> Run:
        """The batches of an entry."""
        return await loaded_run(self, piece)

    def spend(self, piece: Piece, run: Run) -> None:
        """The least used goes first, whoever read it."""

    def room_bytes(self) -> int:
        """Nothing that somebody reads is pushed out for good: the tail has a cache of its own."""
        return UNLIMITED

    async def _load_whole(self, name: WalName, object_bytes: int) -> None:
        key = self._key(name)
        data = await self._reads.objects.get(key)
        if len(data) != object_bytes:
            raise Corrupt(f"{key} has {len(data)} bytes, not {object_bytes}")
        self._tail.put(name.wal_id, await _on_thread(verified_object, data, name.wal_id))

    async def _load_runs(self, name: WalName, pieces: Sequence[Piece]) -> None:
        contents = await self._reads.ranges(self._key(name), pieces)
        runs = await _on_thread(lambda: [verified_run(data) for data in contents])
        for piece, run in zip(pieces, runs, strict=True):
            self._runs.put((name, piece.byte_start), run)

    def _key(self, name: WalName) -> str:
        return object_key(name.zone, self._domain, name.wal_id)


def verified_object(data: memoryview, wal_id: WalId) -> CachedObject:
    """A whole object, proved by its own checksum; its batches' are covered by that."""
    end = len(data) - FOOTER.size
    if end < HEADER.size or FOOTER.unpack_from(data, end)[0] != crc32c(data[:end]):
        raise Corrupt("the WAL object's CRC-32C does not match")
    chunks = decode_head(data, size_bytes=len(data), wal_id=wal_id).chunks
    # Chunks follow each other without a gap, so all batches are one run.
    start, count = chunks[0].start, sum(chunk.batch_count for chunk in chunks)
    run = _run(data, start, end, count_max=count, verify=False)
    if len(run.starts) != count:
        raise Corrupt(f"{len(run.starts)} batches, not {count}")
    return CachedObject(data, run.starts, run.ends, run.offset_counts)


def verified_run(data: memoryview) -> Run:
    """Part of an object, proved batch by batch."""
    return _run(data, 0, len(data), count_max=len(data) // BATCH_BYTES_MIN, verify=True)


def _run(data: memoryview, start: int, end: int, *, count_max: int, verify: bool) -> Run:
    native = kernels.native
    if native is not None:
        table = np.empty((3, count_max), dtype=np.int64)
        count, position = native.find_batches(data, start, end, verify, table)
        if position == end:
            starts, ends, counts = table[:, :count].copy()
            return Run(data, starts, ends, counts, int((ends - starts).sum()))
    # The twin, which also says what is wrong.
    batches = (verify_run if verify else split_run)(data[start:end])
    run = run_behind_lengths(data[start:end], batches)
    return Run(data, run.starts + start, run.ends + start, run.offset_counts, run.size_bytes)


def walk_run(run: memoryview, base_offset: int) -> FetchedBatches:
    """The batches of a run whose offsets begin there, each one checked; `Corrupt` if one is not."""
    native = kernels.native
    if native is not None:
        table = np.empty((TABLE_ROWS, len(run) // BATCH_BYTES_MIN), np.int64)
        count, position = native.walk_run(run, base_offset, table)
        if position == len(run):
            return FetchedBatches(table[:, :count].copy(), is_cut=False)
    # The twin, which also says what is wrong.
    batches = verify_run(run)
    places = run_behind_lengths(run, batches)
    table = header_table(batches)
    table[0], table[1] = places.starts, places.ends
    counts = table[3] - table[2]
    table[3] = base_offset + np.cumsum(counts)
    table[2] = table[3] - counts
    return FetchedBatches(table, is_cut=False)


async def _on_thread(work: Callable[..., ResultT], *arguments: Any) -> ResultT:
    """Check what was read on a thread of its own: megabytes would hold up the loop (R2)."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), work, *arguments)


@cache
def _threads() -> ThreadPoolExecutor:
    """Made when the first object is read; they end with the process."""
    return ThreadPoolExecutor(
        VERIFY_THREADS, thread_name_prefix="verify", initializer=lower_priority
    )
