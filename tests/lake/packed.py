"""Entries and ranges as values, for tests that need no log."""

from collections.abc import Sequence

import numpy as np

from lakelog.index.entries import Entries
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import WAL_ID_BYTES

TOPIC_ID = bytes(range(16))


def entries(
    edges: Sequence[int],
    sizes: Sequence[int] | None = None,
    *,
    kinds: Sequence[FileKind] | None = None,
    times_ms: Sequence[int] | None = None,
) -> Entries:
    """Entries between these offsets, in WAL objects of their own unless other kinds are named."""
    count = len(edges) - 1
    chosen = list(kinds or [FileKind.WAL] * count)
    keys = [f"compaction/v1/{at}" for at, kind in enumerate(chosen) if kind is not FileKind.WAL]
    names = ("z", *keys)
    files = iter(range(1, len(names)))
    ids = np.zeros((count, WAL_ID_BYTES), np.uint8)
    ids[:, 15] = np.arange(count) % 256
    ids[:, 14] = np.arange(count) // 256 % 256
    ids[:, 6], ids[:, 8] = 0x70, 0x80
    return Entries(
        3,
        np.array(edges, np.int64),
        np.array(chosen, np.uint8),
        np.arange(count, dtype=np.int64) * 7,
        np.array(sizes if sizes is not None else [100] * count, np.int64),
        np.array(times_ms if times_ms is not None else [1000] * count, np.int64),
        ids,
        np.array([0 if kind is FileKind.WAL else next(files) for kind in chosen], np.int32),
        names,
    )


def hinted(
    partition: int, start: int, end: int, found: Entries, *, topic: str = "t"
) -> PlannedRange:
    return PlannedRange(PinnedRange(topic, TOPIC_ID, partition, partition + 1, start, end), found)
