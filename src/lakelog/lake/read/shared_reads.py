"""Objects that several ranges of one split lie in, read once for all of them.

A WAL object holds the batches of many partitions, and a split reads one partition after another:
without this, a topic of a hundred partitions would read every object a hundred times, and a cloud
store takes its price by requests. What was read for a later range is kept until that range comes,
so this is done only as far as memory allows.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from lakelog.index.entries import Entry
from lakelog.lake.read.splits import Split
from lakelog.log.plan import coalesce
from lakelog.model.ids import ByteRange
from lakelog.streams.objects import FileKind

SHARED_BYTES_MAX: Final = 128 << 20
"""The most that is kept for later ranges; a split that would need more reads as it goes."""


class ByteSource(Protocol):
    """Whoever gives ranges of objects, like `lakelog.objects.port.ObjectStore`."""

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for."""


@dataclass(slots=True)
class _Held:
    """An object of several ranges: what is wanted of it, and what was read."""

    spans: list[ByteRange] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    merged: list[ByteRange] = field(default_factory=list)
    contents: list[memoryview] = field(default_factory=list)


class SharedReads:
    """The objects as the ranges of one split read them."""

    def __init__(self, objects: ByteSource, split: Split) -> None:
        self._objects = objects
        self._held: dict[str, _Held] = {}
        for entry in shared_entries(split):
            span = ByteRange(entry.byte_start, entry.byte_start + entry.byte_length)
            self._held.setdefault(entry.key, _Held()).spans.append(span)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range; those that others will ask for come along and are kept."""
        held = self._held.get(key)
        if held is None:
            return await self._objects.get_ranges(key, ranges)
        async with held.lock:
            if not held.merged:
                merged = coalesce(held.spans)
                held.contents = await self._objects.get_ranges(key, merged)
                held.merged = merged
        found = [_part(held, span) for span in ranges]
        if any(part is None for part in found):  # somebody who asks for something else
            return await self._objects.get_ranges(key, ranges)
        self._release(key, held, ranges)
        return [part for part in found if part is not None]

    def _release(self, key: str, held: _Held, ranges: Sequence[ByteRange]) -> None:
        """Forget the object once everybody had theirs."""
        held.spans = [span for span in held.spans if not _within(span, ranges)]
        if not held.spans:
            self._held.pop(key, None)


def shared_entries(split: Split) -> list[Entry]:
    """The entries in WAL objects that more than one range of the split lies in."""
    if len(split.ranges) < 2:
        return []
    ids, places, sizes = [], [], []
    for number, hinted in enumerate(split.ranges):
        rows = np.flatnonzero(hinted.entries.kinds == FileKind.WAL)
        ids.append(hinted.entries.wal_ids[rows])
        places.append(np.stack((np.full(len(rows), number), rows), axis=1))
        sizes.append(hinted.entries.byte_lengths[rows])
    joined = np.concatenate(ids)
    if not len(joined):
        return []
    named = np.ascontiguousarray(joined).view("V16")[:, 0]
    _, objects, counts = np.unique(named, return_inverse=True, return_counts=True)
    chosen = counts[objects.reshape(-1)] > 1
    if not chosen.any() or int(np.concatenate(sizes)[chosen].sum()) > SHARED_BYTES_MAX:
        return []
    wanted = np.concatenate(places)[chosen].tolist()
    return [split.ranges[number].entries.entry(row) for number, row in wanted]


def _part(held: _Held, span: ByteRange) -> memoryview | None:
    at = bisect_right(held.merged, span.start, key=lambda one: one.start) - 1
    if at < 0 or span.end > held.merged[at].end:
        return None
    start = span.start - held.merged[at].start
    return held.contents[at][start : start + len(span)]


def _within(span: ByteRange, ranges: Sequence[ByteRange]) -> bool:
    return any(other.start <= span.start and span.end <= other.end for other in ranges)
