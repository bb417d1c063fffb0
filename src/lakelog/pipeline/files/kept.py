"""Offsets of rows that stay, packed to travel: what log compaction tells those who write. Pure.

A set of rising offsets is its differences, byte by byte of all of them, compressed: a dense run
costs next to nothing, a thin one about two bytes a row.
"""

import zlib

import numpy as np

from lakelog.model.failures import Corrupt
from lakelog.streams.columns import Int64s


def pack_offsets(offsets: Int64s) -> bytes:
    """Rising offsets as bytes."""
    steps = np.diff(offsets, prepend=np.int64(0)).astype("<i8")
    assert not len(steps) or (steps[0] >= 0 and bool((steps[1:] > 0).all())), "offsets must rise"
    planes = np.ascontiguousarray(steps.view(np.uint8).reshape(-1, 8).T)
    return zlib.compress(planes.tobytes(), 1)


def unpack_offsets(data: bytes) -> Int64s:
    """The offsets of these bytes."""
    try:
        content = np.frombuffer(zlib.decompress(data), np.uint8)
        steps = np.ascontiguousarray(content.reshape(8, -1).T).view("<i8").reshape(-1)
    except (zlib.error, ValueError) as error:
        raise Corrupt(f"these are no packed offsets: {error}") from error
    offsets: Int64s = np.cumsum(steps, dtype=np.int64)
    return offsets


def mark_kept(offsets: Int64s, kept: Int64s) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of these rising offsets are among those kept, which rise too."""
    if not len(kept):
        return np.zeros(len(offsets), np.bool_)
    places = np.minimum(np.searchsorted(kept, offsets), len(kept) - 1)
    return np.asarray(kept[places] == offsets, np.bool_)
