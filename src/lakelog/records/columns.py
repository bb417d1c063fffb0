"""From one batch to columns: where every key, value and header lies, without an object per record.

For consumers, lookups by timestamp and the table path. Any stored or foreign batch can be read,
also one that compaction left with holes: offset deltas are reported, not judged.

Places become Arrow's binary views, made without an object per value either. A view is 16 bytes: the
length, then up to 12 bytes of the value itself, or its first four, the number of the buffer that
holds it and its place there. Filling them is the one step that touches every key and value, so it
is a kernel.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records import kernels
from lakelog.records.codecs import Codec, decompress
from lakelog.records.header import (
    HEADER_BYTES,
    BatchHeader,
    MalformedBatchError,
    parse_header,
    read_varint,
    read_varlong,
)
from lakelog.records.kernels import DONE, wrap_int64

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Bytes, Flags, Ints, Longs

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, one byte each."""

PLACES: Final = 7
"""The rows of `places`: offset delta, key start and end, value start and end, headers' start and
count."""


VIEW_BYTES: Final = 16
VIEW_WORDS: Final = VIEW_BYTES // 4
INLINE_BYTES: Final = 12
"""A view holds a value up to this length itself."""

_PREFIX_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The records of one batch as arrays; a start and end of -1 is null."""

    header: BatchHeader
    data: memoryview
    """The records' bytes, decompressed: what the starts and ends point into."""
    timestamps_ms: "Longs"
    places: "Ints"

    def __len__(self) -> int:
        return len(self.timestamps_ms)

    @property
    def offset_deltas(self) -> "Ints":
        """Each record's offset, counted from the batch's base offset."""
        deltas: Ints = self.places[0]
        return deltas

    def key(self, index: int) -> memoryview | None:
        """One record's key."""
        return self._blob(1, index)

    def value(self, index: int) -> memoryview | None:
        """One record's value."""
        return self._blob(3, index)

    def headers(self, index: int) -> list[tuple[bytes, bytes | None]]:
        """One record's headers in order, with duplicates and null values."""
        start, count = int(self.places[5, index]), int(self.places[6, index])
        return parse_record_headers(self.data, start, count)

    def header_places(self) -> "Ints":
        """Key start and end, value start and end of all headers of all records, in order."""
        found = np.empty((4, int(self.places[6].sum(dtype=np.int64))), np.int32)
        fill_headers(self.data, self.places, found)
        return found

    def _blob(self, row: int, index: int) -> memoryview | None:
        start, end = int(self.places[row, index]), int(self.places[row + 1, index])
        return None if start < 0 else self.data[start:end]


def decode_columns(batch: memoryview, *, decompressed_bytes_max: int) -> RecordColumns:
    """The columns of exactly one batch, whose CRC the caller has checked."""
    header = parse_header(batch)
    if header.codec > Codec.ZSTD:
        raise MalformedBatchError(f"unknown compression {header.codec}")
    section = batch[HEADER_BYTES:]
    data = decompress(Codec(header.codec), section, decompressed_bytes_max).toreadonly()
    count = header.record_count
    if not 0 <= count <= len(data) // RECORD_BYTES_MIN:
        raise MalformedBatchError(f"{count} records cannot lie in {len(data)} bytes")
    timestamps = np.empty(count, np.int64)
    places = np.empty((PLACES, count), np.int32)
    native = kernels.native
    if native is None:
        fill_columns_in_python(data, header.base_timestamp_ms, timestamps, places)
    elif native.fill_columns(data, header.base_timestamp_ms, timestamps, places) != DONE:
        raise MalformedBatchError("the records are malformed")
    if header.log_append_time:
        timestamps.fill(header.max_timestamp_ms)
    return RecordColumns(header, data, timestamps, places)


def fill_columns_in_python(
    data: memoryview, base_ms: int, timestamps: "Longs", places: "Ints"
) -> None:
    """The kernel's twin; raises where the kernel returns a verdict."""
    position = 0
    for index in range(len(timestamps)):
        length, position = read_varint(data, position, len(data))
        end = position + length
        if length < 0 or end > len(data):
            raise MalformedBatchError("a record passes the end")
        delta_ms, position = read_varlong(data, position + 1, end)
        offset_delta, position = read_varint(data, position, end)
        key_start, key_end, position = _place(data, position, end)
        value_start, value_end, position = _place(data, position, end)
        count, position = read_varint(data, position, end)
        if not 0 <= count <= end - position:
            raise MalformedBatchError("a header count is out of range")
        timestamps[index] = wrap_int64(base_ms + delta_ms)
        places[:, index] = (
            offset_delta,
            key_start,
            key_end,
            value_start,
            value_end,
            position,
            count,
        )
        for _ in range(count):
            header_key, _, position = _place(data, position, end)
            _, _, position = _place(data, position, end)
            if header_key < 0:
                raise MalformedBatchError("a header has no key")
        if position != end:
            raise MalformedBatchError("a record is not filled by its fields")
    if position != len(data):
        raise MalformedBatchError("bytes are left after the last record")


def fill_headers(data: memoryview, places: "Ints", headers: "Ints") -> None:
    """Fill key start and end, value start and end of all headers that `places` names."""
    native = kernels.native
    if native is None:
        fill_headers_in_python(data, places, headers)
    elif native.fill_headers(data, places, headers) != DONE:
        raise MalformedBatchError("the headers are malformed")


def fill_headers_in_python(data: memoryview, places: "Ints", headers: "Ints") -> None:
    """The kernel's twin; the headers were read once by `fill_columns`."""
    item = 0
    for position, count in zip(places[5].tolist(), places[6].tolist(), strict=True):
        for _ in range(count):
            key_start, key_end, position = _place(data, position, len(data))  # noqa: PLW2901 - it walks
            value_start, value_end, position = _place(data, position, len(data))  # noqa: PLW2901 - it walks
            headers[:, item] = key_start, key_end, value_start, value_end
            item += 1


def parse_record_headers(
    data: memoryview, start: int, count: int
) -> list[tuple[bytes, bytes | None]]:
    """The `count` headers that begin at `start`; the bytes are copied."""
    headers = []
    position = start
    for _ in range(count):
        key_start, key_end, position = _place(data, position, len(data))
        value_start, value_end, position = _place(data, position, len(data))
        if key_start < 0:
            raise MalformedBatchError("a header has no key")
        value = None if value_start < 0 else bytes(data[value_start:value_end])
        headers.append((bytes(data[key_start:key_end]), value))
    return headers


def _place(data: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """Where a nullable blob lies, and the position after it."""
    length, position = read_varint(data, position, end)
    if length == -1:
        return -1, -1, position
    if length < 0 or length > end - position:
        raise MalformedBatchError("a field passes the end of its record")
    return position, position + length, position + length


def fill_views(data: memoryview, starts: "Ints", ends: "Ints") -> "Ints":
    """The views of these places in `data`, four words each; a start of -1 is null, all zero."""
    views = np.zeros((len(starts), VIEW_WORDS), np.int32)
    native = kernels.native
    if native is None:
        fill_views_in_numpy(np.frombuffer(data, np.uint8), starts, ends, views)
    else:
        native.fill_views(data, starts, ends, views)
    return views


def fill_views_in_numpy(data: "Bytes", starts: "Ints", ends: "Ints", views: "Ints", /) -> None:
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
    views[~short, 2] = 0
    views[~short, 3] = starts[~short]


def view_array(views: "Ints", nulls: "Flags | None", data: memoryview) -> "pa.Array":
    """The column of these views into `data`; without nulls no value is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    parts = [valid, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(views), parts)


def copied_column(data: memoryview, starts: "Ints", ends: "Ints") -> "pa.Array":
    """The bytes of these places, copied, as a list of values needs them: it holds no views."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return view_array(fill_views(data, starts, ends), starts < 0, data).cast(pa.binary())


def text_column(keys: "pa.Array") -> "tuple[pa.Array, Flags | None]":
    """The keys of headers as text, and which of them are not UTF-8, None when all are.

    Those have replacement characters where they are not.
    """
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    try:
        return keys.cast(pa.string()), None
    except pa.ArrowInvalid:
        # Rare, and the keys of headers are few: each one is decoded once.
        different = keys.dictionary_encode()
    found = different.dictionary.to_pylist()
    texts = [key.decode(errors="replace") for key in found]
    same = [text.encode() == key for text, key in zip(texts, found, strict=True)]
    bad = ~np.array(same, np.bool_)[different.indices.to_numpy()]
    return pa.array(texts, pa.string()).take(different.indices), bad


def view_lengths(column: "pa.Array") -> "Ints":
    """The length of every value of a binary view column, 0 for null."""
    words = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, VIEW_WORDS)
    lengths: Ints = words[column.offset : column.offset + len(column), 0]
    if column.null_count:
        lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return lengths
