"""Record batches become rows of a table, without a Python object per record.

Keys and values stay in the bytes of their batches and the rows point there, so a `RowBuilder`
costs little more than the decompression. Offsets are the batch's base plus the deltas as read,
which must rise from 0 to the header's last one; a LogAppendTime batch gives every row its max
timestamp. What the columns cannot hold also goes into `raw` (`table_schema`); only a slice that
holds such header keys looks at them one by one, each different key once.

A view is 16 bytes: the length, then up to 12 bytes of the value itself, or its first four, the
number of the buffer that holds it and its place there. Filling them is the one step of the table
path that touches every key and value, so it is a kernel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records import kernels
from lakelog.records.columns import RecordColumns, decode_columns
from lakelog.records.header import BatchError, MalformedBatchError, parse_header
from lakelog.records.table_schema import (
    RAW_TIMESTAMP_BYTES,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
    TIMESTAMP_US_MAX,
    TIMESTAMP_US_MIN,
    table_schema,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from lakelog.records.kernels import Bytes, Ints, Longs

VIEW_BYTES: Final = 16
INLINE_BYTES: Final = 12
"""A view holds a value up to this length itself."""

_PREFIX_BYTES: Final = 4
_FIXED_BYTES: Final = 24
"""Partition, offset, timestamp and attributes."""


def fill_views(data: memoryview, starts: "Ints", ends: "Ints", *, buffer: int) -> "Ints":
    """The views of these places in `data`, four words each; a start of -1 is null, all zero.

    The data is the buffer of that number.
    """
    views = np.zeros((len(starts), VIEW_BYTES // 4), np.int32)
    native = kernels.native
    if native is None:
        fill_views_in_numpy(np.frombuffer(data, np.uint8), starts, ends, views, buffer)
    else:
        native.fill_views(data, starts, ends, views, buffer)
    return views


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


_VARINT_BYTES_MAX: Final = 5


class UnreadableBatchError(BatchError):
    """A batch whose records cannot be read; the others of its stream can."""

    def __init__(self, base_offset: int, end: int, reason: BatchError) -> None:
        super().__init__(f"the batch of the offsets [{base_offset}, {end}): {reason}")
        self.base_offset = base_offset
        self.end = end


@dataclass(frozen=True, slots=True)
class _Held:
    """One batch, decoded, with the views of its keys and values."""

    base_offset: int
    columns: RecordColumns
    keys: "Ints"
    values: "Ints"


class RowBuilder:
    """Gathers batches of one partition, in order, until somebody takes their rows."""

    def __init__(self, *, partition: int, decompressed_bytes_max: int) -> None:
        self._partition = partition
        self._decompressed_bytes_max = decompressed_bytes_max
        self._held: list[_Held] = []
        self.size_bytes = 0
        """The decompressed records that are held."""

    def add(self, base_offset: int, batch: memoryview) -> None:
        """Hold the rows of one batch, whose CRC the caller has checked."""
        try:
            columns = decode_columns(batch, decompressed_bytes_max=self._decompressed_bytes_max)
            _check_offsets(columns)
        except BatchError as error:
            end = base_offset + parse_header(batch).last_offset_delta + 1
            raise UnreadableBatchError(base_offset, end, error) from error
        if len(columns):
            # Now, while the processor's cache still holds what was decompressed.
            data, buffer, places = columns.data, len(self._held), columns.places
            keys = fill_views(data, places[1], places[2], buffer=buffer)
            values = fill_views(data, places[3], places[4], buffer=buffer)
            self._held.append(_Held(base_offset, columns, keys, values))
            self.size_bytes += len(columns.data)

    def take(self) -> "pa.Table":
        """The rows of everything that is held; the builder is empty then."""
        rows = _rows(self._partition, self._held)
        self._held, self.size_bytes = [], 0
        return rows


def rows_from_batches(
    batches: Sequence[tuple[int, memoryview]], *, partition: int, decompressed_bytes_max: int
) -> "pa.Table":
    """The rows of these batches, each given with its base offset; keys and values are views."""
    builder = RowBuilder(partition=partition, decompressed_bytes_max=decompressed_bytes_max)
    for base_offset, batch in batches:
        builder.add(base_offset, batch)
    return builder.take()


def _check_offsets(columns: RecordColumns) -> None:
    deltas = columns.offset_deltas
    if not len(deltas):
        return
    first, last = deltas.item(0), deltas.item(-1)
    rising = bool((deltas[1:] > deltas[:-1]).all())
    if not rising or first < 0 or last > columns.header.last_offset_delta:
        raise MalformedBatchError("the offset deltas do not rise within the batch")


def _rows(partition: int, held: list[_Held]) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    schema = table_schema(views=True)
    if not held:
        return schema.empty_table()
    batches = [one.columns for one in held]
    counts = [len(columns) for columns in batches]
    count = sum(counts)
    timestamps_ms = np.concatenate([columns.timestamps_ms for columns in batches])
    offsets = [np.int64(one.base_offset) + one.columns.offset_deltas for one in held]
    attributes = np.array([columns.header.attributes for columns in batches], np.int32)
    headers, misfit = _header_column(batches)
    outside = (timestamps_ms < TIMESTAMP_MS_MIN) | (timestamps_ms > TIMESTAMP_MS_MAX)
    raw = outside | misfit
    data = [columns.data for columns in batches]
    arrays = [
        pa.array(np.full(count, partition, np.int32)),
        pa.array(np.concatenate(offsets)),
        pa.array(_microseconds(timestamps_ms)).view(pa.timestamp("us", tz="UTC")),
        view_array([one.keys for one in held], [one.places[1] for one in batches], data),
        view_array([one.values for one in held], [one.places[3] for one in batches], data),
        headers,
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.int32()),
        pa.nulls(count, pa.int32()),
        pa.array(np.repeat(attributes, counts)),
        pa.nulls(count, pa.int32()),
        _raw_column(batches, timestamps_ms, raw) if raw.any() else pa.nulls(count, pa.binary()),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _microseconds(timestamps_ms: "Longs") -> "Longs":
    clamped = np.clip(timestamps_ms, TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX) * 1000
    clamped[timestamps_ms < TIMESTAMP_MS_MIN] = TIMESTAMP_US_MIN
    clamped[timestamps_ms > TIMESTAMP_MS_MAX] = TIMESTAMP_US_MAX
    return clamped


def _header_column(batches: list[RecordColumns]) -> "tuple[pa.Array, NDArray[np.bool_]]":
    """The headers, and which records have one whose key is not UTF-8."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    counts = np.concatenate([columns.places[6] for columns in batches])
    ends = np.cumsum(counts, dtype=np.int64)
    kind = table_schema().field("headers").type
    misfit = np.zeros(len(counts), np.bool_)
    element = kind.value_type
    if ends[-1] == 0:
        entries = pa.array([], element)
    else:
        places = [columns.header_places() for columns in batches]
        data = [columns.data for columns in batches]
        keys = _header_blobs(data, [place[:2] for place in places])
        values = _header_blobs(data, [place[2:] for place in places])
        texts, bad = _texts(keys)
        if bad is not None:
            misfit[np.searchsorted(ends, np.flatnonzero(bad), side="right")] = True
        entries = pa.StructArray.from_arrays([texts, values], fields=list(element))
    edges = pa.array(np.append(0, ends), pa.int32())
    return pa.ListArray.from_arrays(edges, entries, type=kind), misfit


def _header_blobs(data: list[memoryview], places: "list[Ints]") -> "pa.Array":
    """The column of the headers' keys or values, copied: a list holds no views."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    views = [
        fill_views(buffer, place[0], place[1], buffer=number)
        for number, (buffer, place) in enumerate(zip(data, places, strict=True))
    ]
    return view_array(views, [place[0] for place in places], data).cast(pa.binary())


def _texts(keys: "pa.Array") -> "tuple[pa.Array, NDArray[np.bool_] | None]":
    """The keys as text, and which of them are not, None when all are."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    try:
        return keys.cast(pa.string()), None
    except pa.ArrowInvalid:
        different = keys.dictionary_encode()
    found = different.dictionary.to_pylist()
    texts = [key.decode(errors="replace") for key in found]
    same = [text.encode() == key for text, key in zip(texts, found, strict=True)]
    bad = ~np.array(same, np.bool_)[different.indices.to_numpy()]
    return pa.array(texts, pa.string()).take(different.indices), bad


def _raw_column(
    batches: list[RecordColumns], timestamps_ms: "Longs", chosen: "NDArray[np.bool_]"
) -> "pa.Array":
    """Timestamp and headers' bytes of the chosen records, null for the others."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    lengths = np.zeros(len(chosen), np.int64)
    blocks = []
    done = 0
    for columns in batches:
        picked = np.flatnonzero(chosen[done : done + len(columns)])
        starts, ends = _header_bytes(columns, picked)
        lengths[done + picked] = RAW_TIMESTAMP_BYTES + ends - starts
        blocks += [columns.data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        done += len(columns)
    stamps = timestamps_ms[chosen].astype(">i8").tobytes()
    pieces: list[bytes | memoryview] = []
    for number, block in enumerate(blocks):
        pieces += (stamps[number * 8 : number * 8 + 8], block)
    edges = np.append(0, np.cumsum(lengths))
    valid = np.packbits(chosen, bitorder="little")
    parts = [pa.py_buffer(valid), pa.py_buffer(edges), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.large_binary(), len(chosen), parts).cast(pa.binary())


def _header_bytes(columns: RecordColumns, picked: "NDArray[np.intp]") -> "tuple[Longs, Longs]":
    """Where the headers of these records lie, all of a record's as one range."""
    starts = columns.places[5, picked].astype(np.int64)
    ends = starts.copy()
    counts = columns.places[6]
    some = counts[picked] > 0
    if not some.any():
        return starts, ends
    places = columns.header_places().astype(np.int64)
    last = np.cumsum(counts, dtype=np.int64)[picked[some]] - 1
    ends[some] = places[3, last]
    # A null value ends with the number -1 behind its key, in as many bytes as its sender liked.
    null = np.flatnonzero(some)[places[3, last] < 0]
    after_key = places[1, last[places[3, last] < 0]]
    for row, position in zip(null.tolist(), after_key.tolist(), strict=True):
        tail = columns.data[position : position + _VARINT_BYTES_MAX]
        ends[row] = position + next(at for at, byte in enumerate(tail) if byte < 128) + 1
    return starts, ends
