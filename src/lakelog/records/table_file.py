"""Data files of a table: rows into Parquet and back, by row groups. Bytes only, no store.

Files are written so that every reader of Iceberg tables reads them: plain or dictionary encodings,
data pages of version 1, no Arrow schema, an id on every field, zstd. A row group is the unit of a
fetch, so it is cut by its uncompressed bytes, and what a fetch reads is checked (`table_bytes`).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from lakelog.model.failures import Corrupt
from lakelog.records.kernels import crc32c
from lakelog.records.table_batches import exact_timestamps_ms
from lakelog.records.table_bytes import CheckedSink, Window, checked_footer
from lakelog.records.table_rows import row_bytes
from lakelog.records.table_schema import (
    FIELD_IDS,
    MEASURED,
    ColumnFacts,
    RowGroup,
    TableFileFacts,
    TableFileOrigin,
    table_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_BYTES: Final = 12 << 20
"""About so many uncompressed bytes a row group: 8 to 16 MiB neither slow a scan nor a fetch."""

FETCHED: Final = ("offset", "timestamp", "key", "value", "headers", "attributes", "raw")
"""The columns that a fetch needs."""

_KEYS: Final = ("stream", "topic-id", "partition", "task", "start", "end", "batch-bytes-max")
_CRCS: Final = "lakelog.row-group-crcs"
_ZSTD_LEVEL: Final = 1
_BUFFER_BYTES: Final = 1 << 20


class TableFileWriter:
    """Writes the rows of one file, in order of offsets, to a sink that the caller owns."""

    def __init__(
        self,
        sink: BinaryIO,
        origin: TableFileOrigin,
        *,
        row_group_bytes: int = ROW_GROUP_BYTES,
        field_ids: Mapping[str, int] = FIELD_IDS,
    ) -> None:
        self._sink = CheckedSink(sink)
        self._crcs: list[int] = []
        self._origin = origin
        self._row_group_bytes = row_group_bytes
        self._field_ids = field_ids
        self._footers: list[pq.FileMetaData] = []
        self._writer = self._open()
        self._stream.flush()
        self._sink.take_crc()  # of the magic number that every file begins with
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._row_count = 0
        self._least_ms = self._greatest_ms = -1

    def _open(self) -> "pq.ParquetWriter":
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        self._schema = table_schema(self._field_ids, views=True)
        # A row group comes in a hundred small pieces: gathered, they cost one call of ours.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._sink, "w"), _BUFFER_BYTES)
        return pq.ParquetWriter(
            self._stream,
            self._schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=["partition", "attributes"],
            write_statistics=list(MEASURED),
            data_page_version="1.0",
            store_schema=False,
            write_page_index=True,
            sorting_columns=[pq.SortingColumn(self._schema.get_field_index("offset"))],
            metadata_collector=self._footers,
        )

    def write(self, rows: "pa.Table") -> None:
        """Take rows that follow those taken before; whole row groups go to the sink."""
        if not rows.num_rows:
            return
        stamps = exact_timestamps_ms(rows)
        least_ms, greatest_ms = int(stamps.min()), int(stamps.max())
        first = not self._row_count
        self._least_ms = least_ms if first else min(self._least_ms, least_ms)
        self._greatest_ms = greatest_ms if first else max(self._greatest_ms, greatest_ms)
        self._row_count += rows.num_rows
        ends = np.cumsum(row_bytes(rows))
        done = 0
        while done < rows.num_rows:
            before = int(ends[done - 1]) if done else 0
            room = self._row_group_bytes - self._held_bytes + before
            cut = int(np.searchsorted(ends, room, side="left")) + 1
            if cut > rows.num_rows:
                self._hold(rows.slice(done), int(ends[-1]) - before)
                return
            self._hold(rows.slice(done, cut - done), int(ends[cut - 1]) - before)
            self._flush()
            done = cut

    def close(self) -> TableFileFacts:
        """Write what is held and the footer; the file is complete then."""
        self._flush()
        origin = self._origin
        values = (
            origin.stream,
            origin.topic_id.hex(),
            origin.partition,
            origin.task,
            origin.start,
            origin.end,
            origin.batch_bytes_max,
        )
        names = (f"lakelog.{key}" for key in _KEYS)
        pairs = {name: str(value) for name, value in zip(names, values, strict=True)}
        crcs = ",".join(f"{crc:08x}" for crc in self._crcs)
        self._writer.add_key_value_metadata({**pairs, _CRCS: crcs})
        self._sink.hold()
        self._writer.close()
        self._stream.flush()
        size_bytes = self._sink.finish()
        (footer,) = self._footers
        return TableFileFacts(
            origin,
            size_bytes,
            self._row_count,
            self._least_ms,
            self._greatest_ms,
            _row_groups(footer, start=origin.start, end=origin.end),
            _columns(footer, self._field_ids),
        )

    def abandon(self) -> None:
        """Write no more; what the sink holds is no file. Another thread may be writing now."""
        self._sink.discard()

    def _hold(self, rows: "pa.Table", size_bytes: int) -> None:
        self._held.append(rows)
        self._held_bytes += size_bytes

    def _flush(self) -> None:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

        if not self._held:
            return
        rows = pa.concat_tables(self._held)
        # The ids are in the fields' metadata, which rows of another origin lack.
        rows = pa.Table.from_arrays(rows.columns, schema=self._schema)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._stream.flush()
        self._crcs.append(self._sink.take_crc())
        self._held, self._held_bytes = [], 0


class TableFile:
    """A file that is read by row groups, of which only the footer is in memory."""

    def __init__(self, footer: "pq.FileMetaData", size_bytes: int) -> None:
        self._footer = footer
        self._size_bytes = size_bytes
        self.origin = _origin(footer)
        self.row_groups = _row_groups(footer, start=self.origin.start, end=self.origin.end)
        self._crcs = footer.metadata[_CRCS.encode()].split(b",")

    @classmethod
    def open(cls, end: memoryview, *, size_bytes: int) -> "TableFile":
        """The file of that size whose last bytes these are, at least `footer_bytes` of them."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        try:
            return cls(pq.read_metadata(pa.BufferReader(checked_footer(end))), size_bytes)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise Corrupt(f"the footer of a data file is damaged: {error}") from error

    def read(
        self, number: int, data: memoryview, *, columns: Sequence[str] = FETCHED
    ) -> "pa.Table":
        """The rows of a row group, from exactly its bytes."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above

        group = self.row_groups[number]
        if len(data) != group.byte_end - group.byte_start or crc32c(data) != self._crc(number):
            raise Corrupt(f"the CRC-32C of row group {number} of a data file does not match")
        try:
            file = pq.ParquetFile(
                Window(group.byte_start, data, self._size_bytes),
                metadata=self._footer,
                binary_type=pa.large_binary(),
            )
            rows = file.read_row_group(number, columns=list(columns), use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Corrupt(f"row group {number} of a data file is damaged: {error}") from error
        _check(rows, group)
        return rows

    def _crc(self, number: int) -> int:
        return int(self._crcs[number], 16)


def _check(rows: "pa.Table", group: RowGroup) -> None:
    offsets = rows["offset"].to_numpy()
    fits = len(offsets) == group.row_count and bool((offsets[1:] > offsets[:-1]).all())
    if not fits or offsets[0] != group.first_offset or offsets[-1] >= group.end:
        raise Corrupt("a row group does not hold the rows that its footer names")


def _origin(footer: "pq.FileMetaData") -> TableFileOrigin:
    found = footer.metadata or {}
    values = {key: found[f"lakelog.{key}".encode()].decode() for key in _KEYS}
    return TableFileOrigin(
        stream=int(values["stream"]),
        topic_id=bytes.fromhex(values["topic-id"]),
        partition=int(values["partition"]),
        task=values["task"],
        start=int(values["start"]),
        end=int(values["end"]),
        batch_bytes_max=int(values["batch-bytes-max"]),
    )


def _row_groups(footer: "pq.FileMetaData", *, start: int, end: int) -> tuple[RowGroup, ...]:
    names = [footer.schema.column(at).path for at in range(footer.num_columns)]
    offset_at, timestamp_at = names.index("offset"), names.index("timestamp")
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    firsts = []
    for group in groups:
        statistics = group.column(offset_at).statistics
        if statistics is None or not statistics.has_min_max:
            raise ValueError("a row group has no statistics of its offsets")
        firsts.append(int(statistics.min_raw))
    edges = [start, *firsts[1:], end]
    if firsts[:1] < [start][: len(firsts)] or any(low >= high for low, high in pairwise(edges)):
        raise ValueError("the row groups are not in order")
    made = []
    for number, group in enumerate(groups):
        columns = [group.column(at) for at in range(group.num_columns)]
        byte_start = min(_first_byte(column) for column in columns)
        byte_end = max(_first_byte(one) + one.total_compressed_size for one in columns)
        stamp_us = int(columns[timestamp_at].statistics.max_raw)
        made.append(
            RowGroup(
                edges[number],
                edges[number + 1],
                byte_start,
                byte_end,
                group.num_rows,
                firsts[number],
                stamp_us,
            )
        )
    return tuple(made)


def _first_byte(column: "pq.ColumnChunkMetaData") -> int:
    pages = [column.data_page_offset]
    if column.has_dictionary_page:
        pages.append(column.dictionary_page_offset)
    return int(min(pages))


def _columns(footer: "pq.FileMetaData", field_ids: Mapping[str, int]) -> tuple[ColumnFacts, ...]:
    """The leaf columns over all row groups."""
    made = []
    for at in range(footer.num_columns):
        path = footer.schema.column(at).path.replace(".list.", ".")
        chunks = [footer.row_group(group).column(at) for group in range(footer.num_row_groups)]
        bounds = [chunk.statistics for chunk in chunks] if path in MEASURED else []
        made.append(
            ColumnFacts(
                path,
                field_ids[path],
                sum(chunk.total_compressed_size for chunk in chunks),
                sum(chunk.num_values for chunk in chunks),
                sum(one.null_count for one in bounds) if path in MEASURED else None,
                min((int(one.min_raw) for one in bounds), default=None),
                max((int(one.max_raw) for one in bounds), default=None),
            )
        )
    return tuple(made)
