"""Reading batches.

Data may be served from any applied state (rule 16). An object that is missing means that this
replica is behind: it proves itself current and plans again; an entry that still names a missing or
damaged object is an alarm, never skipped and never taken for the end of the data (E2).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from lakelog.clock import Clock
from lakelog.domain.replica import Replica
from lakelog.log.cache import Run, TailCache
from lakelog.log.options import LogOptions
from lakelog.log.parquet_source import ParquetSource
from lakelog.log.plan import BatchCut, Piece, PieceSource, StreamPlan, marks_of, plan_stream
from lakelog.log.segment_source import SegmentSource
from lakelog.log.values import Fetched, ReadStatus, StreamRead
from lakelog.log.wal_source import ObjectReads, WalSource
from lakelog.model.failures import Corrupt, NotFound
from lakelog.objects.port import ObjectStore
from lakelog.streams.objects import FileKind, ObjectName
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
        # A read of the store is for the next answers as well: what they hold is named already.
        read_bytes = max(bytes_max, self._options.read_cache_bytes // 2)
        wanted = [_at_most(request, read_bytes) for request in wanted]
        plans = self._plans(wanted, bytes_max=bytes_max)
        for source in self._sources.values():
            await source.open(plans)
        share_bytes = self._options.read_cache_bytes // 2 // max(1, len(wanted))
        missing, later = self._missing(plans, bytes_max, bytes_max, share_bytes)
        if missing:
            plans = self._plans(wanted, bytes_max=read_bytes)
            missing, later = self._missing(plans, bytes_max, read_bytes, share_bytes)
            await asyncio.gather(*self._loads(missing), return_exceptions=True)
            # The index may have changed meanwhile: a file has taken the place of entries.
            plans = self._plans(wanted, bytes_max=bytes_max)
        later |= await self._admit(plans)
        fetched = []
        left, is_full = bytes_max, bytes_max <= 0
        must = at_least_one
        for at, request in enumerate(wanted):
            if (is_full and not must) or request.stream in later:
                fetched.append(_nothing(marks_of(self._replica.state, request)))
                continue
            plan = plans[at] if at < len(plans) else self._plan_late(request, must=must)
            limit = min(request.bytes_max, left)
            got = await self._read_stream(plan, bytes_max=max(0, limit), at_least_one=must)
            must = must and not got.size_bytes
            # Who finds no room for his next batch ends the answer: what is left is hardly a batch.
            is_full = is_full or (got.is_cut and limit == left)
            left -= got.size_bytes
            fetched.append(got)
        return fetched

    def _plans(self, wanted: Sequence[StreamRead], *, bytes_max: int) -> list[StreamPlan]:
        """Plans of the first streams, up to the one that may fill the budget.

        Whoever catches up names many streams and is served a few of them: planning all would take
        longer than serving those.
        """
        plans: list[StreamPlan] = []
        for request in wanted:
            plan = plan_stream(self._replica.state, request)
            plans.append(plan)
            planned = sum(piece.byte_length for piece in plan.pieces)
            bytes_max -= min(planned, request.bytes_max)
            if planned and bytes_max <= 0:
                break
        return plans

    def _plan_late(self, wanted: StreamRead, *, must: bool) -> StreamPlan:
        """The plan of a stream behind those: less is served than planned where a batch ends early.

        What is in memory fills the rest of the budget; nothing more is read for that, unless
        nothing at all was found before.
        """
        plan = plan_stream(self._replica.state, wanted)
        if plan.pieces and not must:
            first = plan.pieces[0]
            parts = self._source(first).known_parts(first, offset=wanted.offset)
            if parts is None or self._source(first).cached(next(iter(parts))) is None:
                return marks_of(self._replica.state, wanted)
        return plan

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
        self, plans: Sequence[StreamPlan], answer_bytes: int, read_bytes: int, share_bytes: int
    ) -> tuple[list[Piece], set[int]]:
        """What the request needs from the store, all at once, so that streams share a read.

        `share_bytes` is what each stream may have in memory beyond what the answer holds of it.
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
                answer_bytes -= plan.wanted.bytes_max
                read_bytes -= plan.wanted.bytes_max
                continue
            parts = self._spread(plan, bytes_max=plan.wanted.bytes_max)
            # With its first part in memory a stream has something to go out now (`_take`).
            if parts and self._is_missing(parts[0]):
                ahead = self._ahead(plan.wanted, parts[0], answer_bytes, share_bytes)
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
            size = sum(piece.byte_length for piece in parts)
            answer_bytes, read_bytes = answer_bytes - size, read_bytes - size
            if read_bytes <= 0:
                break
        return missing, later

    def _ahead(
        self, wanted: StreamRead, first: Piece, answer_bytes: int, share_bytes: int
    ) -> list[Piece]:
        """What is wanted and some more: whoever reads the past reads on.

        A whole object is more already. With more than its share of each stream, those read first
        would be pushed out before the last one is served.
        """
        limit = min(wanted.bytes_max, max(answer_bytes, 0))
        if not self._source(first).reads_whole(first.name):
            ahead_bytes = wanted.bytes_max + self._options.read_ahead_bytes
            limit = max(limit, min(ahead_bytes, share_bytes))
        if not limit:
            return []
        plan = plan_stream(self._replica.state, wanted, ahead_bytes=limit - wanted.bytes_max)
        return [piece for piece in self._spread(plan, bytes_max=limit) if self._is_missing(piece)]

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
        if not plan.pieces:
            return _nothing(plan)
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
        marks = plan.log_start, plan.head
        return Fetched(plan.status, cut.parts, cut.size_bytes, *marks, is_cut=cut.full)

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


def _at_most(wanted: StreamRead, bytes_max: int) -> StreamRead:
    """What is read beyond that would push out its own beginning before it is served."""
    if wanted.bytes_max <= bytes_max:
        return wanted
    return StreamRead(wanted.stream, wanted.offset, bytes_max)


def _nothing(plan: StreamPlan) -> Fetched:
    return Fetched(plan.status, (), 0, plan.log_start, plan.head)
