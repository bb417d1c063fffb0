"""Ranges packed into splits: what one task reads, of one partition or of many, in order. Pure.

A task costs tens of milliseconds however small it is, so splits are made by bytes and not by
partitions. A cut within a large file is as good as one between two: the reader skips row groups.
Splits travel to other machines, so all columns of a split are packed together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lakelog.index.entries import UNKNOWN_MS, Entries
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.streams.objects import FileKind
from lakelog.wal.layout import WAL_ID_BYTES

SPLIT_BYTES: Final = 128 << 20
"""What a split is to have, about."""

SPLIT_BYTES_MIN: Final = 4 << 20
"""Below this, two tasks are slower than one: it is less work than starting a task."""

ROW_BYTES: Final = 32
"""What a row counts at least, however well it is compressed: handing it over is work, too."""

SPLITS_PER_SLOT: Final = 4

SPLIT_BYTES_MAX: Final = 1 << 30
"""No split is larger, however many that makes: a task that fails begins again, and there may be
more slots than whoever plans knows of."""

SNAP: Final = 0.25
"""A cut moves to where an entry begins, if that is so near by the size of a split: then no object
is read twice."""


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How ranges are cut."""

    slots: int = 1
    """How many tasks run at the same time."""
    min_splits: int | None = None
    max_records: int | None = None
    """The most offsets in one split."""
    split_bytes: int = SPLIT_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """What one task reads, range after range."""

    ranges: tuple[PlannedRange, ...]

    @property
    def offset_count(self) -> int:
        """How many offsets its ranges have: no fewer than rows."""
        return sum(hinted.pinned.end - hinted.pinned.start for hinted in self.ranges)

    @property
    def batch_offset_count(self) -> int:
        """How many of them lie in batches of records, and not in data files."""
        return sum(_in_batches(hinted) for hinted in self.ranges)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return unpacked, (packed(self),)


def _in_batches(hinted: PlannedRange) -> int:
    edges = np.clip(hinted.entries.edges, hinted.pinned.start, hinted.pinned.end)
    return int(np.diff(edges)[hinted.entries.kinds != FileKind.PARQUET].sum())


def pack(ranges: Sequence[PlannedRange], options: PackOptions) -> tuple[Split, ...]:
    """All of the ranges, in order, in as many splits as the options ask for."""
    if not ranges:
        return ()
    sums = [
        hinted.entries.weights(start=hinted.pinned.start, end=hinted.pinned.end)
        for hinted in ranges
    ]
    totals = np.array([weights[-1] for _, weights in sums])
    offset_count = sum(hinted.pinned.end - hinted.pinned.start for hinted in ranges)
    count = split_count(max(float(totals.sum()), offset_count * ROW_BYTES), options)
    before = np.concatenate(([0.0], np.cumsum(totals)))
    step = float(before[-1]) / count
    groups: list[list[PlannedRange]] = [[] for _ in range(count)]
    for number, hinted in enumerate(ranges):
        edges, weights = sums[number]
        first = _group(float(before[number]), step, count)
        last = _group(float(before[number + 1]), step, count)
        # A range that lies in several splits is cut at each multiple of their size within it.
        cuts = (np.arange(first + 1, last + 1) * step) - before[number]
        offsets = _snapped(cuts, np.asarray(edges, np.float64), weights, step)
        marks = [hinted.pinned.start, *offsets, hinted.pinned.end]
        for at, group in enumerate(range(first, last + 1)):
            start, end = marks[at], marks[at + 1]
            if start < end:  # two cuts may snap to one offset
                whole = (start, end) == (hinted.pinned.start, hinted.pinned.end)
                groups[group].append(hinted if whole else hinted.cut(start, end))
    return tuple(
        Split(tuple(part)) for group in groups if group for part in _limited(group, options)
    )


def split_count(total_bytes: float, options: PackOptions) -> int:
    """How many splits so many bytes are cut into."""
    by_size = ceil(total_bytes / options.split_bytes)
    busy = min(options.slots, int(total_bytes // SPLIT_BYTES_MIN))
    usual = min(max(1, by_size, busy), max(1, options.slots * SPLITS_PER_SLOT))
    return max(usual, ceil(total_bytes / SPLIT_BYTES_MAX), options.min_splits or 1)


def _group(weight: float, step: float, count: int) -> int:
    """The split that the byte at this place belongs to."""
    return min(int(weight / step), count - 1) if step else 0


def _snapped(
    cuts: npt.NDArray[np.float64],
    edges: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    step: float,
) -> list[int]:
    """Offsets for these places in bytes, at the begin of an entry where one is near."""
    if not len(cuts):
        return []
    at = np.searchsorted(weights, cuts)
    low, high = np.maximum(at - 1, 0), np.minimum(at, len(weights) - 1)
    nearer = np.where(cuts - weights[low] <= weights[high] - cuts, low, high)
    is_near = np.abs(weights[nearer] - cuts) <= SNAP * step
    between = np.floor(np.interp(cuts, weights, edges))
    offsets = np.where(is_near, edges[nearer], between).astype(np.int64)
    snapped: list[int] = np.maximum.accumulate(offsets).tolist()
    return snapped


def _limited(group: list[PlannedRange], options: PackOptions) -> Iterator[list[PlannedRange]]:
    """The group cut further, so that no part has more offsets than are allowed."""
    if options.max_records is None:
        yield group
        return
    part: list[PlannedRange] = []
    room = options.max_records
    for hinted in group:
        start, end = hinted.pinned.start, hinted.pinned.end
        while start < end:
            taken = min(end - start, room)
            part.append(hinted.cut(start, start + taken))
            start, room = start + taken, room - taken
            if not room:
                yield part
                part, room = [], options.max_records
    if part:
        yield part


class _Packed(Struct, frozen=True, array_like=True):
    """A split as it travels: columns of ranges, columns of all their entries."""

    topics: list[tuple[str, bytes]]
    numbers: bytes
    """Topic, partition, stream, start, end, domain and entry count of each range."""
    edges: bytes
    kinds: bytes
    places: bytes
    wal_ids: bytes
    labels: bytes
    names: list[str]


_NUMBERS: Final = 7


def packed(split: Split) -> bytes:
    """The split in few bytes; what is only of use to who plans is left out."""
    topics: dict[tuple[str, bytes], int] = {}
    names: dict[str, int] = {}
    rows, labels = [], []
    for hinted in split.ranges:
        pinned, entries = hinted.pinned, hinted.entries
        topic = topics.setdefault((pinned.topic, pinned.topic_id), len(topics))
        row = (topic, pinned.partition, pinned.stream, pinned.start, pinned.end)
        rows.append((*row, entries.domain, len(entries)))
        known = [names.setdefault(name, len(names)) for name in entries.names]
        labels.append(np.array(known, np.int32)[entries.labels])
    all_entries = [hinted.entries for hinted in split.ranges]
    places = [np.stack((entries.byte_starts, entries.byte_lengths)) for entries in all_entries]
    return msgspec.msgpack.encode(
        _Packed(
            list(topics),
            np.array(rows, "<i8").tobytes(),
            _bytes([entries.edges for entries in all_entries], "<i8"),
            _bytes([entries.kinds for entries in all_entries], "u1"),
            b"".join(place.astype("<i8", copy=False).tobytes() for place in places),
            _bytes([entries.wal_ids for entries in all_entries], "u1"),
            _bytes(labels, "<i4"),
            list(names),
        )
    )


def _bytes(columns: Sequence[npt.NDArray[Any]], kind: str) -> bytes:
    return b"".join(column.astype(kind, copy=False).tobytes() for column in columns)


def unpacked(data: bytes) -> Split:
    """The split that was packed."""
    columns = msgspec.msgpack.decode(data, type=_Packed)
    edges, places = np.frombuffer(columns.edges, "<i8"), np.frombuffer(columns.places, "<i8")
    kinds, labels = np.frombuffer(columns.kinds, np.uint8), np.frombuffer(columns.labels, "<i4")
    wal_ids = np.frombuffer(columns.wal_ids, np.uint8).reshape(-1, WAL_ID_BYTES)
    names = tuple(columns.names)
    ranges = []
    done = 0
    rows = np.frombuffer(columns.numbers, "<i8").reshape(-1, _NUMBERS).tolist()
    for number, (topic, partition, stream, start, end, domain, count) in enumerate(rows):
        part = slice(done, done + count)
        begins, lengths = places[2 * done : 2 * (done + count)].reshape(2, count)
        entries = Entries(
            domain,
            edges[done + number : done + number + count + 1],
            kinds[part],
            begins,
            lengths,
            np.full(count, UNKNOWN_MS, np.int64),
            wal_ids[part],
            labels[part],
            names,
        )
        name, topic_id = columns.topics[topic]
        pinned = PinnedRange(name, topic_id, partition, stream, start, end)
        ranges.append(PlannedRange(pinned, entries))
        done += count
    return Split(tuple(ranges))
