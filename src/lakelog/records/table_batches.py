"""Rows of a table become record batches again, as a fetch answers them.

The batches tile the offsets asked for: each begins where the one before ended and reaches over the
gap behind its last record, so that every client advances, also over offsets that no row holds; a
range without rows is an empty batch. A batch holds rows of one compression and one kind of
timestamp, is at most as large as told or holds exactly one record, and is compressed as its rows
were sent. Nothing of a producer comes back: numbers of a sequence mean nothing to a reader.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records.build import (
    NUMBERS,
    BatchOptions,
    RecordBlock,
    build_batch,
    build_from_block,
    plan_batches,
)
from lakelog.records.codecs import Codec
from lakelog.records.columns import parse_record_headers
from lakelog.records.header import CODEC_MASK, LOG_APPEND_TIME_BIT, MalformedBatchError
from lakelog.records.table_schema import RAW_TIMESTAMP_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Bytes, Longs

SPAN_MAX: Final = 1 << 29
"""Offsets that the rows of one batch span, and the gap before or behind them, at the most: all of
them together stay within the 32 bits of a delta."""


def batches_from_rows(
    rows: "pa.Table", *, start: int, end: int, batch_bytes_max: int, codec: Codec | None = None
) -> list[bytes]:
    """Batches that tile the offsets [start, end), of the rows that lie there.

    The rows' offsets rise. Without a codec every batch is compressed as its rows were sent.
    """
    assert start < end, (start, end)
    offsets = rows["offset"].to_numpy()
    first, after = np.searchsorted(offsets, (start, end)).tolist()
    rows, offsets = rows.slice(first, after - first), offsets[first:after]
    if not len(offsets):
        return list(empty_batches(start, end))
    block = block_from_rows(rows)
    attributes = rows["attributes"].to_numpy()
    ranges = list(_ranges(block, offsets, attributes, batch_bytes_max))
    batches = list(empty_batches(start, int(offsets[0])) if offsets[0] - start >= SPAN_MAX else ())
    base = start if not batches else int(offsets[0])
    for number, (low, high) in enumerate(ranges):
        until = int(offsets[ranges[number + 1][0]]) if number + 1 < len(ranges) else end
        last = int(offsets[high - 1])
        reach = until if until - last < SPAN_MAX else last + 1
        options = BatchOptions(
            codec=Codec(int(attributes[low]) & CODEC_MASK) if codec is None else codec,
            base_offset=base,
            append_time_ms=_append_time_ms(block, attributes, low),
            last_offset_delta=reach - 1 - base,
        )
        part = _part(block, low, high)
        part.numbers[1] = offsets[low:high] - base
        batches.append(_bounded(part, options, batch_bytes_max))
        batches += empty_batches(reach, until)
        base = until
    return batches


def exact_timestamps_ms(rows: "pa.Table") -> "Longs":
    """The rows' timestamps as they were sent, also those that their column cannot hold."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    stamps = rows["timestamp"].cast(pa.int64()).to_numpy() // 1000
    if rows["raw"].null_count < rows.num_rows:
        data, starts, ends = _places(rows["raw"])
        chosen = np.flatnonzero(starts >= 0)
        if ((ends - starts)[chosen] < RAW_TIMESTAMP_BYTES).any():
            raise MalformedBatchError("a raw column is too short for its timestamp")
        wanted = starts[chosen, None] + np.arange(RAW_TIMESTAMP_BYTES)
        stamps[chosen] = data[wanted].view(">i8")[:, 0]
    exact: Longs = stamps
    return exact


def block_from_rows(rows: "pa.Table") -> RecordBlock:
    """The rows as packed columns, their bytes uncopied where Arrow lets them be."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    lists = pa.concat_arrays(rows["headers"].chunks)
    first = lists.offsets.to_numpy().astype(np.int64)
    entries = lists.values
    header_keys, key_starts, key_ends = _places(entries.field("key"))
    header_values, value_starts, value_ends = _places(entries.field("value"))
    headers = np.stack((key_starts, key_ends, value_starts, value_ends))
    numbers = np.zeros((NUMBERS, rows.num_rows), np.int64)
    numbers[0] = exact_timestamps_ms(rows)
    keys, numbers[2], numbers[3] = _places(rows["key"])
    values, numbers[4], numbers[5] = _places(rows["value"])
    numbers[6], numbers[7] = first[:-1], first[1:]
    block = RecordBlock(numbers, (keys, values, header_keys, header_values), headers)
    return block if rows["raw"].null_count == rows.num_rows else _with_raw(block, rows["raw"])


def _with_raw(block: RecordBlock, column: "pa.ChunkedArray") -> RecordBlock:
    """The block with the headers that `raw` holds in the place of those that text could not."""
    raw, starts, ends = _places(column)
    sent = ends - starts > RAW_TIMESTAMP_BYTES
    if not sent.any():
        return block
    key_parts, value_parts = bytearray(block.blobs[2]), bytearray(block.blobs[3])
    headers = block.headers.copy()
    for row in np.flatnonzero(sent).tolist():
        low, high = int(block.numbers[6, row]), int(block.numbers[7, row])
        data = raw[starts[row] : ends[row]].data
        for at, (key, value) in enumerate(
            parse_record_headers(data, RAW_TIMESTAMP_BYTES, high - low), start=low
        ):
            headers[:2, at] = len(key_parts), len(key_parts) + len(key)
            key_parts += key
            headers[2:, at] = -1
            if value is not None:
                headers[2:, at] = len(value_parts), len(value_parts) + len(value)
                value_parts += value
    blobs = (*block.blobs[:2], _read_only(key_parts), _read_only(value_parts))
    return replace(block, blobs=blobs, headers=headers)


def _ranges(
    block: RecordBlock, offsets: "Longs", attributes: "Longs", batch_bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Row ranges [low, high) that become one batch each."""
    kinds = attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT)
    stamps = np.where(kinds & LOG_APPEND_TIME_BIT, block.numbers[0], 0)
    spans = (offsets - offsets[0]) // SPAN_MAX
    changes = np.zeros(len(offsets) - 1, np.bool_)
    for column in (kinds, stamps, spans):
        changes |= column[1:] != column[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(offsets)]
    for low, high in pairwise(edges):
        for a, b in plan_batches(_part(block, low, high), batch_bytes_max):
            yield low + a, low + b


def _part(block: RecordBlock, low: int, high: int) -> RecordBlock:
    """Some rows of a block with their own headers, so that work grows with the part alone."""
    numbers = block.numbers[:, low:high].copy()
    first, after = int(numbers[6, 0]), int(numbers[7, -1])
    numbers[6:8] -= first
    headers = np.ascontiguousarray(block.headers[:, first:after])
    return RecordBlock(numbers, block.blobs, headers)


def _append_time_ms(block: RecordBlock, attributes: "Longs", row: int) -> int | None:
    return int(block.numbers[0, row]) if attributes[row] & LOG_APPEND_TIME_BIT else None


def _bounded(part: RecordBlock, options: BatchOptions, batch_bytes_max: int) -> bytes:
    """What does not shrink may grow when compressed: then it is better off as it is."""
    batch = build_from_block(part, options)
    if len(batch) <= batch_bytes_max or part.numbers.shape[1] == 1:
        return batch
    return build_from_block(part, replace(options, codec=Codec.NONE))


def empty_batches(start: int, end: int) -> Iterator[bytes]:
    """Empty batches over the offsets [start, end)."""
    while start < end:
        step = min(end - start, SPAN_MAX)
        yield build_batch((), BatchOptions(base_offset=start, last_offset_delta=step - 1))
        start += step


def _places(column: "pa.Array | pa.ChunkedArray") -> "tuple[Bytes, Longs, Longs]":
    """A binary or text column's bytes, starts and ends; -1 where it is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    if column.type != pa.large_binary():
        column = column.cast(pa.binary() if column.type == pa.string() else pa.large_binary())
        column = column.cast(pa.large_binary())
    _, offsets, data = column.buffers()
    count = len(column)
    if offsets is None or count == 0:
        nothing = np.zeros(0, np.int64)
        return _read_only(b""), nothing, nothing
    edges = np.frombuffer(offsets, np.int64)[column.offset : column.offset + count + 1]
    content = _read_only(b"" if data is None else data)
    if not column.null_count:
        return content, edges[:-1], edges[1:]
    null = column.is_null().to_numpy(zero_copy_only=False)
    return content, np.where(null, -1, edges[:-1]), np.where(null, -1, edges[1:])


def _read_only(data: "bytes | bytearray | pa.Buffer") -> "Bytes":
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array
