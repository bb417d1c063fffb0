"""Finding records by their timestamp.

The index knows the greatest timestamp of every entry, taken from the records themselves when they
were accepted (row 61), so at most one entry is read to find a record, but for the entry that the
log start lies in.
"""

from typing import Final

import numpy as np

from lakelog.domain.state import DomainState
from lakelog.log.plan import Piece, piece_of
from lakelog.log.read import Reader
from lakelog.log.values import Found
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.columns import decode_columns

_LOWEST: Final = -(1 << 63)


async def find_timestamp(
    reader: Reader, state: DomainState, stream: int, timestamp_ms: int
) -> Found | None:
    """The first record at or after the log start whose timestamp is not before this one."""
    for piece, log_start in _pieces(state, stream, at_least_ms=timestamp_ms):
        found = await _first_in(reader, piece, log_start, timestamp_ms)
        if found is not None:
            return found
    return None


async def find_max_timestamp(reader: Reader, state: DomainState, stream: int) -> Found | None:
    """The first record of those with the greatest timestamp."""
    pieces = _pieces(state, stream, at_least_ms=_LOWEST)
    greatest = sorted({piece.max_timestamp_ms for piece, _ in pieces}, reverse=True)
    for timestamp_ms in greatest:
        for piece, log_start in pieces:
            if piece.max_timestamp_ms != timestamp_ms:
                continue
            found = await _first_in(reader, piece, log_start, timestamp_ms)
            if found is not None:
                return found
    return None


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


async def _first_in(
    reader: Reader, piece: Piece, log_start: int, timestamp_ms: int
) -> Found | None:
    run = await reader.run(piece)
    base = piece.start
    for batch, count in zip(run.batches, run.offset_counts, strict=True):
        columns = decode_columns(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
        offsets = columns.offset_deltas.astype(np.int64) + base
        fits = np.flatnonzero((columns.timestamps_ms >= timestamp_ms) & (offsets >= log_start))
        if len(fits):
            return Found(int(offsets[fits[0]]), int(columns.timestamps_ms[fits[0]]))
        base += count
    return None
