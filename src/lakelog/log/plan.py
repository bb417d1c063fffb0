"""Which bytes of which objects answer a read, and the port to objects of each kind. Pure.

A plan names pieces, in the order of the request, until the budget is filled; whole batches are
cut from them when their bytes are there. One budget serves the whole request, and the very first
batch is returned even when it is larger than every limit (row 3), so that no reader gets stuck.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from lakelog.domain.state import DomainState
from lakelog.log.cache import Run
from lakelog.log.values import Buffer, ReadStatus, StreamRead
from lakelog.model.ids import LEADER_EPOCH, ByteRange
from lakelog.records import kernels
from lakelog.records.header import patch
from lakelog.streams.objects import ObjectName
from lakelog.streams.table import NONE, Int64s

PIECES_MAX: Final = 256
"""Pieces of one stream that one read looks at; more come with the next read."""

COPIED_BYTES_MAX: Final = 8192
"""Up to here a batch is cheaper to copy than to send as buffers of its own."""

GAP_BYTES_MAX: Final = 64 << 10
"""Ranges of an object with less than this between them are read as one."""


class Piece(Struct, frozen=True, gc=False):
    """An index entry with its object by name: row numbers do not outlive the next record."""

    start: int
    end: int
    byte_start: int
    byte_length: int
    name: ObjectName
    object_bytes: int
    max_timestamp_ms: int


class StreamPlan(Struct, frozen=True, gc=False):
    """What to read of one stream: the piece that holds its offset and those after it."""

    wanted: StreamRead
    status: ReadStatus
    pieces: tuple[Piece, ...]
    log_start: int
    head: int


class PieceSource(Protocol):
    """The objects of one kind, WAL objects, segments or data files, as a read sees them.

    A piece that a plan names is an index entry. Of a large file only parts are read: they are
    pieces of their own, and all that is read of an object of the other kind is the entry itself.
    """

    has_parts: bool
    """Whether an entry is cut into parts."""
    is_ranged: bool
    """Whether pieces are read as byte ranges, those of an object together; else one by one."""

    def cached(self, piece: Piece) -> Run | None:
        """The batches of a piece that is no large file, if they are in memory."""

    def knows(self, piece: Piece) -> bool:
        """Whether `parts` answers without a read."""

    def known_parts(self, piece: Piece, *, offset: int) -> Iterable[Piece] | None:
        """The parts of an entry from an offset on, or None where only a read can tell."""

    async def parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The same, after a read if need be; raises `NotFound` and `Corrupt`."""

    async def open(self, plans: Sequence[StreamPlan]) -> None:
        """Get to know the parts of what these plans name; what fails is left to who serves it."""

    async def admit(self, plans: Sequence[StreamPlan]) -> set[int]:
        """Bring in what these plans, all of which begin here, begin with; who has to wait."""

    def reads_whole(self, name: ObjectName) -> bool:
        """Whether `load` brings all of an object, with what other readers want of it."""

    async def load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        """Bring these pieces of one object into memory."""

    async def run(self, piece: Piece) -> Run:
        """The batches of a piece that is no large file."""

    def spend(self, piece: Piece, run: Run) -> None:
        """Somebody read this piece to its end: it may go, but others may come for it yet."""

    def room_bytes(self) -> int:
        """What can be brought in without pushing out what somebody has not read to its end."""

    @property
    def read_bytes_max(self) -> int:
        """How much one request may bring in: more would push out its own beginning."""


def marks_of(state: DomainState, wanted: StreamRead) -> StreamPlan:
    """What a read says of a stream, without a look at where its batches lie."""
    row = state.streams.row_of.get(wanted.stream)
    if row is None:
        return StreamPlan(wanted, ReadStatus.UNKNOWN_STREAM, (), -1, -1)
    columns = state.streams.columns.arrays
    log_start, head = columns["log_start"].item(row), columns["head"].item(row)
    is_there = log_start <= wanted.offset <= head
    status = ReadStatus.OK if is_there else ReadStatus.OUT_OF_RANGE
    return StreamPlan(wanted, status, (), log_start, head)


def plan_stream(state: DomainState, wanted: StreamRead, *, ahead_bytes: int = 0) -> StreamPlan:
    """The pieces for one stream, by the applied state; `ahead_bytes` asks for more than wanted."""
    plan = marks_of(state, wanted)
    if plan.status is not ReadStatus.OK:
        return plan
    row = state.streams.row_of[wanted.stream]
    first = state.index.find(state.streams, row, wanted.offset)
    if first == NONE:
        return plan
    limit = wanted.bytes_max + ahead_bytes
    pieces = []
    size = 0
    for entry_row in state.index.following(state.streams, row, first, PIECES_MAX):
        piece = piece_of(state, entry_row)
        pieces.append(piece)
        size += piece.byte_length
        if size >= limit:
            break
    return StreamPlan(wanted, ReadStatus.OK, tuple(pieces), plan.log_start, plan.head)


def piece_of(state: DomainState, entry_row: int) -> Piece:
    """The entry of that row as a value that stays true."""
    columns = state.index.columns.arrays
    object_row = columns["object"].item(entry_row)
    return Piece(
        columns["start"].item(entry_row),
        columns["end"].item(entry_row),
        columns["byte_start"].item(entry_row),
        columns["byte_length"].item(entry_row),
        state.objects.name(object_row),
        state.objects.size_bytes(object_row),
        columns["max_timestamp"].item(entry_row),
    )


def coalesce(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Fewer ranges that cover these, without reading much between them."""
    merged: list[ByteRange] = []
    for span in sorted(ranges):
        if merged and span.start - merged[-1].end < GAP_BYTES_MAX:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].end, span.end))
        else:
            merged.append(span)
    return merged


def cut_out(
    spans: Iterable[ByteRange], merged: Sequence[ByteRange], contents: Sequence[memoryview]
) -> list[memoryview]:
    """The bytes of each span, out of those of the ranges that they were coalesced to."""
    parts = []
    for span in spans:
        holder = bisect_right(merged, span.start, key=lambda other: other.start) - 1
        start = span.start - merged[holder].start
        parts.append(contents[holder][start : start + len(span)])
    return parts


class BatchCut:
    """Whole batches cut from runs, from an offset on, up to a number of bytes."""

    __slots__ = ("_limit", "_must", "_offset", "full", "parts", "size_bytes")

    def __init__(self, offset: int, *, bytes_max: int, at_least_one: bool) -> None:
        self.parts: list[Buffer] = []
        self.size_bytes = 0
        self.full = False
        self._offset = offset
        self._limit = bytes_max
        self._must = at_least_one

    def take(self, run: Run, start: int) -> None:
        """Take batches of the run that begins at offset `start`; sets `full` at the limit."""
        cut = cut_in_python if kernels.native is None else kernels.native.cut_batches
        left_bytes = self._limit - self.size_bytes
        first, end, base, size_bytes, self.full, joined = cut(
            run.data,
            run.starts,
            run.ends,
            run.offset_counts,
            (start, self._offset, left_bytes, self._must, LEADER_EPOCH, COPIED_BYTES_MAX),
        )
        if first == end:
            return
        self._must = False
        self.size_bytes += size_bytes
        if joined is not None:
            self.parts.append(joined)
        else:
            self._add_views(run, first, end, base)

    def _add_views(self, run: Run, first: int, end: int, base: int) -> None:
        """Large batches go out as they lie in memory, each behind its own 16 bytes."""
        counts = run.offset_counts[first:end].tolist()
        starts, ends = run.starts[first:end].tolist(), run.ends[first:end].tolist()
        for start, stop, count in zip(starts, ends, counts, strict=True):
            self.parts += patch(run.data[start:stop], base_offset=base)
            base += count


CutRules: TypeAlias = tuple[int, int, int, int, int, int]
"""The offset of the first batch, the reader's, the bytes that are left, whether the first batch is
taken however large it is, the leader epoch, and up to which size a batch is copied."""

CutOutcome: TypeAlias = tuple[int, int, int, int, bool, bytes | None]
"""The batches [first, end) that are taken, the offset of the first, their bytes, whether there was
no room for the next, and they themselves as they are served: None if one is too large to copy."""


def cut_in_python(
    data: memoryview, starts: Int64s, ends: Int64s, counts: Int64s, rules: CutRules, /
) -> CutOutcome:
    """The kernel's twin."""
    base, offset, bytes_max, must, epoch, copied_bytes_max = rules
    after = base + np.cumsum(counts)
    first = int(np.searchsorted(after, offset, side="right"))
    base = int(after[first - 1]) if first else base
    size_bytes, largest, end = 0, 0, first
    sizes = (ends - starts).tolist()
    for size in sizes[first:]:
        if size > bytes_max - size_bytes and not must:
            break
        must = 0
        size_bytes += size
        largest = max(largest, size)
        end += 1
    joined = None
    if largest <= copied_bytes_max:
        served: list[Buffer] = []
        for number in range(first, end):
            batch = data[int(starts[number]) : int(ends[number])]
            served += patch(batch, base_offset=base, leader_epoch=epoch)
            base += int(counts[number])
        joined = b"".join(served)
        base = int(after[first - 1]) if first else rules[0]
    return first, end, base, size_bytes, end < len(sizes), joined
