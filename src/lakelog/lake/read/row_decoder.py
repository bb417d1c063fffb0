"""From rows as data files have them to rows as a read has them, column by column.

Only what is wanted is made. Timestamps are exact, also those that the columns of a table cannot
hold, as far as 64 bits of microseconds go; a record without headers has null there; keys and values
are binary and not views, because Spark compares types exactly.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.lake.read.read_request import HEADERS, arrow_schema
from lakelog.model.failures import Corrupt
from lakelog.records.header import LOG_APPEND_TIME_BIT, MalformedBatchError
from lakelog.records.table_batches import exact_timestamps_ms

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES_MIN: Final = 4 << 20
BATCH_BYTES_MAX: Final = 16 << 20
"""Batches between these sizes cross to a JVM fastest."""

_SOURCES: Final = {
    "key": ("key",),
    "value": ("value",),
    "topic": (),
    "partition": (),
    "offset": ("offset",),
    "timestamp": ("timestamp", "raw"),
    "timestampType": ("attributes",),
    HEADERS: (HEADERS,),
}
"""The columns of a data file that each column of a read is made of."""

MS_MIN: Final = -(1 << 63) // 1000 + 1
MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The milliseconds that 64 bits of microseconds hold."""


class RowMaker:
    """Makes the wanted columns of one partition's rows."""

    def __init__(self, columns: Sequence[str], *, topic: str, partition: int) -> None:
        self.columns = tuple(columns)
        self.schema = arrow_schema(columns)
        self._topic = topic
        self._partition = partition

    def sources(self) -> tuple[str, ...]:
        """What has to be read of a data file; offsets always, to check and to cut by."""
        named = [source for column in self.columns for source in _SOURCES[column]]
        return tuple(dict.fromkeys(("offset", *named)))

    def made(self, rows: "pa.Table", *, start: int, end: int) -> "Iterator[pa.RecordBatch]":
        """The rows with offsets in [start, end), in batches that are not too large."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        offsets = rows["offset"].to_numpy()
        first, stop = np.searchsorted(offsets, (start, end)).tolist()
        if first == stop:
            return
        rows = rows.slice(first, stop - first)
        arrays = [self._column(name, rows) for name in self.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        yield from cut(batch)

    def _column(self, name: str, rows: "pa.Table") -> "pa.Array":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        count = rows.num_rows
        match name:
            case "key" | "value":
                column = _one(rows[name]).cast(pa.binary())
            case "offset":
                column = _one(rows[name])
            case "topic":
                column = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            case "partition":
                column = pa.array(np.full(count, self._partition, np.int32))
            case "timestamp":
                column = _timestamps(rows)
            case "timestampType":
                marks = rows["attributes"].to_numpy() & LOG_APPEND_TIME_BIT
                column = pa.array((marks != 0).astype(np.int32))
            case _:
                column = _headers(_one(rows[HEADERS]), self.schema.field(HEADERS).type)
        return column


def cut(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """The batch in parts of about equal numbers of rows, if it is too large for one."""
    parts = min(ceil(batch.nbytes / BATCH_BYTES_MAX), batch.num_rows)
    if parts <= 1:
        yield batch
        return
    step = ceil(batch.num_rows / parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


class SmallBatches:
    """Batches that are too small, until together they are large enough."""

    def __init__(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """Take one; returns what is large enough now."""
        self._held.append(batch)
        self._bytes += batch.nbytes
        return self.take() if self._bytes >= BATCH_BYTES_MIN else None

    def take(self) -> "pa.RecordBatch | None":
        """What is held, as one batch; None when there is nothing."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        held, self._held, self._bytes = self._held, [], 0
        if len(held) <= 1:
            return held[0] if held else None
        return pa.concat_batches(held)


def _one(column: "pa.ChunkedArray") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _timestamps(rows: "pa.Table") -> "pa.Array":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    kind = pa.timestamp("us", tz="UTC")
    if rows["raw"].null_count == rows.num_rows:
        return _one(rows["timestamp"]).cast(kind)
    try:
        stamps_ms = exact_timestamps_ms(rows)
    except MalformedBatchError as error:
        raise Corrupt(str(error)) from error
    return pa.array(np.clip(stamps_ms, MS_MIN, MS_MAX) * 1000).view(kind)


def _headers(lists: "pa.ListArray", kind: "pa.DataType") -> "pa.Array":
    """The lists in the types of a read, null for those that are empty."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    edges = lists.offsets.to_numpy()
    empty = edges[1:] == edges[:-1]
    if empty.all():
        return pa.nulls(len(lists), kind)
    fields = list(kind.value_type)
    values = lists.values
    columns = [values.field(field.name).cast(field.type) for field in fields]
    entries = pa.StructArray.from_arrays(columns, fields=fields)
    own = pa.array(edges.copy(), pa.int32())
    return pa.ListArray.from_arrays(own, entries, type=kind, mask=pa.array(empty))
