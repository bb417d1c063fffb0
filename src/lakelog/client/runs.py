"""A run: the rows that one fetch brought for one partition, in the order in which they may go.

Rows within a partition may be out of order in time, and mostly are not: then nothing is sorted and
nothing copied. Where they are, rows go in another order than that of their offsets, so what may be
committed is below the least offset among the rows that remain.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.client.release import INDEX_MAX
from lakelog.records.fetched import FetchedRows
from lakelog.records.ordering import Source, is_sorted, stable_order

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Ints, Longs

TAIL_ROWS: Final = 64
"""Of how many latest rows the least timestamp is the run's tail: one clock in the future among them
lets nothing go early."""


class Run:
    """Rows of one partition in the order in which they may go; it never changes.

    Making one sorts, so it is made where decoding is done. Who holds it knows how many are gone.
    """

    __slots__ = ("_buffer", "_least", "entry", "index", "nbytes", "rows", "source", "tail_ms")

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
        self.entry: Final = self.source.entry()
        """What the compiled functions know of the source."""
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
