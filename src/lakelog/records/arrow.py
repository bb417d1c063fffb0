"""Arrow in, record batches out, and back.

Keys, values and header values are binary; so are header keys, because nothing makes a producer
write UTF-8. Headers are an ordered list that keeps duplicates and null values. pyarrow is the extra
`arrow`; it is imported by the first call.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records.build import NUMBERS, BatchOptions, RecordBlock, build_from_block, plan_batches
from lakelog.records.columns import decode_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lakelog.records.kernels import Bytes, Longs

_INLINE_BYTES: Final = 12
"""A binary view holds a value up to this length itself."""


def records_schema() -> "pa.Schema":
    """The columns of a table of records."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    header = pa.struct([pa.field("key", pa.binary(), nullable=False), ("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_ms", pa.int64(), nullable=False),
            ("key", pa.binary()),
            ("value", pa.binary()),
            pa.field("headers", pa.list_(header), nullable=False),
        ]
    )


def batches_from_table(
    table: "pa.Table", options: BatchOptions, *, batch_bytes_max: int
) -> list[bytes]:
    """Batches of at most `batch_bytes_max` uncompressed bytes, a single larger row excepted.

    The table has the columns of `records_schema` with offsets that rise; each batch's base offset
    is its first row's, and holes between rows stay holes.
    """
    block, offsets = _block_from_table(table)
    batches = []
    for start, end in plan_batches(block, batch_bytes_max):
        numbers = block.numbers[:, start:end].copy()
        base_offset = int(offsets[start])
        numbers[1] = offsets[start:end] - base_offset
        part = RecordBlock(numbers, block.blobs, block.headers)
        batches.append(build_from_block(part, replace(options, base_offset=base_offset)))
    return batches


def table_from_batches(
    batches: "Sequence[memoryview]", *, decompressed_bytes_max: int
) -> "pa.Table":
    """One table of the records of these batches, whose CRCs the caller has checked."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    schema = records_schema()
    tables = []
    for batch in batches:
        columns = decode_columns(batch, decompressed_bytes_max=decompressed_bytes_max)
        places = columns.places.astype(np.int64)
        headers = columns.header_places().astype(np.int64)
        ends = np.cumsum(places[6])
        arrays = [
            pa.array(columns.header.base_offset + places[0]),
            pa.array(columns.timestamps_ms),
            _binary(columns.data, places[1], places[2]),
            _binary(columns.data, places[3], places[4]),
            pa.ListArray.from_arrays(
                pa.array(np.concatenate((np.zeros(1, np.int64), ends)), pa.int32()),
                pa.StructArray.from_arrays(
                    [
                        _binary(columns.data, headers[0], headers[1]),
                        _binary(columns.data, headers[2], headers[3]),
                    ],
                    fields=list(schema.field("headers").type.value_type),
                ),
                type=schema.field("headers").type,
            ),
        ]
        tables.append(pa.Table.from_arrays(arrays, schema=schema))
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _binary(data: memoryview, starts: "Longs", ends: "Longs") -> "pa.Array":
    """A binary column of places in `data`, through Arrow's views: no object per value."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    source = np.frombuffer(data, np.uint8)
    lengths = ends - starts
    views = np.zeros((count, 16), np.uint8)
    words = views.view(np.int32)
    words[:, 0] = lengths
    short = lengths <= _INLINE_BYTES
    for rows, width in ((short, _INLINE_BYTES), (~short, 4)):
        steps = np.arange(width)
        inside = steps < lengths[rows, None]
        wanted = np.where(inside, starts[rows, None] + steps, 0)
        views[rows, 4 : 4 + width] = np.where(inside, source[wanted], 0)
    words[~short, 3] = starts[~short]
    valid = np.packbits(starts >= 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), count, buffers).cast(pa.binary())


def _block_from_table(table: "pa.Table") -> "tuple[RecordBlock, Longs]":
    """The table's columns as one block, its buffers uncopied where Arrow lets them be."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    lists = pa.concat_arrays(table["headers"].chunks or [pa.array([], table["headers"].type)])
    first = lists.offsets.to_numpy().astype(np.int64)
    entries = lists.values
    key_data, key_starts, key_ends = _places(entries.field("key"))
    value_data, value_starts, value_ends = _places(entries.field("value"))
    headers = np.stack((key_starts, key_ends, value_starts, value_ends))
    numbers = np.zeros((NUMBERS, table.num_rows), np.int64)
    numbers[0] = table["timestamp_ms"].to_numpy()
    keys, numbers[2], numbers[3] = _places(table["key"])
    values, numbers[4], numbers[5] = _places(table["value"])
    numbers[6], numbers[7] = first[:-1], first[1:]
    offsets = table["offset"].to_numpy()
    return RecordBlock(numbers, (keys, values, key_data, value_data), headers), offsets


def _places(column: "pa.Array | pa.ChunkedArray") -> "tuple[Bytes, Longs, Longs]":
    """A binary column's bytes, starts and ends; -1 where it is null."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    large = column.cast(pa.large_binary())
    if isinstance(large, pa.ChunkedArray):
        large = pa.concat_arrays(large.chunks or [pa.array([], pa.large_binary())])
    _, offsets, data = large.buffers()
    count = len(large)
    if offsets is None or count == 0:
        nothing = np.zeros(0, np.int64)
        return _read_only(b""), nothing, nothing
    edges = np.frombuffer(offsets, np.int64)[large.offset : large.offset + count + 1]
    null = large.is_null().to_numpy(zero_copy_only=False)
    starts, ends = np.where(null, -1, edges[:-1]), np.where(null, -1, edges[1:])
    return _read_only(b"" if data is None else data), starts, ends


def _read_only(data: "bytes | pa.Buffer") -> "Bytes":
    array = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array
