"""Finding records by their timestamp.

The index knows the greatest timestamp of every entry, taken from the records themselves when they
were accepted (row 61), so at most one entry is read to find a record, but for the entry that the
log start lies in.
"""

from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
from msgspec import Struct

from lakelog.domain.state import DomainState
from lakelog.log.plan import Piece, piece_of
from lakelog.log.read import Reader
from lakelog.log.table_read import is_table
from lakelog.log.values import Found
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.columns import decode_columns
from lakelog.streams.columns import Int64s

_LOWEST: Final = -(1 << 63)


async def find_timestamp(
    reader: Reader, state: DomainState, stream: int, timestamp_ms: int
) -> Found | None:
    """The first record at or after the log start whose timestamp is not before this one."""
    for entry, log_start in _pieces(state, stream, at_least_ms=timestamp_ms):
        for piece in await _parts(reader, entry, log_start):
            if piece.max_timestamp_ms < timestamp_ms:
                continue
            for offsets, timestamps_ms in await _records(reader, piece, log_start):
                fits = np.flatnonzero(timestamps_ms >= timestamp_ms)
                if len(fits):
                    return Found(int(offsets[fits[0]]), int(timestamps_ms[fits[0]]))
    return None


async def find_max_timestamp(reader: Reader, state: DomainState, stream: int) -> Found | None:
    """The first record of those with the greatest timestamp."""
    best: Found | None = None
    # What is known of a piece is a bound: its greatest record may lie below the log start.
    bounds = [_Bound.of(*one) for one in _pieces(state, stream, at_least_ms=_LOWEST)]
    heapify(bounds)
    while bounds and (best is None or _can_beat(bounds[0].piece, best)):
        bound = heappop(bounds)
        if bound.whole and is_table(bound.piece.name):
            for part in await _parts(reader, bound.piece, bound.log_start):
                heappush(bounds, _Bound.of(part, bound.log_start, whole=False))
            continue
        for offsets, timestamps_ms in await _records(reader, bound.piece, bound.log_start):
            at = int(np.argmax(timestamps_ms))
            found = Found(int(offsets[at]), int(timestamps_ms[at]))
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


def _rank(found: Found) -> tuple[int, int]:
    return found.timestamp_ms, -found.offset


def _can_beat(piece: Piece, best: Found) -> bool:
    if piece.max_timestamp_ms == best.timestamp_ms:
        return piece.start < best.offset
    return piece.max_timestamp_ms > best.timestamp_ms


async def _parts(reader: Reader, entry: Piece, log_start: int) -> list[Piece]:
    """The entry, or of a data file the row groups that the log start left."""
    if not is_table(entry.name):
        return [entry]
    return await reader.tables.parts(entry, offset=log_start)


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


async def _records(reader: Reader, piece: Piece, log_start: int) -> list[tuple[Int64s, Int64s]]:
    """Offsets and timestamps of the piece's records from the log start on, batch by batch."""
    run = await reader.run(piece)
    base = piece.start
    found = []
    for batch, count in zip(run.batches, run.offset_counts, strict=True):
        columns = decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        offsets = columns.offset_deltas.astype(np.int64) + base
        kept = offsets >= log_start
        if kept.any():
            found.append((offsets[kept], columns.timestamps_ms[kept]))
        base += count
    return found
