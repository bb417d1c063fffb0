"""Runs of rows merged in the order of their time: which rows are next, and their columns gathered.

A source is the columns of rows from one partition, sorted by timestamp. Sources stand in the order
of their partitions' indexes, those of one index in the order of arrival, so a stable merge by
timestamp gives the order timestamp, index, offset.

Every step is a kernel with a twin in numpy. A kernel reads the columns of all sources in one call:
with sixty sources that give a hundred rows each, a call of numpy for every column of every source
would take longer than all the work. So would asking every array for its memory, which is done once
for each source (`Source.native`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lakelog.records import kernels

if TYPE_CHECKING:
    from lakelog._native import RowSource
    from lakelog.records.kernels import Flags, Ints, Longs

    Array = Longs | Ints | Flags

# The columns of a source that are gathered, as sources.h numbers them.
OFFSETS: Final = 0
KEY_VIEWS: Final = 1
VALUE_VIEWS: Final = 2
KEY_NULLS: Final = 3
VALUE_NULLS: Final = 4

INLINE_BYTES: Final = 12
"""A view that is longer than this points into a buffer."""

VIEW_WORDS: Final = 4


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Source:
    """Rows of one partition sorted by timestamp: the one at p is row `order[p]` of the columns.

    Without an order the columns themselves are sorted. Views are Arrow's, four words a row, into
    buffer number 0; flags are None if none is set. Arrays are contiguous and never change.
    """

    index: int
    timestamps_ms: "Longs"
    order: "Ints | None"
    offsets: "Longs"
    key_views: "Ints"
    value_views: "Ints"
    key_nulls: "Flags | None"
    value_nulls: "Flags | None"

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    def native(self) -> "RowSource | None":
        """What the kernels know of this source, which keeps its arrays; None without kernels."""
        if kernels.native is None:
            return None
        return kernels.native.row_source(
            self.index,
            self.timestamps_ms,
            self.order,
            self.offsets,
            self.key_views,
            self.value_views,
            self.key_nulls,
            self.value_nulls,
        )

    def column(self, field: int) -> "Array | None":
        """The column of that field."""
        columns = (self.offsets, self.key_views, self.value_views, self.key_nulls, self.value_nulls)
        return columns[field]

    def rows(self, start: int, end: int) -> "Ints":
        """Which rows of the columns are at [start, end)."""
        if self.order is None:
            return np.arange(start, end, dtype=np.int32)
        return self.order[start:end]


class Sources(NamedTuple):
    """Several sources in their order, and what the kernels know of each."""

    each: Sequence[Source]
    natives: "tuple[RowSource | None, ...]"


class Merged(NamedTuple):
    """Rows in their order: the number of each one's source, its row there, and its timestamp."""

    numbers: "Ints"
    rows: "Ints"
    timestamps_ms: "Longs"


def is_sorted(timestamps_ms: "Longs") -> bool:
    """Whether no timestamp is below the one before it."""
    return bool((timestamps_ms[1:] >= timestamps_ms[:-1]).all())


def stable_order(timestamps_ms: "Longs") -> "Ints":
    """The order that sorts these timestamps and leaves equal ones as they stand."""
    native = kernels.native
    if native is not None:
        order = np.empty(len(timestamps_ms), np.int32)
        if native.stable_order(timestamps_ms, order):
            return order
    return np.argsort(timestamps_ms, kind="stable").astype(np.int32)


def choose(sources: Sources, spans: "Longs", limit: tuple[int, int], rows_max: int) -> int:
    """Narrow the sources' spans to the least `rows_max` rows within the limit; returns how many.

    The first row of `spans` holds where each source's remaining rows start, the second where they
    end: that row is changed. The limit is the greatest timestamp and the greatest index with it.
    """
    native = kernels.native
    if native is not None:
        return native.choose_rows(sources.natives, spans, limit, rows_max)
    return choose_in_numpy(sources, spans, limit, rows_max)


def choose_in_numpy(sources: Sources, spans: "Longs", limit: tuple[int, int], rows_max: int) -> int:
    """The kernel's twin."""
    limit_ms, limit_index = limit
    for number, source, start, end in _spans(sources, spans):
        last = source.index <= limit_index
        spans[1, number] = start + _count(source, start, end, limit_ms, or_equal=last)
    total = int((spans[1] - spans[0]).sum())
    if total <= rows_max:
        return total
    times = [source.timestamps_ms[start:end] for _, source, start, end in _spans(sources, spans)]
    last_ms = int(np.partition(np.concatenate(times), rows_max - 1)[rows_max - 1])
    left = rows_max
    equal = np.zeros(len(sources.each), np.int64)
    for number, source, start, end in _spans(sources, spans):
        below = _count(source, start, end, last_ms, or_equal=False)
        equal[number] = _count(source, start, end, last_ms, or_equal=True) - below
        spans[1, number] = start + below
        left -= below
    # Of the rows at the last timestamp, those of the first sources come first.
    before = np.cumsum(equal) - equal
    spans[1] += np.clip(left - before, 0, equal)
    return rows_max


def _spans(sources: Sources, spans: "Longs") -> Iterator[tuple[int, Source, int, int]]:
    for number, source in enumerate(sources.each):
        start, end = spans[:, number].tolist()
        yield number, source, start, end


def _count(source: Source, start: int, end: int, time_ms: int, *, or_equal: bool) -> int:
    """How many rows of [start, end) are below this time, or at it."""
    times = source.timestamps_ms[start:end]
    return int(np.searchsorted(times, time_ms, "right" if or_equal else "left"))


def merge(sources: Sources, spans: "Longs", count: int) -> Merged:
    """The rows of these spans, `count` altogether, by timestamp and then as the sources stand."""
    native = kernels.native
    if native is not None:
        merged = Merged(
            np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int64)
        )
        if native.merge_rows(sources.natives, spans, *merged):
            return merged
    return sort_joined(joined(sources, spans))


def joined(sources: Sources, spans: "Longs") -> Merged:
    """The rows of these spans, source after source."""
    each = [source.rows(start, end) for _, source, start, end in _spans(sources, spans)]
    times = [source.timestamps_ms[start:end] for _, source, start, end in _spans(sources, spans)]
    numbers = np.arange(len(sources.each), dtype=np.int32)
    sizes = spans[1] - spans[0]
    return Merged(np.repeat(numbers, sizes), np.concatenate(each), np.concatenate(times))


def sort_joined(rows: Merged) -> Merged:
    """The rows by timestamp; equal ones stay as they stand."""
    order = np.argsort(rows.timestamps_ms, kind="stable")
    return Merged(rows.numbers[order], rows.rows[order], rows.timestamps_ms[order])


def gather_offsets(sources: Sources, merged: Merged) -> "Longs":
    """The offsets of merged rows."""
    output = np.empty(len(merged.rows), np.int64)
    native = kernels.native
    if native is not None:
        native.gather_rows(sources.natives, OFFSETS, merged.numbers, merged.rows, output)
    else:
        gather_in_numpy(sources, OFFSETS, merged, output)
    return output


def gather_views(sources: Sources, merged: Merged, field: int) -> "Ints":
    """The views of merged rows; the number of a view's buffer is the number of its source."""
    output = np.empty((len(merged.rows), VIEW_WORDS), np.int32)
    native = kernels.native
    if native is not None:
        native.gather_rows(sources.natives, field, merged.numbers, merged.rows, output)
    else:
        gather_in_numpy(sources, field, merged, output)
        long = output[:, 0] > INLINE_BYTES
        output[long, 2] = merged.numbers[long]
    return output


def gather_nulls(sources: Sources, merged: Merged, field: int) -> "Flags | None":
    """Which of the merged rows are null; None if no source has null rows."""
    each = sources.each
    nulls = [one.key_nulls if field == KEY_NULLS else one.value_nulls for one in each]
    if all(column is None for column in nulls):
        return None
    output = np.zeros(len(merged.rows), np.bool_)
    native = kernels.native
    if native is not None:
        native.gather_rows(sources.natives, field, merged.numbers, merged.rows, output)
    else:
        gather_in_numpy(sources, field, merged, output)
    return output


def gather_in_numpy(sources: Sources, field: int, merged: Merged, output: "Array") -> None:
    """The twin of all kernels that gather; rows of a source without this column stay."""
    order = np.argsort(merged.numbers, kind="stable")
    edges = np.searchsorted(merged.numbers[order], np.arange(len(sources.each) + 1))
    for number, source in enumerate(sources.each):
        column = source.column(field)
        if column is not None:
            places = order[edges[number] : edges[number + 1]]
            output[places] = column[merged.rows[places]]
