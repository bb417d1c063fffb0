"""Reading WAL objects: runs of batches from memory, or from the store in few, merged reads.

`ObjectReads` is shared with segments: each object is read once, whoever asks meanwhile, and ranges
of an object that lie close together are one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from lakelog.clock import Clock
from lakelog.log.cache import CachedObject, Run, RunCache, TailCache, run_behind_lengths
from lakelog.log.options import LogOptions
from lakelog.log.plan import Piece, PieceSource, StreamPlan, coalesce, cut_out
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.model.ids import ByteRange, DomainId
from lakelog.objects.port import ObjectStore
from lakelog.streams.objects import ObjectName, WalName
from lakelog.telemetry import MetricsRegistry
from lakelog.wal.layout import decode, object_key, verify_run, wal_id_time_ms

WHOLE_OBJECT_AGE_MS: Final = 60_000
"""A fresh object is read whole: other streams' consumers will want their part of it soon."""

WHOLE: Final = -1
"""Stands for the whole object where the first byte of a read is asked for."""

UNLIMITED: Final = 1 << 62


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

    async def load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        """Read the object whole while it is fresh, else these pieces of it."""
        assert isinstance(name, WalName)
        if all(self.cached(piece) is not None for piece in pieces):
            return  # somebody else brought it since it was planned
        if self._clock.now_ms() - wal_id_time_ms(name.wal_id) < WHOLE_OBJECT_AGE_MS:
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
        stored = decode(data, wal_id=name.wal_id)
        # Chunks follow each other without a gap, so all batches are one run of the object.
        body_start = stored.chunks[0].start
        batches = [batch for chunk in stored.batches for batch in chunk]
        whole = run_behind_lengths(data[body_start:], batches)
        starts, ends = whole.starts + body_start, whole.ends + body_start
        self._tail.put(name.wal_id, CachedObject(data, starts, ends, whole.offset_counts))

    async def _load_runs(self, name: WalName, pieces: Sequence[Piece]) -> None:
        contents = await self._reads.ranges(self._key(name), pieces)
        for piece, data in zip(pieces, contents, strict=True):
            self._runs.put((name, piece.byte_start), run_behind_lengths(data, verify_run(data)))

    def _key(self, name: WalName) -> str:
        return object_key(name.zone, self._domain, name.wal_id)
