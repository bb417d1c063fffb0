"""Reading batches: from memory where they are, else from the object store in few, merged reads.

Data may be served from any applied state (rule 16). An object that is missing means that this
replica is behind: it proves itself current and plans again; an entry that still names a missing or
damaged object is an alarm, never skipped and never taken for the end of the data (E2).
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from lakelog.clock import Clock
from lakelog.domain.replica import Replica
from lakelog.log.cache import CachedObject, Run, RunCache, TailCache, run_of
from lakelog.log.options import LogOptions
from lakelog.log.plan import Cut, Piece, StreamPlan, coalesce, plan_stream
from lakelog.log.segment_read import SegmentReader, is_segment
from lakelog.log.table_read import TableReader, is_table
from lakelog.log.values import Fetched, ReadStatus, Wanted
from lakelog.model.failures import Corrupt, NotFound, Unavailable
from lakelog.model.ids import DomainId, WalId
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.streams.objects import FileName, ObjectName, WalName
from lakelog.telemetry import Metrics, event
from lakelog.wal.ids import object_key, wal_id_time_ms
from lakelog.wal.layout import decode
from lakelog.wal.runs import PREFIX, verify_run

_log = logging.getLogger("lakelog.log")
_WHOLE_OBJECT_AGE_MS = 60_000
"""A fresh object is read whole: other streams' consumers will want their part of it soon."""


class Reader:
    """Reads the streams of one domain."""

    def __init__(
        self,
        replica: Replica,
        objects: ObjectStore,
        clock: Clock,
        *,
        options: LogOptions,
        tail: TailCache,
        metrics: Metrics,
    ) -> None:
        self._replica = replica
        self._objects = objects
        self._clock = clock
        self._options = options
        self._tail = tail
        self._runs: RunCache = RunCache(options.read_cache_bytes)
        self._metrics = metrics
        self._tables = TableReader(objects, options, metrics)
        self._segments = SegmentReader(objects, options, metrics)
        self._loading: dict[tuple[ObjectName, int], asyncio.Future[None]] = {}
        self._reads = asyncio.Semaphore(options.reads_max)

    def on_rebuild(self, listener: Callable[[], None]) -> None:
        """Call it whenever rows of a data file become batches."""
        self._tables.on_rebuild.append(listener)

    async def read(
        self, wanted: Sequence[Wanted], *, bytes_max: int, at_least_one: bool = True
    ) -> list[Fetched]:
        """What the streams hold from the offsets on, within one budget (row 3)."""
        plans = [plan_stream(self._replica.state, one) for one in wanted]
        await self._segments.open(plans)
        missing, later = self._missing(plans, bytes_max=bytes_max)
        if missing:
            await asyncio.gather(*self._loads(missing), return_exceptions=True)
            plans = [plan_stream(self._replica.state, one) for one in wanted]
        cold = [plan for plan in plans if plan.pieces and is_table(plan.pieces[0].name)]
        if cold:
            later |= await self._tables.admit(cold)
        fetched = []
        left = bytes_max
        must = at_least_one
        for plan in plans:
            if plan.wanted.stream in later:
                fetched.append(Fetched(plan.status, (), 0, plan.log_start, plan.head))
                continue
            limit = max(0, min(plan.wanted.bytes_max, left))
            got = await self._read_stream(plan, bytes_max=limit, at_least_one=must)
            must = must and not got.size_bytes
            left -= got.size_bytes
            fetched.append(got)
        return fetched

    async def parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The piece, or of a file the parts that hold the offset and those after it."""
        files = self._files(piece)
        return (piece,) if files is None else await files.parts(piece, offset=offset)

    async def bring(self, pieces: Sequence[Piece]) -> None:
        """Read parts of a segment with one request; one that fails is left to who asks for it."""
        missing = [one for one in pieces if is_segment(one.name) and self._cached(one) is None]
        if missing:
            await asyncio.gather(*self._loads(missing), return_exceptions=True)

    async def run(self, piece: Piece) -> Run:
        """All batches of one piece, which is no file but may be a part of one."""
        if is_table(piece.name):
            return await self._tables.run(piece)
        cached = self._cached(piece)
        if cached is None:
            await self._load([piece])
            cached = self._cached(piece)
        if cached is None:
            raise Unavailable("a read was pushed out of memory; raise log.read_cache_bytes")
        return cached

    def _missing(
        self, plans: Sequence[StreamPlan], *, bytes_max: int
    ) -> tuple[list[Piece], set[int]]:
        """What the request needs from the store, all at once, so that streams share a read.

        Also the streams that have to wait their turn: what is read of many segments must not push
        out itself before it is served.
        """
        missing: list[Piece] = []
        later: set[int] = set()
        room, is_served = self._segments.room_bytes(), False
        for plan in plans:
            if not plan.pieces:
                continue
            if is_table(plan.pieces[0].name):
                bytes_max -= plan.wanted.bytes_max
                continue
            runs = self._segments.spread(plan)
            if runs and self._cached(runs[0]) is None:
                ahead = self._ahead(plan.wanted)
                cold_bytes = sum(one.byte_length for one in ahead if is_segment(one.name))
                if is_served and cold_bytes > max(0, room):
                    later.add(plan.wanted.stream)
                    continue
                room -= cold_bytes
                missing += ahead
            # One segment at least is read, however much memory others hold.
            is_served = is_served or any(is_segment(one.name) for one in runs)
            bytes_max -= sum(piece.byte_length for piece in runs)
            if bytes_max <= 0:
                break
        return missing, later

    def _ahead(self, wanted: Wanted) -> list[Piece]:
        """What is wanted and some more: whoever reads the past reads on."""
        ahead_bytes = self._options.read_ahead_bytes
        plan = plan_stream(self._replica.state, wanted, ahead_bytes=ahead_bytes)
        pieces = self._segments.spread(plan, ahead_bytes=ahead_bytes)
        return [one for one in pieces if not is_table(one.name) and self._cached(one) is None]

    async def _read_stream(
        self, plan: StreamPlan, *, bytes_max: int, at_least_one: bool
    ) -> Fetched:
        if not plan.pieces or (bytes_max <= 0 and not at_least_one):
            return Fetched(plan.status, (), 0, plan.log_start, plan.head)
        try:
            return await self._serve(plan, bytes_max=bytes_max, at_least_one=at_least_one)
        except (NotFound, Corrupt) as error:
            event(_log, "read_again", logging.WARNING, reason=repr(error))
        await self._replica.prove(arrived_s=self._clock.monotonic_s())
        try:
            again = plan_stream(self._replica.state, plan.wanted)
            return await self._serve(again, bytes_max=bytes_max, at_least_one=at_least_one)
        except (NotFound, Corrupt) as error:
            event(_log, "object_damaged", logging.ERROR, reason=repr(error))
            return Fetched(ReadStatus.DAMAGED, (), 0, -1, -1)

    async def _serve(self, plan: StreamPlan, *, bytes_max: int, at_least_one: bool) -> Fetched:
        cut = Cut(plan.wanted.offset, bytes_max=bytes_max, at_least_one=at_least_one)
        for piece in plan.pieces:
            files = self._files(piece)
            if files is not None and cut.size_bytes and not files.knows(piece):
                break
            parts = await self.parts(piece, offset=plan.wanted.offset)
            if not await self._take(cut, parts):
                break
        return Fetched(plan.status, cut.parts, cut.size_bytes, plan.log_start, plan.head)

    async def _take(self, cut: Cut, pieces: Iterable[Piece]) -> bool:
        """Cut batches from these pieces; whether there is room for those of more."""
        for piece in pieces:
            run = self._cached(piece)
            if run is None:
                if cut.size_bytes:
                    return False  # what is in memory goes out now; the rest with the next request
                run = await self.run(piece)
            cut.take(run, piece.start)
            if cut.full:
                return False
            files = self._files(piece)
            if files is not None:
                files.spend(piece, run)
        return True

    def _files(self, piece: Piece) -> TableReader | SegmentReader | None:
        """Who reads the file that a piece lies in; None for a WAL object."""
        if isinstance(piece.name, WalName):
            return None
        return self._segments if is_segment(piece.name) else self._tables

    def _cached(self, piece: Piece) -> Run | None:
        if not isinstance(piece.name, WalName):
            files = self._segments if is_segment(piece.name) else self._tables
            return files.cached(piece)
        whole = self._tail.get(piece.name.wal_id)
        if whole is not None:
            return whole.run(piece.byte_start, piece.byte_length)
        return self._runs.get((piece.name, piece.byte_start))

    async def _load(self, pieces: Sequence[Piece]) -> None:
        """Bring these pieces into the caches, each object once, whoever asks meanwhile."""
        await asyncio.gather(*self._loads(pieces))

    def _loads(self, pieces: Sequence[Piece]) -> list[Coroutine[Any, Any, None]]:
        by_object: dict[ObjectName, dict[int, Piece]] = {}
        for piece in pieces:
            by_object.setdefault(piece.name, {})[piece.byte_start] = piece
        return [self._load_object(name, list(some.values())) for name, some in by_object.items()]

    async def _load_object(self, name: ObjectName, pieces: list[Piece]) -> None:
        if all(self._cached(piece) is not None for piece in pieces):
            return  # somebody else brought it since it was planned
        whole = isinstance(name, WalName) and self._is_fresh(name.wal_id)
        mark = (name, -1 if whole else pieces[0].byte_start)
        running = self._loading.get(mark)
        if running is not None:
            await asyncio.shield(running)
            return
        done = self._loading[mark] = asyncio.get_running_loop().create_future()
        try:
            async with self._reads:
                self._metrics.objects_got.inc()
                if whole and isinstance(name, WalName):
                    await self._load_whole(name, pieces[0].object_bytes)
                else:
                    await self._load_runs(name, pieces)
        finally:
            del self._loading[mark]
            done.set_result(None)

    def _is_fresh(self, wal_id: WalId) -> bool:
        return self._clock.now_ms() - wal_id_time_ms(wal_id) < _WHOLE_OBJECT_AGE_MS

    async def _load_whole(self, name: WalName, object_bytes: int) -> None:
        key = self._key(name)
        data = await self._objects.get(key)
        if len(data) != object_bytes:
            raise Corrupt(f"{key} has {len(data)} bytes, not {object_bytes}")
        stored = decode(data, wal_id=name.wal_id)
        starts: list[int] = []
        batches: list[memoryview] = []
        for chunk, some in zip(stored.chunks, stored.batches, strict=True):
            place = chunk.start
            for batch in some:
                starts.append(place)
                batches.append(batch)
                place += PREFIX.size + len(batch)
        counts = run_of(batches).offset_counts
        self._tail.put(name.wal_id, CachedObject(starts, batches, counts))

    async def _load_runs(self, name: ObjectName, pieces: list[Piece]) -> None:
        spans = [ByteRange(one.byte_start, one.byte_start + one.byte_length) for one in pieces]
        merged = coalesce(spans)
        contents = await self._objects.get_ranges(self._key(name), merged)
        for piece, span in zip(pieces, spans, strict=True):
            holder = bisect_right(merged, span.start, key=lambda one: one.start) - 1
            start = span.start - merged[holder].start
            data = contents[holder][start : start + len(span)]
            if is_segment(name):
                self._segments.keep(piece, data)
            else:
                self._runs.put((name, span.start), run_of(verify_run(data)))

    def _key(self, name: ObjectName) -> str:
        match name:
            case WalName(wal_id=wal_id, zone=zone):
                return object_key(zone, DomainId(self._replica.identity.domain), wal_id)
            case FileName(key=key):
                return key
