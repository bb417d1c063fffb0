"""Reading batches, and finding records by their timestamp.

Data may be served from any applied state (rule 16). An object that is missing means that this
replica is behind: it proves itself current and plans again; an entry that still names a missing or
damaged object is an alarm, never skipped and never taken for the end of the data (E2).

The index knows the greatest timestamp of every entry, taken from the records themselves when they
were accepted (row 61), so at most one entry is read to find a record, but for the entry that the
log start lies in. A batch's header was made to agree with its records then, so batches that cannot
hold what is looked for are not decoded. A batch that cannot be decoded stands for itself: a record
at its first readable offset with the header's greatest timestamp, so nobody who looks for one of
its records begins to read behind them.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from heapq import heapify, heappop, heappush, nsmallest
from typing import Any, Final

import numpy as np
from msgspec import Struct

from lakelog.clock import Clock
from lakelog.domain.replica import Replica
from lakelog.domain.state import DomainState
from lakelog.log.cache import Run, TailCache
from lakelog.log.options import LogOptions
from lakelog.log.parquet_source import ParquetSource
from lakelog.log.plan import BatchCut, Piece, PieceSource, StreamPlan, piece_of, plan_stream
from lakelog.log.segment_source import SegmentSource
from lakelog.log.values import Fetched, ReadStatus, StreamRead, TimestampMatch
from lakelog.log.wal_source import ObjectReads, WalSource
from lakelog.model.failures import Corrupt, NotFound
from lakelog.objects.port import ObjectStore
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.columns import decode_columns
from lakelog.records.header import BatchError, parse_header
from lakelog.streams.objects import FileKind, ObjectName
from lakelog.streams.table import Int64s
from lakelog.telemetry import MetricsRegistry, event

_log = logging.getLogger("lakelog.log")


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
        metrics: MetricsRegistry,
    ) -> None:
        self._replica = replica
        self._clock = clock
        self._options = options
        reads = ObjectReads(objects, options, metrics)
        domain = replica.identity.domain
        self._sources: dict[FileKind, PieceSource] = {
            FileKind.WAL: WalSource(reads, clock, domain=domain, options=options, tail=tail),
            FileKind.SEGMENT: SegmentSource(reads, options, metrics),
            FileKind.PARQUET: ParquetSource(objects, options, metrics),
        }

    async def read(
        self, wanted: Sequence[StreamRead], *, bytes_max: int, at_least_one: bool = True
    ) -> list[Fetched]:
        """What the streams hold from the offsets on, within one budget (row 3).

        A cold read is planned up to four times: at first, with what is read ahead (`_ahead`), after
        the loads, and after a proof where an object was not what the index said.
        """
        plans = [plan_stream(self._replica.state, request) for request in wanted]
        for source in self._sources.values():
            await source.open(plans)
        missing, later = self._missing(plans, bytes_max=bytes_max)
        if missing:
            await asyncio.gather(*self._loads(missing), return_exceptions=True)
            # The index may have changed meanwhile: a file has taken the place of entries.
            plans = [plan_stream(self._replica.state, request) for request in wanted]
        later |= await self._admit(plans)
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

    def has_parts(self, piece: Piece) -> bool:
        """Whether a piece is an entry that is read part by part."""
        return self._source(piece).has_parts

    async def parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The piece, or of a file the parts that hold the offset and those after it."""
        return await self._source(piece).parts(piece, offset=offset)

    async def bring(self, pieces: Sequence[Piece]) -> None:
        """Read parts of a segment with one request; one that fails is left to who asks for it."""
        missing = [piece for piece in pieces if self.has_parts(piece) and self._is_missing(piece)]
        if missing:
            await asyncio.gather(*self._loads(missing), return_exceptions=True)

    async def run(self, piece: Piece) -> Run:
        """All batches of one piece, which is no file but may be a part of one."""
        return await self._source(piece).run(piece)

    def _source(self, piece: Piece) -> PieceSource:
        return self._sources[piece.name.kind]

    def _is_missing(self, piece: Piece) -> bool:
        """Whether the piece is to be read as a byte range, and is not in memory."""
        source = self._source(piece)
        return source.is_ranged and source.cached(piece) is None

    async def _admit(self, plans: Sequence[StreamPlan]) -> set[int]:
        """Let each source bring in what it reads one by one; the streams that have to wait."""
        by_source: dict[FileKind, list[StreamPlan]] = {}
        for plan in plans:
            if plan.pieces:
                by_source.setdefault(plan.pieces[0].name.kind, []).append(plan)
        later: set[int] = set()
        for kind, of_source in by_source.items():
            later |= await self._sources[kind].admit(of_source)
        return later

    def _missing(
        self, plans: Sequence[StreamPlan], *, bytes_max: int
    ) -> tuple[list[Piece], set[int]]:
        """What the request needs from the store, all at once, so that streams share a read.

        Also the streams that have to wait their turn: what is read of many segments must not push
        out itself before it is served.
        """
        missing: list[Piece] = []
        later: set[int] = set()
        rooms: dict[FileKind, int] = {}
        served: set[FileKind] = set()
        for plan in plans:
            if not plan.pieces:
                continue
            if not self._source(plan.pieces[0]).is_ranged:
                # `_admit` brings it in; here it only takes its share of the budget.
                bytes_max -= plan.wanted.bytes_max
                continue
            parts = self._spread(plan, bytes_max=plan.wanted.bytes_max)
            # With its first part in memory a stream has something to go out now (`_take`).
            if parts and self._is_missing(parts[0]):
                ahead = self._ahead(plan.wanted, parts[0])
                cold_bytes: dict[FileKind, int] = defaultdict(int)
                for piece in ahead:
                    cold_bytes[piece.name.kind] += piece.byte_length
                for kind in cold_bytes.keys() - rooms.keys():
                    rooms[kind] = self._sources[kind].room_bytes()
                # One stream at least is read of each kind, however much memory others hold.
                if any(
                    kind in served and size > max(0, rooms[kind])
                    for kind, size in cold_bytes.items()
                ):
                    later.add(plan.wanted.stream)
                    continue
                for kind, size in cold_bytes.items():
                    rooms[kind] -= size
                missing += ahead
            served |= {piece.name.kind for piece in parts}
            bytes_max -= sum(piece.byte_length for piece in parts)
            if bytes_max <= 0:
                break
        return missing, later

    def _ahead(self, wanted: StreamRead, first: Piece) -> list[Piece]:
        """What is wanted and some more: whoever reads the past reads on.

        A whole object is more already. With yet more of them for every stream of a request, those
        read first would be pushed out before the last stream is served.
        """
        is_whole = self._source(first).reads_whole(first.name)
        ahead_bytes = 0 if is_whole else self._options.read_ahead_bytes
        plan = plan_stream(self._replica.state, wanted, ahead_bytes=ahead_bytes)
        pieces = self._spread(plan, bytes_max=wanted.bytes_max + ahead_bytes)
        return [piece for piece in pieces if self._is_missing(piece)]

    def _spread(self, plan: StreamPlan, *, bytes_max: int) -> Sequence[Piece]:
        """The plan's pieces with files by their parts, as far as those are known."""
        sources = [self._source(piece) for piece in plan.pieces]
        bytes_max = min([bytes_max, *(source.read_bytes_max for source in sources)])
        spread: list[Piece] = []
        size = 0
        for piece, source in zip(plan.pieces, sources, strict=True):
            parts = source.known_parts(piece, offset=plan.wanted.offset)
            if parts is None:
                break
            for part in parts:
                spread.append(part)
                size += part.byte_length
                if size >= bytes_max:
                    return spread
        return spread

    async def _read_stream(
        self, plan: StreamPlan, *, bytes_max: int, at_least_one: bool
    ) -> Fetched:
        if not plan.pieces or (bytes_max <= 0 and not at_least_one):
            return Fetched(plan.status, (), 0, plan.log_start, plan.head)
        try:
            return await self._serve(plan, bytes_max=bytes_max, at_least_one=at_least_one)
        except (NotFound, Corrupt) as error:
            event(_log, "read_again", logging.WARNING, reason=repr(error))
        # The object may be gone because this index is behind: only a proved one can blame it.
        await self._replica.prove(arrived_s=self._clock.monotonic_s())
        try:
            again = plan_stream(self._replica.state, plan.wanted)
            return await self._serve(again, bytes_max=bytes_max, at_least_one=at_least_one)
        except (NotFound, Corrupt) as error:
            event(_log, "object_damaged", logging.ERROR, reason=repr(error))
            return Fetched(ReadStatus.DAMAGED, (), 0, -1, -1)

    async def _serve(self, plan: StreamPlan, *, bytes_max: int, at_least_one: bool) -> Fetched:
        cut = BatchCut(plan.wanted.offset, bytes_max=bytes_max, at_least_one=at_least_one)
        for piece in plan.pieces:
            if cut.size_bytes and not self._source(piece).knows(piece):
                break  # what is in memory goes out now; the file is opened by the next request
            parts = await self.parts(piece, offset=plan.wanted.offset)
            if not await self._take(cut, parts):
                break
        return Fetched(plan.status, cut.parts, cut.size_bytes, plan.log_start, plan.head)

    async def _take(self, cut: BatchCut, pieces: Iterable[Piece]) -> bool:
        """Cut batches from these pieces; whether there is room for those of more."""
        for piece in pieces:
            source = self._source(piece)
            run = source.cached(piece)
            if run is None:
                if cut.size_bytes:
                    return False  # what is in memory goes out now; the rest with the next request
                run = await source.run(piece)
            cut.take(run, piece.start)
            if cut.full:
                return False
            source.spend(piece, run)
        return True

    def _loads(self, pieces: Sequence[Piece]) -> list[Coroutine[Any, Any, None]]:
        """Reads that bring these pieces into memory, one for each object."""
        by_object: dict[ObjectName, dict[int, Piece]] = {}
        for piece in pieces:
            by_object.setdefault(piece.name, {})[piece.byte_start] = piece
        return [
            self._sources[name.kind].load(name, list(by_start.values()))
            for name, by_start in by_object.items()
        ]


_LOWEST: Final = -(1 << 63)
_TOGETHER: Final = 8
"""Parts of a segment that are read at once: its index knows no timestamps, so many may follow."""


async def find_timestamp(
    reader: Reader, state: DomainState, stream: int, timestamp_ms: int
) -> TimestampMatch | None:
    """The first record at or after the log start whose timestamp is not before this one."""
    for entry, log_start in _pieces(state, stream, at_least_ms=timestamp_ms):
        parts = await reader.parts(entry, offset=log_start)
        pieces = [part for part in parts if part.max_timestamp_ms >= timestamp_ms]
        for at, piece in enumerate(pieces):
            if at % _TOGETHER == 0:
                await reader.bring(pieces[at : at + _TOGETHER])
            for offsets, timestamps_ms in await _records(
                reader, piece, log_start, at_least_ms=timestamp_ms
            ):
                fits = np.flatnonzero(timestamps_ms >= timestamp_ms)
                if len(fits):
                    return TimestampMatch(int(offsets[fits[0]]), int(timestamps_ms[fits[0]]))
    return None


async def find_max_timestamp(
    reader: Reader, state: DomainState, stream: int
) -> TimestampMatch | None:
    """The first record of those with the greatest timestamp."""
    best: TimestampMatch | None = None
    # What is known of a piece is a bound: its greatest record may lie below the log start.
    bounds = [
        _Bound.of(entry, log_start)
        for entry, log_start in _pieces(state, stream, at_least_ms=_LOWEST)
    ]
    heapify(bounds)
    while bounds and (best is None or _can_beat(bounds[0].piece, best)):
        bound = heappop(bounds)
        if bound.whole and reader.has_parts(bound.piece):
            for part in await reader.parts(bound.piece, offset=bound.log_start):
                heappush(bounds, _Bound.of(part, bound.log_start, whole=False))
            continue
        if not bound.whole:
            nearest = nsmallest(_TOGETHER - 1, bounds)
            await reader.bring(
                [bound.piece, *(other.piece for other in nearest if not other.whole)]
            )
        for offsets, timestamps_ms in await _records(reader, bound.piece, bound.log_start):
            at = int(np.argmax(timestamps_ms))
            found = TimestampMatch(int(offsets[at]), int(timestamps_ms[at]))
            best = found if best is None else max(best, found, key=_rank)
    return best


class _Bound(Struct, frozen=True, order=True):
    """A piece by the greatest timestamp that it can hold, then by its place."""

    least_first: int
    start: int
    whole: bool
    piece: Piece
    log_start: int

    @classmethod
    def of(cls, piece: Piece, log_start: int, *, whole: bool = True) -> "_Bound":
        return cls(-piece.max_timestamp_ms, piece.start, whole, piece, log_start)


def _rank(found: TimestampMatch) -> tuple[int, int]:
    return found.timestamp_ms, -found.offset


def _can_beat(piece: Piece, best: TimestampMatch) -> bool:
    if piece.max_timestamp_ms == best.timestamp_ms:
        return piece.start < best.offset
    return piece.max_timestamp_ms > best.timestamp_ms


def _pieces(state: DomainState, stream: int, *, at_least_ms: int) -> list[tuple[Piece, int]]:
    """Entries whose greatest timestamp reaches this one, in order, and the log start."""
    row = state.streams.row_of.get(stream)
    if row is None:
        return []
    rows = state.index.rows(state.streams, row)
    timestamps = state.index.columns["max_timestamp"][rows]
    log_start = int(state.streams.columns.arrays["log_start"][row])
    chosen = rows[np.flatnonzero(timestamps >= at_least_ms)]
    return [(piece_of(state, int(entry)), log_start) for entry in chosen]


async def _records(
    reader: Reader, piece: Piece, log_start: int, *, at_least_ms: int = _LOWEST
) -> list[tuple[Int64s, Int64s]]:
    """Offsets and timestamps of the piece's records from the log start on, batch by batch.

    Batches without a record at or after that time may be left out.
    """
    run = await reader.run(piece)
    base = piece.start
    found = []
    for batch, count in zip(run.batches, run.offset_counts, strict=True):
        if base + count > log_start and parse_header(batch).max_timestamp_ms >= at_least_ms:
            offsets, timestamps_ms = _stamps(batch, base, log_start)
            kept = offsets >= log_start
            if kept.any():
                found.append((offsets[kept], timestamps_ms[kept]))
        base += count
    return found


def _stamps(batch: memoryview, base: int, log_start: int) -> tuple[Int64s, Int64s]:
    """Offsets and timestamps of a batch's records, or of the one that stands for it."""
    try:
        columns = decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    except BatchError:
        first, greatest_ms = max(base, log_start), parse_header(batch).max_timestamp_ms
        return np.array([first], dtype=np.int64), np.array([greatest_ms], dtype=np.int64)
    return columns.offset_deltas.astype(np.int64) + base, columns.timestamps_ms
