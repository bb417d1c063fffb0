"""Which bytes of which objects answer a read, and the port to objects of each kind. Pure.

A plan names pieces, in the order of the request, until the budget is filled; whole batches are
cut from them when their bytes are there. One budget serves the whole request, and the very first
batch is returned even when it is larger than every limit (row 3), so that no reader gets stuck.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from lakelog.domain.state import DomainState
from lakelog.log.cache import Run
from lakelog.log.values import Buffer, ReadStatus, StreamRead
from lakelog.model.ids import LEADER_EPOCH, ByteRange
from lakelog.streams.objects import ObjectName
from lakelog.streams.table import NONE

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


def plan_stream(state: DomainState, wanted: StreamRead, *, ahead_bytes: int = 0) -> StreamPlan:
    """The pieces for one stream, by the applied state; `ahead_bytes` asks for more than wanted."""
    row = state.streams.row_of.get(wanted.stream)
    if row is None:
        return StreamPlan(wanted, ReadStatus.UNKNOWN_STREAM, (), -1, -1)
    columns = state.streams.columns.arrays
    log_start, head = int(columns["log_start"][row]), int(columns["head"][row])
    if not log_start <= wanted.offset <= head:
        return StreamPlan(wanted, ReadStatus.OUT_OF_RANGE, (), log_start, head)
    first = state.index.find(state.streams, row, wanted.offset)
    if first == NONE:
        return StreamPlan(wanted, ReadStatus.OK, (), log_start, head)
    limit = wanted.bytes_max + ahead_bytes
    pieces = []
    size = 0
    for entry_row in state.index.following(state.streams, row, first, PIECES_MAX):
        piece = piece_of(state, entry_row)
        pieces.append(piece)
        size += piece.byte_length
        if size >= limit:
            break
    return StreamPlan(wanted, ReadStatus.OK, tuple(pieces), log_start, head)


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

    __slots__ = ("_limit", "_must", "_offset", "_small", "full", "parts", "size_bytes")

    def __init__(self, offset: int, *, bytes_max: int, at_least_one: bool) -> None:
        self.parts: list[Buffer] = []
        self.size_bytes = 0
        self.full = False
        self._offset = offset
        self._limit = bytes_max
        self._must = at_least_one
        self._small: bytearray | None = None

    def take(self, run: Run, start: int) -> None:
        """Take batches of the run that begins at offset `start`; sets `full` at the limit."""
        base = start
        for batch, count in zip(run.batches, run.offset_counts, strict=True):
            end = base + count
            if end > self._offset:
                if self.size_bytes + len(batch) > self._limit and not self._must:
                    self.full = True
                    return
                self._must = False
                self._add(batch, base)
            base = end

    def _add(self, batch: memoryview, base: int) -> None:
        """The base offset and the leader epoch lie outside the CRC: they are put in place here."""
        size = len(batch)
        self.size_bytes += size
        if size > COPIED_BYTES_MAX:
            self._small = None
            self.parts += (base.to_bytes(8, "big") + batch[8:12] + _EPOCH, batch[16:])
            return
        if self._small is None:
            self._small = bytearray()
            self.parts.append(self._small)
        small = self._small
        small += base.to_bytes(8, "big")
        small += batch[8:12]
        small += _EPOCH
        small += batch[16:]


_EPOCH: Final = LEADER_EPOCH.to_bytes(4, "big")
