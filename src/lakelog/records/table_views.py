"""Arrow's binary views over the bytes of record batches: values stay where they are.

A view is 16 bytes: the length, then up to 12 bytes of the value itself, or its first four, the
number of the buffer that holds it and its place there. Filling them is the one step of the table
path that touches every key and value, so it has a compiled form, used once the kernels are loaded.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lakelog.records import kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakelog.records.kernels import Bytes, Ints, Longs

VIEW_BYTES: Final = 16
INLINE_BYTES: Final = 12
"""A view holds a value up to this length itself."""

_PREFIX_BYTES: Final = 4
_FIXED_BYTES: Final = 24
"""Partition, offset, timestamp and attributes."""


class FillViews(Protocol):
    """Fills the view of every place [start, end) in `data`, which is the buffer of that number."""

    def __call__(
        self, data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", buffer: int, /
    ) -> None:
        """Fill all of them; a start of -1 is null and its view stays zero."""


def fill_views(data: memoryview, starts: "Ints", ends: "Ints", *, buffer: int) -> "Ints":
    """The views of these places in `data`, four words each."""
    views = np.zeros((len(starts), VIEW_BYTES // 4), np.int32)
    fill = fill_views_in_numpy if kernels.loaded() is None else _compiled()
    fill(np.frombuffer(data.toreadonly(), np.uint8), starts, ends, views, buffer)
    return views


@lru_cache(maxsize=1)
def _compiled() -> FillViews:
    from lakelog.records import table_compiled  # noqa: PLC0415 - numba is slow to import

    return table_compiled.fill_views


def fill_views_in_numpy(
    data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", buffer: int, /
) -> None:
    """The kernel's twin."""
    lengths = ends - starts
    content = views.view(np.uint8)
    views[:, 0] = lengths
    short = lengths <= INLINE_BYTES
    for rows, width in ((short, INLINE_BYTES), (~short, _PREFIX_BYTES)):
        steps = np.arange(width)
        inside = steps < lengths[rows, None]
        wanted = np.where(inside, starts[rows, None] + steps, 0)
        found = np.where(inside, data[wanted], 0) if len(data) else 0
        content[rows, 4 : 4 + width] = found
    views[~short, 2] = buffer
    views[~short, 3] = starts[~short]


def view_array(
    views: "Sequence[Ints]", starts: "Sequence[Ints]", buffers: "Sequence[memoryview]"
) -> "pa.Array":
    """The column of these views, an array for every buffer; a negative start is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    joined = np.concatenate(views)
    valid = np.packbits(np.concatenate(starts) >= 0, bitorder="little")
    parts = [pa.py_buffer(valid), pa.py_buffer(joined), *(pa.py_buffer(one) for one in buffers)]
    return pa.Array.from_buffers(pa.binary_view(), len(joined), parts)


def view_lengths(column: "pa.Array") -> "Ints":
    """The length of every value of a binary view column, 0 for null."""
    words = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, VIEW_BYTES // 4)
    lengths: Ints = words[column.offset : column.offset + len(column), 0]
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return lengths


def row_bytes(rows: "pa.Table") -> "Longs":
    """How many bytes every row takes before compression: what row groups are cut by."""
    sizes = [_batch_bytes(batch) for batch in rows.to_batches()]
    return np.concatenate(sizes) if sizes else np.zeros(0, np.int64)


def _batch_bytes(batch: "pa.RecordBatch") -> "Longs":
    sizes = np.full(batch.num_rows, _FIXED_BYTES, np.int64)
    for name in ("key", "value", "raw"):
        sizes += _lengths(batch[name])
    headers = batch["headers"]
    edges = headers.offsets.to_numpy()
    if edges[0] != edges[-1]:
        entries = headers.values
        each = _lengths(entries.field("key")) + _lengths(entries.field("value"))
        before = np.append(0, np.cumsum(each, dtype=np.int64))
        sizes += before[edges[1:]] - before[edges[:-1]]
    return sizes


def _lengths(column: "pa.Array") -> "Ints | Longs | int":
    """The length of every value, 0 for null."""
    import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and an extra

    if column.null_count == len(column):
        return 0
    if column.type.equals("binary_view"):
        return view_lengths(column)
    lengths: Longs = pc.binary_length(column).fill_null(0).to_numpy()
    return lengths
