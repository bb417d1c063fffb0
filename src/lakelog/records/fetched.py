"""From many batches to columns, as a Fetch answer or a WAL object holds them: no object per record,
little work per batch.

Keys and values become Arrow's binary views, whose long ones point into one buffer. That buffer is
the caller's only if it gives the memory away (`own`): else it is a copy, because an answer holds
many partitions, and one that is read slowly must not keep the bytes of all of them.

Of an answer the batches of markers are left out. Records may have gaps, as compaction leaves them,
but an offset outside its batch is refused: whoever commits what it has read would lose records by
it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.records import kernels
from lakelog.records.codecs import Codec, OutputTooLargeError, decompress
from lakelog.records.columns import (
    PLACES,
    RECORD_BYTES_MIN,
    VIEW_WORDS,
    copied_column,
    fill_columns_in_python,
    fill_headers,
    fill_views_in_numpy,
    text_column,
)
from lakelog.records.fetched_batches import FetchedBatches
from lakelog.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MalformedBatchError,
)
from lakelog.records.kernels import DONE

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.records.kernels import Columns, Flags, Ints, Longs

DATA_BYTES_MAX: Final = (1 << 31) - 1
"""A view's place is a signed 32-bit number."""


class MalformedRecordsError(MalformedBatchError):
    """Records of one batch are not what its header says; the others may be right."""

    def __init__(self, table: "Longs", number: int) -> None:
        super().__init__(f"the records of the batch at offset {table[2, number]}")
        self.number = number
        """Which batch of the table it is."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FetchedRows:
    """Records of one partition in order of their offsets, as columns."""

    offsets: "Longs"
    timestamps_ms: "Longs"
    key_views: "Ints"
    """Four words a row, an Arrow binary view into buffer 0, which is `data`; null is all zero."""
    value_views: "Ints"
    key_nulls: "Flags | None"
    """True where the key is null; None if no key is."""
    value_nulls: "Flags | None"
    data: memoryview
    """Read-only: what the views and the headers' starts point into."""
    header_starts: "Ints | None"
    """Where the first header of each row lies, 0 if it has none; None if no row has one."""
    header_counts: "Ints | None"

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """All memory that these rows keep."""
        arrays = (
            self.offsets,
            self.timestamps_ms,
            self.key_views,
            self.value_views,
            self.key_nulls,
            self.value_nulls,
            self.header_starts,
            self.header_counts,
        )
        return len(self.data) + sum(array.nbytes for array in arrays if array is not None)

    def header_lists(self, rows: "Ints | Longs | None" = None) -> "pa.ListArray":
        """The headers of these rows, or of all, in order: a list of key and value for each row.

        A key that is not UTF-8 has replacement characters where it is not.
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        edges, places = self.header_places(rows)
        keys, _ = text_column(copied_column(self.data, places[0], places[1]))
        values = copied_column(self.data, places[2], places[3])
        fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
        entries = pa.StructArray.from_arrays([keys, values], fields=fields)
        return pa.ListArray.from_arrays(pa.array(edges), entries)

    def header_places(self, rows: "Ints | Longs | None" = None) -> "tuple[Ints, Ints]":
        """Which headers are those of each of these rows, or of all, and where the headers lie.

        The first has one number more than there are rows; the second has four rows, the start and
        the end of the keys and of the values.
        """
        count = len(self) if rows is None else len(rows)
        edges = np.zeros(count + 1, np.int32)
        places = np.zeros((PLACES, count), np.int32)
        if self.header_starts is not None and self.header_counts is not None:
            places[5] = self.header_starts if rows is None else self.header_starts[rows]
            places[6] = self.header_counts if rows is None else self.header_counts[rows]
            np.cumsum(places[6], out=edges[1:])
        found = np.empty((4, int(edges[-1])), np.int32)
        fill_headers(self.data, places, found)
        return edges, found


def decode_fetched(
    records: memoryview,
    batches: FetchedBatches,
    *,
    from_offset: int,
    skipped: "Flags | None" = None,
    decompressed_bytes_max: int = DATA_BYTES_MAX,
    own: bool = False,
) -> FetchedRows:
    """The records from `from_offset` on of all batches that are not `skipped`, CRCs unchecked.

    `batches` are those of `records`, or a part of them. Where any is compressed, the records of all
    are at most `decompressed_bytes_max`; beyond that it raises, and the caller takes fewer batches
    (`FetchedBatches.part`). With `own`, uncompressed records are not copied.
    """
    kept = batches.next_offsets > from_offset
    kept &= ~batches.are_control
    kept &= batches.record_counts != 0
    if skipped is not None:
        kept &= ~skipped
    table = np.compress(kept, batches.table, axis=1)
    data = _lay_out(records, table, min(decompressed_bytes_max, DATA_BYTES_MAX), own=own)
    return decode_sections(data, table, from_offset)


def _lay_out(records: memoryview, table: "Longs", bytes_max: int, *, own: bool) -> memoryview:
    """One buffer with the records of all batches; starts and ends become places in it."""
    if table.shape[1] == 0:
        return memoryview(b"")
    table[0] += HEADER_BYTES
    codecs = (table[5] & CODEC_MASK).tolist()
    if max(codecs) > Codec.ZSTD:
        raise MalformedBatchError(f"unknown compression {max(codecs)}")
    if any(codecs):
        return _decompress(records, table, [Codec(codec) for codec in codecs], bytes_max)
    first, end = int(table[0, 0]), int(table[1, -1])
    if end - first > DATA_BYTES_MAX:
        raise OutputTooLargeError(f"more than {DATA_BYTES_MAX} bytes of records")
    table[:2] -= first
    section = records[first:end]
    # numpy copies without the GIL, and into huge pages where it is much.
    return section if own else np.frombuffer(section, np.uint8).copy().data


def _decompress(
    records: memoryview, table: "Longs", codecs: list[Codec], bytes_max: int
) -> memoryview:
    """As `_lay_out` where a batch is compressed; those that are not are copied as well."""
    parts = []
    total = 0
    for codec, start, end in zip(codecs, *table[:2].tolist(), strict=True):
        part = decompress(codec, records[start:end], bytes_max - total)
        total += len(part)
        if total > bytes_max:
            raise OutputTooLargeError(f"more than {bytes_max} bytes")
        parts.append(part)
    sizes = [len(part) for part in parts]
    table[1] = np.cumsum(sizes)
    table[0] = table[1] - sizes
    return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))


def decode_sections(data: memoryview, table: "Longs", from_offset: int) -> FetchedRows:
    """The records from `from_offset` on of the batches in a table, whose starts and ends are those
    of their records in `data`, without headers and compression.
    """
    wrong = (table[4] < 0) | (table[4] > (table[1] - table[0]) // RECORD_BYTES_MIN)
    if wrong.any():
        raise MalformedRecordsError(table, int(wrong.argmax()))
    data = data.toreadonly()
    count = int(table[4].sum())
    columns: Columns = (
        np.empty((2, count), np.int64),
        np.empty((2, count, VIEW_WORDS), np.int32),
        np.empty(count, np.bool_),
        np.empty(count, np.bool_),
        np.zeros((2, count), np.int32),  # the kernel writes it only where headers are
    )
    native = kernels.native
    fill = fill_in_python if native is None else native.fill_rows
    verdict, outcome = fill(data, table, from_offset, columns)
    if verdict != DONE:
        raise MalformedRecordsError(table, outcome)
    longs, views, key_nulls, value_nulls, headers = columns
    if outcome < count:
        # Copies: what lay before the first offset is not kept.
        longs, views = longs[:, :outcome].copy(), views[:, :outcome].copy()
        key_nulls, value_nulls = key_nulls[:outcome].copy(), value_nulls[:outcome].copy()
        headers = headers[:, :outcome].copy()
    has_headers = bool(headers[1].any())
    return FetchedRows(
        offsets=longs[0],
        timestamps_ms=longs[1],
        key_views=views[0],
        value_views=views[1],
        key_nulls=key_nulls if key_nulls.any() else None,
        value_nulls=value_nulls if value_nulls.any() else None,
        data=data,
        header_starts=headers[0] if has_headers else None,
        header_counts=headers[1] if has_headers else None,
    )


def fill_in_python(
    data: memoryview, table: "Longs", from_offset: int, columns: "Columns", /
) -> tuple[int, int]:
    """The kernel's twin; raises where the kernel returns a verdict."""
    array = np.frombuffer(data, np.uint8)
    longs, views, key_nulls, value_nulls, headers = columns
    row = 0
    for number, (start, end) in enumerate(table[:2].T.tolist()):
        base_offset, next_offset, count, attributes, base_ms, max_ms = table[2:8, number].tolist()
        times = np.empty(count, np.int64)
        places = np.empty((PLACES, count), np.int32)
        try:
            fill_columns_in_python(data[start:end], base_ms, times, places)
        except MalformedBatchError as error:
            raise MalformedRecordsError(table, number) from error
        if ((places[0] < 0) | (places[0] >= next_offset - base_offset)).any():
            raise MalformedRecordsError(table, number)
        if attributes & LOG_APPEND_TIME_BIT:
            times.fill(max_ms)
        offsets = base_offset + places[0].astype(np.int64)
        kept = offsets >= from_offset
        places = places[:, kept]
        places[1:6] += np.where(places[1:6] >= 0, np.int32(start), np.int32(0))
        rows = slice(row, row + places.shape[1])
        longs[0, rows], longs[1, rows] = offsets[kept], times[kept]
        views[:, rows] = 0
        fill_views_in_numpy(array, places[1], places[2], views[0, rows])
        fill_views_in_numpy(array, places[3], places[4], views[1, rows])
        key_nulls[rows], value_nulls[rows] = places[1] < 0, places[3] < 0
        headers[0, rows], headers[1, rows] = np.where(places[6] > 0, places[5], 0), places[6]
        row = rows.stop
    return DONE, row
