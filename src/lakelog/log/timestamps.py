"""Finding records by their timestamp.

The index knows the greatest timestamp of every entry, taken from the records themselves when they
were accepted (row 61), so at most one entry is read to find a record, but for the entry that the
log start lies in. A batch's header was made to agree with its records then, so batches that cannot
hold what is looked for are not decoded. A batch that cannot be decoded stands for itself: a record
at its first readable offset with the header's greatest timestamp, so nobody who looks for one of
its records begins to read behind them.
"""

from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

import numpy as np
from msgspec import Struct

from lakelog.domain.state import DomainState
from lakelog.log.plan import Piece, piece_of
from lakelog.log.read import Reader
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.columns import decode_columns
from lakelog.records.header import BatchError, parse_header
from lakelog.streams.table import Int64s


class TimestampMatch(Struct, frozen=True, gc=False):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int


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
