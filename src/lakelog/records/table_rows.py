"""Record batches become rows of a table, without a Python object per record.

A `RowBuilder` decompresses batches as they come and decodes all that it holds in one call: keys
and values stay in the bytes of the records, and the rows point there. Offsets are the batch's base
plus the deltas as read, which must rise from 0 to the header's last one; a LogAppendTime batch
gives every row its max timestamp. What the columns cannot hold also goes into `raw`
(`table_schema`); only rows that hold such header keys have them looked at one by one, each
different key once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lakelog.records.codecs import Codec, decompress
from lakelog.records.columns import copied_column, text_column, view_array, view_lengths
from lakelog.records.fetched import (
    FetchedRows,
    MalformedRecordsError,
    decode_sections,
)
from lakelog.records.fetched_batches import TABLE_ROWS, FetchedBatches
from lakelog.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchError,
    MalformedBatchError,
    parse_header,
)
from lakelog.records.table_schema import (
    RAW_TIMESTAMP_BYTES,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
    TIMESTAMP_US_MAX,
    TIMESTAMP_US_MIN,
    table_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Flags, Ints, Longs

_FIXED_BYTES: Final = 24
"""Partition, offset, timestamp and attributes."""

_VARINT_BYTES_MAX: Final = 5

_Numbers: TypeAlias = tuple[int, ...]
"""Base offset, next offset, record count, attributes, base and max timestamp of a batch: in the
order of `FetchedBatches.table`."""


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


class UnreadableBatchError(BatchError):
    """A batch whose records cannot be read; the others of its stream can."""

    def __init__(self, base_offset: int, end: int, reason: BatchError) -> None:
        super().__init__(f"the batch of the offsets [{base_offset}, {end}): {reason}")
        self.base_offset = base_offset
        self.end = end


class RowBuilder:
    """Gathers batches of one partition, in order, until somebody takes their rows."""

    def __init__(self, *, partition: int, decompressed_bytes_max: int) -> None:
        self._partition = partition
        self._decompressed_bytes_max = decompressed_bytes_max
        self._numbers: list[_Numbers] = []
        self._sections: list[memoryview] = []
        self.size_bytes = 0
        """The decompressed records that are held."""

    def add(self, base_offset: int, batch: memoryview) -> None:
        """Hold the records of one batch, whose CRC the caller has checked.

        Raises for what cannot be decompressed; whether the records are any is seen in `take`.
        """
        header = parse_header(batch)
        numbers = (
            base_offset,
            base_offset + header.last_offset_delta + 1,
            header.record_count,
            header.attributes,
            header.base_timestamp_ms,
            header.max_timestamp_ms,
        )
        self._add(numbers, batch[HEADER_BYTES:])

    def add_batches(self, data: memoryview, batches: FetchedBatches, *, bytes_max: int) -> int:
        """The same for these batches of `data`, until so much is held; returns how many it took."""
        columns = batches.table[:8].tolist()
        for taken, (start, end, *numbers) in enumerate(zip(*columns, strict=True), 1):
            self._add(tuple(numbers), data[start + HEADER_BYTES : end])
            if self.size_bytes >= bytes_max:
                return taken
        return len(batches)

    def _add(self, numbers: _Numbers, section: memoryview) -> None:
        codec = numbers[3] & CODEC_MASK
        if codec != Codec.NONE:
            try:
                section = _decompressed(codec, section, self._decompressed_bytes_max)
            except BatchError as error:
                raise UnreadableBatchError(numbers[0], numbers[1], error) from error
        if numbers[2] or section:
            self._numbers.append(numbers)
            self._sections.append(section)
            self.size_bytes += len(section)

    def take(self) -> "pa.Table":
        """The rows of everything that is held; the builder is empty then.

        Where the records of a batch cannot be read it raises and holds that batch no more: another
        call gives the rows of the others.
        """
        if not self._numbers:
            return table_schema(views=True).empty_table()
        sections = np.zeros((TABLE_ROWS, len(self._numbers)), np.int64)
        sections[1] = np.cumsum([len(section) for section in self._sections])
        sections[0, 1:] = sections[1, :-1]
        sections[2:8] = np.array(self._numbers, np.int64).T
        data = memoryview(b"".join(self._sections))
        try:
            rows = _rising(decode_sections(data, sections, int(sections[2, 0])), sections)
        except MalformedRecordsError as error:
            base_offset, end, *_ = self._numbers.pop(error.number)
            self.size_bytes -= len(self._sections.pop(error.number))
            raise UnreadableBatchError(base_offset, end, error) from error
        self._numbers, self._sections, self.size_bytes = [], [], 0
        attributes = np.repeat(sections[5].astype(np.int32), sections[4])
        return _table(self._partition, rows, attributes)


def rows_from_batches(
    batches: Sequence[tuple[int, memoryview]], *, partition: int, decompressed_bytes_max: int
) -> "pa.Table":
    """The rows of these batches, each given with its base offset; keys and values are views."""
    builder = RowBuilder(partition=partition, decompressed_bytes_max=decompressed_bytes_max)
    for base_offset, batch in batches:
        builder.add(base_offset, batch)
    return builder.take()


def _decompressed(codec: int, section: memoryview, bytes_max: int) -> memoryview:
    if codec > Codec.ZSTD:
        raise MalformedBatchError(f"unknown compression {codec}")
    return decompress(Codec(codec), section, bytes_max)


def _rising(rows: FetchedRows, sections: "Longs") -> FetchedRows:
    """These rows, if their offsets rise: those of a row that does not name its batch."""
    falls = rows.offsets[1:] <= rows.offsets[:-1]
    if falls.any():
        ends = np.cumsum(sections[4])
        number = np.searchsorted(ends, falls.argmax() + 1, side="right")
        raise MalformedRecordsError(sections, int(number))
    return rows


def _table(partition: int, rows: FetchedRows, attributes: "Ints") -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    count = len(rows)
    stamps_ms = rows.timestamps_ms
    headers, misfit = _header_column(rows)
    raw = (stamps_ms < TIMESTAMP_MS_MIN) | (stamps_ms > TIMESTAMP_MS_MAX) | misfit
    arrays = [
        pa.array(np.full(count, partition, np.int32)),
        pa.array(rows.offsets),
        pa.array(_microseconds(stamps_ms)).view(pa.timestamp("us", tz="UTC")),
        view_array(rows.key_views, rows.key_nulls, rows.data),
        view_array(rows.value_views, rows.value_nulls, rows.data),
        headers,
        pa.nulls(count, pa.int64()),
        pa.nulls(count, pa.int32()),
        pa.nulls(count, pa.int32()),
        pa.array(attributes),
        pa.nulls(count, pa.int32()),
        _raw_column(rows, raw) if raw.any() else pa.nulls(count, pa.binary()),
    ]
    return pa.Table.from_arrays(arrays, schema=table_schema(views=True))


def _microseconds(timestamps_ms: "Longs") -> "Longs":
    clamped = np.clip(timestamps_ms, TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX) * 1000
    clamped[timestamps_ms < TIMESTAMP_MS_MIN] = TIMESTAMP_US_MIN
    clamped[timestamps_ms > TIMESTAMP_MS_MAX] = TIMESTAMP_US_MAX
    return clamped


def _header_column(rows: FetchedRows) -> "tuple[pa.Array, Flags]":
    """The headers, and which records have one whose key is not UTF-8."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    kind = table_schema().field("headers").type
    misfit = np.zeros(len(rows), np.bool_)
    if rows.header_starts is None:
        none = pa.array(np.zeros(len(rows) + 1, np.int32))
        return pa.ListArray.from_arrays(none, pa.array([], kind.value_type), type=kind), misfit
    edges, places = rows.header_places()
    texts, bad = text_column(copied_column(rows.data, places[0], places[1]))
    if bad is not None:
        misfit[np.searchsorted(edges[1:], np.flatnonzero(bad), side="right")] = True
    values = copied_column(rows.data, places[2], places[3])
    entries = pa.StructArray.from_arrays([texts, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(edges), entries, type=kind), misfit


def _raw_column(rows: FetchedRows, chosen: "Flags") -> "pa.Array":
    """Timestamp and headers' bytes of the chosen records, null for the others."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    picked = np.flatnonzero(chosen)
    starts, ends = _header_bytes(rows, picked)
    stamps = rows.timestamps_ms[picked].astype(">i8").tobytes()
    pieces: list[bytes | memoryview] = []
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        pieces += (stamps[number * 8 : number * 8 + 8], rows.data[start:end])
    lengths = np.zeros(len(rows), np.int64)
    lengths[picked] = RAW_TIMESTAMP_BYTES + ends - starts
    edges = np.append(0, np.cumsum(lengths))
    valid = np.packbits(chosen, bitorder="little")
    parts = [pa.py_buffer(valid), pa.py_buffer(edges), pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), parts).cast(pa.binary())


def _header_bytes(rows: FetchedRows, picked: "Longs") -> "tuple[Longs, Longs]":
    """Where the headers of these records lie, all of a record's as one range."""
    starts = np.zeros(len(picked), np.int64)
    ends = np.zeros(len(picked), np.int64)
    edges, places = rows.header_places(picked)
    some = edges[1:] > edges[:-1]
    last = edges[1:][some] - 1
    if rows.header_starts is None or not len(last):
        return starts, ends
    starts[some] = rows.header_starts[picked[some]]
    ends[some] = places[3, last]
    # A null value ends with the number -1 behind its key, in as many bytes as its sender liked.
    null = places[3, last] < 0
    for row, position in zip(
        np.flatnonzero(some)[null].tolist(), places[1, last[null]].tolist(), strict=True
    ):
        tail = rows.data[position : position + _VARINT_BYTES_MAX]
        ends[row] = position + next(at for at, byte in enumerate(tail) if byte < 128) + 1
    return starts, ends
