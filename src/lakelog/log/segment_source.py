"""Reading segments: parts of about a MiB become runs of batches, like what a WAL object holds.

A segment's entry is as large as its file, so a read looks at parts of it instead: both ends of the
file are read once, and the index that is there cuts the batches into parts. From then on a part is
read like a run of a WAL object, in few merged reads with some more ahead, and is kept in a cache of
its own, so cold reads push out neither the tail nor what is rebuilt from data files.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lakelog.log.cache import PartCache, Run, run_of
from lakelog.log.options import LogOptions
from lakelog.log.plan import Piece, StreamPlan
from lakelog.log.wal_source import ObjectReads, loaded_run
from lakelog.model.failures import Corrupt
from lakelog.model.ids import ByteRange
from lakelog.records.header import MAX_TIMESTAMP_OFFSET
from lakelog.records.segment_file import (
    HEADER,
    SegmentMap,
    parse_segment,
    tail_bytes,
    verify_batches,
)
from lakelog.streams.objects import FileKind, FileName, ObjectName
from lakelog.telemetry import MetricsRegistry

TAIL_GUESS_BYTES: Final = 16 << 10
"""What is read of a segment's end at first: index and footer of some 300 MiB, or a small one."""

OPENED_MAX: Final = 32
"""Segments of one stream that a request opens at the same time."""

SEGMENTS_MAX: Final = 256
"""Segments whose parts are remembered: about 50 kB each, when they are large."""

_MAX_TIMESTAMP: Final = slice(MAX_TIMESTAMP_OFFSET, MAX_TIMESTAMP_OFFSET + 8)


@dataclass(frozen=True, slots=True)
class _Segment:
    """An open segment: part `i` is [offsets[i], offsets[i + 1]), its bytes likewise."""

    offsets: tuple[int, ...]
    positions: tuple[int, ...]
    learned_ms: dict[int, int] = field(default_factory=dict)
    """The greatest timestamp of each part that was read, by its position: the index has none."""


class SegmentSource:
    """Knows the parts of the segments that the index of one domain names, and keeps their runs."""

    has_parts = True
    is_ranged = True

    def __init__(self, reads: ObjectReads, options: LogOptions, metrics: MetricsRegistry) -> None:
        self._reads = reads
        self._options = options
        self._metrics = metrics
        self._segments: OrderedDict[ObjectName, _Segment] = OrderedDict()
        self._runs = PartCache(options.segment_cache_bytes)
        self._opens = asyncio.Semaphore(options.reads_max)

    def room_bytes(self) -> int:
        """What can be brought in without pushing out what somebody has not read to its end."""
        return self._runs.room_bytes()

    def cached(self, piece: Piece) -> Run | None:
        """The run of a part, if it is in memory."""
        return self._runs.use((piece.name, piece.byte_start))

    def spend(self, piece: Piece, run: Run) -> None:
        """Somebody read this part to its end: it may go, but others may come for it yet."""
        self._runs.spend((piece.name, piece.byte_start), run)

    def reads_whole(self, name: ObjectName) -> bool:
        """Parts of it are read."""
        del name
        return False

    async def load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        """Read these parts of a segment in few, merged ranges."""
        if all(self.cached(piece) is not None for piece in pieces):
            return  # somebody else brought it since it was planned
        mark = (name, pieces[0].byte_start)
        await self._reads.once(mark, lambda: self._load(name, pieces))

    async def run(self, piece: Piece) -> Run:
        """The batches of a part."""
        return await loaded_run(self, piece)

    async def admit(self, plans: Sequence[StreamPlan]) -> set[int]:
        """Nobody waits here: parts are brought in together, as far as there is room."""
        del plans
        return set()

    def knows(self, piece: Piece) -> bool:
        """Whether the parts of the piece's segment are in memory."""
        return piece.name in self._segments

    async def open(self, plans: Sequence[StreamPlan]) -> None:
        """Open the segments of these plans; one that fails is left to who serves it."""
        new: dict[ObjectName, Piece] = {}
        for plan in plans:
            for piece in plan.pieces[:OPENED_MAX]:
                if piece.name.kind is FileKind.SEGMENT and not self.knows(piece):
                    new[piece.name] = piece
        if new:
            await asyncio.gather(
                *(self._open(piece) for piece in new.values()), return_exceptions=True
            )

    async def parts(self, piece: Piece, *, offset: int) -> Iterator[Piece]:
        """The parts of a segment's entry from an offset on, each a piece of its own."""
        segment = self._segments.get(piece.name) or await self._open(piece)
        self._segments.move_to_end(piece.name)
        if segment.offsets[0] > piece.start or segment.offsets[-1] != piece.end:
            raise Corrupt(f"{_key(piece.name)} does not hold the offsets of its entry")
        return _parts(piece, segment, max(offset, piece.start))

    def known_parts(self, piece: Piece, *, offset: int) -> Iterable[Piece] | None:
        """The parts of an entry from an offset on, if the segment is open."""
        segment = self._segments.get(piece.name)
        return None if segment is None else _parts(piece, segment, offset)

    @property
    def read_bytes_max(self) -> int:
        """Half of the cache: more would push out its own beginning before that is served."""
        return self._options.segment_cache_bytes // 2

    async def _load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        contents = await self._reads.ranges(_key(name), pieces)
        for piece, data in zip(pieces, contents, strict=True):
            self._keep(piece, data)

    def _keep(self, piece: Piece, data: memoryview) -> None:
        """Verify the bytes of a part and keep its run."""
        try:
            run = run_of(verify_batches(data, start=piece.start, end=piece.end))
        except Corrupt as error:
            raise Corrupt(f"{_key(piece.name)}: {error}") from None
        segment = self._segments.get(piece.name)
        if segment is not None:
            segment.learned_ms[piece.byte_start] = max(
                int.from_bytes(batch[_MAX_TIMESTAMP], "big", signed=True) for batch in run.batches
            )
        self._runs.put((piece.name, piece.byte_start), run)

    async def _open(self, piece: Piece) -> _Segment:
        key, size_bytes = _key(piece.name), piece.object_bytes
        async with self._opens:
            self._metrics.objects_got.inc()
            tail_start = max(0, size_bytes - TAIL_GUESS_BYTES)
            ends = [ByteRange(0, min(HEADER.size, size_bytes)), ByteRange(tail_start, size_bytes)]
            head, tail = await self._reads.objects.get_ranges(key, ends)
            needed = tail_bytes(head)
            if len(tail) < needed <= size_bytes:
                rest = [ByteRange(size_bytes - needed, size_bytes)]
                (tail,) = await self._reads.objects.get_ranges(key, rest)
        try:
            found = parse_segment(head, tail, size_bytes=size_bytes)
        except Corrupt as error:
            raise Corrupt(f"{key}: {error}") from None
        if not found.entries:
            raise Corrupt(f"{key} has no index")
        segment = self._segments[piece.name] = _parted(found, self._options.segment_part_bytes)
        while len(self._segments) > SEGMENTS_MAX:
            self._segments.popitem(last=False)
        if len(tail) == size_bytes:
            self._keep_all(piece, segment, tail)
        return segment

    def _keep_all(self, piece: Piece, segment: _Segment, data: memoryview) -> None:
        """Keep the parts of a small segment, which was read whole."""
        for part in _parts(piece, segment, piece.start):
            try:
                self._keep(part, data[part.byte_start : part.byte_start + part.byte_length])
            except Corrupt:
                break  # whoever needs that part reads it again and hears of it


def _key(name: ObjectName) -> str:
    assert isinstance(name, FileName), name
    return name.key


def _parted(found: SegmentMap, part_bytes: int) -> _Segment:
    """The segment cut into parts of about that size, each beginning at an entry of the index."""
    offsets, positions = [found.start], [HEADER.size]
    for entry in found.entries[1:]:
        if entry.position - positions[-1] >= part_bytes:
            offsets.append(entry.offset)
            positions.append(entry.position)
    return _Segment((*offsets, found.end), (*positions, found.body_end))


def _parts(piece: Piece, segment: _Segment, offset: int) -> Iterator[Piece]:
    """The part that holds the offset, or the first one, and those after it."""
    greatest_ms = piece.max_timestamp_ms
    first = max(0, bisect_right(segment.offsets, offset) - 1)
    for at in range(first, len(segment.offsets) - 1):
        start, end = segment.positions[at : at + 2]
        yield Piece(
            segment.offsets[at],
            segment.offsets[at + 1],
            start,
            end - start,
            piece.name,
            piece.object_bytes,
            min(greatest_ms, segment.learned_ms.get(start, greatest_ms)),
        )
