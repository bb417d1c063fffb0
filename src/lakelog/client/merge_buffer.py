"""What was read and not given out yet: sorted runs of all partitions, and the next rows of them.

A run is the rows that one fetch brought for one partition, in the order in which they may go. Rows
within a partition may be out of order in time, and mostly are not: then nothing is sorted and
nothing copied. Where they are, rows go in another order than that of their offsets, so what may be
committed is below the least offset among the rows that remain.

Ordered, the next rows are those with the least (timestamp, index, offset) within the limit; else
they come as they arrived, and the limit is not asked. A run is kept whole until its last row is
given out, so its bytes count until then. One thread uses the buffer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.client.watermark import ALL, INDEX_MAX, NOTHING, Limit
from lakelog.records import ordering
from lakelog.records.fetched import FetchedRows
from lakelog.records.ordering import (
    KEY_VIEWS,
    VALUE_VIEWS,
    Merged,
    Source,
    Sources,
    is_sorted,
    stable_order,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Flags, Ints, Longs

TAIL_ROWS: Final = 64
"""Of how many latest rows the least timestamp is the run's tail: one clock in the future among them
lets nothing go early."""


class SortedRun:
    """Rows of one partition in the order in which they may go; it never changes.

    Making one sorts, so it is made where decoding is done. Who holds it knows how many are gone.
    """

    __slots__ = ("_buffer", "_least", "index", "native", "nbytes", "rows", "source", "tail_ms")

    def __init__(
        self,
        index: int,
        rows: FetchedRows,
        *,
        ordered: bool = True,
        released: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Sort the rows unless they are; without those of offset ranges that were released before.

        With `ordered` false they stay in the order of their offsets.
        """
        assert 0 <= index < INDEX_MAX, index
        order = _kept(rows, released) if released else None
        if ordered:
            order = _sorted(rows.timestamps_ms, order)
        times = rows.timestamps_ms if order is None else rows.timestamps_ms[order]
        self.index: Final = index
        self.rows: Final = rows
        self.source: Final = Source(
            index=index,
            timestamps_ms=times,
            order=order,
            offsets=rows.offsets,
            key_views=rows.key_views,
            value_views=rows.value_views,
            key_nulls=rows.key_nulls,
            value_nulls=rows.value_nulls,
        )
        self.native: Final = self.source.native()
        """What the kernels know of the source."""
        self.nbytes: Final = rows.nbytes + (0 if order is None else order.nbytes + times.nbytes)
        """All memory that the run keeps."""
        self.tail_ms: Final = int(rows.timestamps_ms[-TAIL_ROWS:].min()) if len(rows) else None
        """The least timestamp of the latest rows, None without a row: what `Progress` asks for."""
        self._least: Longs | None = None
        self._buffer: pa.Buffer | None = None

    def __len__(self) -> int:
        return len(self.source)

    def least_offset(self, *, start: int = 0) -> int | None:
        """The least offset that is still here if `start` rows are gone, None if none is."""
        if start >= len(self):
            return None
        order = self.source.order
        if order is None:
            return int(self.rows.offsets[start])
        if self._least is None:
            self._least = np.minimum.accumulate(self.rows.offsets[order][::-1])[::-1]
        return int(self._least[start])

    def offsets(self, start: int, end: int) -> "Longs":
        """The offsets of the rows at [start, end) in the run's order."""
        order = self.source.order
        return (
            self.rows.offsets[start:end] if order is None else self.rows.offsets[order[start:end]]
        )

    @property
    def buffer(self) -> "pa.Buffer":
        """The bytes that the views point into, as Arrow knows them."""
        if self._buffer is None:
            import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

            self._buffer = pa.py_buffer(self.rows.data)
        return self._buffer


def _kept(rows: FetchedRows, released: Sequence[tuple[int, int]]) -> "Ints | None":
    """Which rows no released range [start, end) holds; None if that is all."""
    kept = np.ones(len(rows), np.bool_)
    for start, end in released:
        first, last = np.searchsorted(rows.offsets, (start, end))
        kept[first:last] = False
    return None if kept.all() else np.flatnonzero(kept).astype(np.int32)


def _sorted(timestamps_ms: "Longs", order: "Ints | None") -> "Ints | None":
    times = timestamps_ms if order is None else timestamps_ms[order]
    if is_sorted(times):
        return order
    by_time = stable_order(times)
    return by_time if order is None else order[by_time]


DATA_BYTES_MAX: Final = (1 << 31) - 1
"""An Arrow column of bytes has 32-bit offsets."""


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """Rows in their order; `merged` says of each which of the runs it is from, and its row there.

    It keeps its runs, so it is let go once the batch is built.
    """

    runs: tuple[SortedRun, ...]
    sources: Sources
    merged: Merged

    def __len__(self) -> int:
        return len(self.merged.rows)


class MergeBuffer:
    """The runs that were read and are not used up."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered: Final = ordered
        self._arrived: list[SortedRun] = []
        self._runs: list[SortedRun] = []
        """By index and arrival, or by arrival alone; without those of `_arrived`."""
        self._indexes = np.zeros(0, np.int64)
        """The indexes of the runs."""
        self._spans = np.zeros((2, 0), np.int64)
        """How many rows of each run are gone, and how many it had."""
        self._released: dict[int, int] = {}
        """The greatest offset in runs that are used up."""
        self._greatest = NOTHING
        self.row_count = 0
        self.byte_count = 0
        self.late_count = 0
        """How many rows were given out although one with a greater key was, while priming."""

    def add(self, run: SortedRun) -> None:
        """Hold the rows of this run; runs of one partition come in the order of their offsets."""
        if len(run):
            self._arrived.append(run)
            self.row_count += len(run)
            self.byte_count += run.nbytes

    def take(self, limit: Limit, rows_max: int) -> MergedRows | None:
        """The next rows within the limit, at most `rows_max`; None if there is none.

        Fewer come if the bytes of one column would be too many for Arrow.
        """
        assert rows_max > 0, rows_max
        self._settle()
        spans = self._spans.copy()
        if self._ordered:
            bounds = (limit.timestamp_ms, limit.index)
            count = ordering.choose(_sources(self._runs), spans, bounds, rows_max)
        else:
            count = _first(spans, rows_max)
        if count == 0:
            return None
        used = np.flatnonzero(spans[1] > spans[0])
        spans = np.ascontiguousarray(spans[:, used])
        taken = _cut(self._merge(used, spans, count), spans)
        if self._ordered:
            self._note_order(taken, limit)
        self.row_count -= len(taken)
        self._spans[0, used] = spans[1]
        self._let_go(self._spans[0] >= self._spans[1])
        return taken

    def least_unreleased(self, index: int) -> int | None:
        """The least offset of the partition that is held, None without any."""
        least = [run.least_offset(start=start) for run, start in self._runs_of(index)]
        return min((offset for offset in least if offset is not None), default=None)

    def greatest_released(self, index: int) -> int | None:
        """The greatest offset of the partition that was given out, None before the first."""
        greatest = [int(run.offsets(0, end).max()) for run, end in self._runs_of(index) if end]
        if index in self._released:
            greatest.append(self._released[index])
        return max(greatest, default=None)

    def released_ranges(self, index: int, end: int) -> tuple[tuple[int, int], ...]:
        """The ranges [start, end) above the least held offset and below `end` that hold nothing.

        Whoever starts again reads from the least held offset on and leaves these out: all of them
        were given out, or never were records.
        """
        runs = self._runs_of(index)
        if not runs:
            return ()
        held = np.sort(np.concatenate([run.offsets(start, len(run)) for run, start in runs]))
        starts, ends = held + 1, np.append(held[1:], end)
        between = starts < ends
        return tuple(zip(starts[between].tolist(), ends[between].tolist(), strict=True))

    def drop(self, index: int) -> None:
        """Let the partition's rows go without giving them out, and forget what was given out."""
        self._settle()
        dropped = self._indexes == index
        self.row_count -= int((self._spans[1] - self._spans[0])[dropped].sum())
        self._let_go(dropped)
        self._released.pop(index, None)

    def _settle(self) -> None:
        """Put what arrived in its place."""
        if not self._arrived:
            return
        self._runs += self._arrived
        arrived = np.array([run.index for run in self._arrived], np.int64)
        self._indexes = np.concatenate((self._indexes, arrived))
        counts = np.zeros((2, len(self._arrived)), np.int64)
        counts[1] = [len(run) for run in self._arrived]
        self._spans = np.concatenate((self._spans, counts), axis=1)
        self._arrived = []
        if self._ordered:
            # Stable, so that the runs of one index stay in the order of their arrival.
            order = np.argsort(self._indexes, kind="stable")
            self._runs = [self._runs[number] for number in order.tolist()]
            self._indexes = self._indexes[order]
            self._spans = np.ascontiguousarray(self._spans[:, order])

    def _runs_of(self, index: int) -> list[tuple[SortedRun, int]]:
        """The partition's runs in the order of their arrival, and how many rows are gone."""
        self._settle()
        numbers = np.flatnonzero(self._indexes == index).tolist()
        return [(self._runs[number], int(self._spans[0, number])) for number in numbers]

    def _merge(self, used: "Longs", spans: "Longs", count: int) -> MergedRows:
        runs = tuple(self._runs[number] for number in used.tolist())
        sources = _sources(runs)
        if self._ordered:
            return MergedRows(runs, sources, ordering.merge(sources, spans, count))
        return MergedRows(runs, sources, ordering.joined(sources, spans))

    def _note_order(self, taken: MergedRows, limit: Limit) -> None:
        times, numbers = taken.merged.timestamps_ms, taken.merged.numbers
        # Late is what is before the greatest key that went out: by its time, or at it by its index.
        if int(times[0]) <= self._greatest.timestamp_ms:
            below = int(np.searchsorted(times, self._greatest.timestamp_ms))
            until = int(np.searchsorted(times, self._greatest.timestamp_ms, "right"))
            indexes = np.array([run.index for run in taken.runs])[numbers[below:until]]
            self.late_count += below + int((indexes < self._greatest.index).sum())
        if limit != ALL:  # what is late is counted while priming alone
            last = Limit(int(times[-1]), taken.runs[int(numbers[-1])].index)
            self._greatest = max(self._greatest, last)

    def _let_go(self, gone: "Flags") -> None:
        """Keep the other runs."""
        if not gone.any():
            return
        for number in np.flatnonzero(gone).tolist():
            run = self._runs[number]
            self.byte_count -= run.nbytes
            # The run's offsets ascend, and those that were left out were given out before.
            greatest = int(run.rows.offsets[-1])
            self._released[run.index] = max(greatest, self._released.get(run.index, greatest))
        kept = np.flatnonzero(~gone)
        self._runs = [self._runs[number] for number in kept.tolist()]
        self._indexes = self._indexes[kept]
        self._spans = np.ascontiguousarray(self._spans[:, kept])


def _sources(runs: Sequence[SortedRun]) -> Sources:
    return Sources([run.source for run in runs], tuple([run.native for run in runs]))


def _first(spans: "Longs", rows_max: int) -> int:
    """Narrow the spans to their first rows."""
    sizes = spans[1] - spans[0]
    before = np.cumsum(sizes) - sizes
    spans[1] = spans[0] + np.clip(rows_max - before, 0, sizes)
    return int((spans[1] - spans[0]).sum())


def _cut(taken: MergedRows, spans: "Longs") -> MergedRows:
    """Cut what would be too much for one column, and the spans with it; never to nothing."""
    if sum(len(run.rows.data) for run in taken.runs) <= DATA_BYTES_MAX:
        return taken
    count = len(taken)
    for field in (KEY_VIEWS, VALUE_VIEWS):
        lengths = ordering.gather_views(taken.sources, taken.merged, field)[:, 0]
        sums = np.cumsum(lengths, dtype=np.int64)
        count = min(count, int(np.searchsorted(sums, DATA_BYTES_MAX, "right")))
    numbers, rows, times_ms = taken.merged
    merged = Merged(numbers[:count], rows[:count], times_ms[:count])
    spans[1] = spans[0] + np.bincount(merged.numbers, minlength=len(taken.runs))
    return MergedRows(taken.runs, taken.sources, merged)
