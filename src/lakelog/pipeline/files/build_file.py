"""The workers: build the file of a task, a data file or a segment, from its inputs.

A worker never raises for its input: what is missing, damaged or unreadable becomes an answer that
names the object and the offsets, so that the tasks beside it go on. Its memory is bounded by slices
of a few MiB and a row group, not by the stream.

- WAL objects to a data file: the rows of the range. A batch that cannot be read ends the task.
- WAL objects to a segment: every batch as it was accepted, whether or not its records can be read,
  for topics without a table and for what cannot be rows. Nothing is decompressed.
- Segments to a data file: the rows of the range for the table alone, without the batches that
  cannot be read. The log keeps the segments (`lakelog.pipeline.planning.backfill` says why).
- Data files to one: all their rows or those that are kept. Rows go over row group by row group and
  keep their offsets and everything else; the new file's row groups are cut anew. Where some rows
  are kept, each of them must be found: a file that lacks one is not what was looked at when the
  rows were chosen.
"""

from abc import ABC, abstractmethod
from bisect import insort
from concurrent.futures import Executor
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn, TypeAlias, assert_never

import numpy as np

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileTask,
    SegmentInputs,
    TableInputs,
    WalInputs,
    are_kept,
    unpack_offsets,
)
from lakelog.pipeline.files.inputs import (
    InputError,
    RowGroupData,
    StreamIdentity,
    feed_groups,
    feed_segments,
    feed_wal,
    piece_key,
    run_in,
)
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.fetched_batches import FetchedBatches
from lakelog.records.header import parse_header
from lakelog.records.segment_file import SegmentFacts, SegmentWriter
from lakelog.records.table_file import TableFileWriter
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError
from lakelog.records.table_schema import FIELD_IDS, TableFileFacts, TableFileOrigin, table_schema
from lakelog.streams.objects import FileKind

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_BYTES: Final = 4 << 20
"""Decompressed bytes that become rows at once: what fits the processor's cache is faster."""

LeftOut: TypeAlias = tuple[tuple[int, int], ...]
"""The offsets [start, end) of batches that a data file lacks, because they cannot be read."""


async def build_file(
    objects: ObjectStore, task: FileTask, file: BinaryIO, pool: Executor | None
) -> tuple[TableFileFacts | SegmentFacts, LeftOut]:
    """Write the task's file, and say what is known of it and what it lacks; `InputError` if not.

    With a pool the loop stays free, and the next bytes are read while these are worked on.
    """
    if task.output is FileKind.SEGMENT:
        return await _build_segment(objects, task, file, pool), ()
    writer = _table_writer(task, file)
    try:
        return await _build_parquet(objects, task, writer, pool)
    except BaseException:
        writer.abandon()
        raise


async def _build_segment(
    objects: ObjectStore, task: FileTask, file: BinaryIO, pool: Executor | None
) -> SegmentFacts:
    assert isinstance(task.inputs, WalInputs), task.task_id
    batches = _SegmentBatches(task, file)
    await feed_wal(objects, task.inputs, batches.add, pool=pool)
    return await run_in(pool, batches.close)


async def _build_parquet(
    objects: ObjectStore, task: FileTask, writer: TableFileWriter, pool: Executor | None
) -> tuple[TableFileFacts, LeftOut]:
    match task.inputs:
        case WalInputs() as wal:
            wal_rows = _WalRows(task, wal, writer)
            await feed_wal(objects, wal, wal_rows.add, pool=pool)
            return await run_in(pool, wal_rows.close), ()
        case SegmentInputs() as segments:
            segment_rows = _SegmentRows(task, writer)
            await feed_segments(objects, segments.pieces, segment_rows.add, pool=pool)
            return await run_in(pool, segment_rows.close), tuple(segment_rows.left_out)
        case TableInputs() as files:
            file_rows = _FileRows(task, files, writer)
            source = StreamIdentity(task.stream, task.topic_id, task.partition)
            await feed_groups(objects, source, files.pieces, file_rows.add, pool=pool)
            return await run_in(pool, file_rows.close), ()
        case _:
            assert_never(task.inputs)


class _SegmentBatches:
    """The part that computes: batches to a segment. One thread at a time."""

    def __init__(self, task: FileTask, file: BinaryIO) -> None:
        self._start = task.start
        self._writer = SegmentWriter(
            file, created_ms=task.created_ms, index_interval_bytes=task.index_interval_bytes
        )

    def add(self, run: memoryview, batches: FetchedBatches) -> None:
        """Take in the batches of a run, from the one on that the range begins in."""
        places = zip(batches.starts.tolist(), batches.ends.tolist(), strict=True)
        kept = [run[start:end] for start, end in places]
        first = int(np.searchsorted(batches.next_offsets, self._start, side="right"))
        if first < len(kept):
            self._writer.add(kept[first:], int(batches.base_offsets[first]))

    def close(self) -> SegmentFacts:
        """Write what comes after the batches."""
        return self._writer.close()


def _table_writer(task: FileTask, file: BinaryIO) -> TableFileWriter:
    """What writes the task's rows, with the task in the file's footer."""
    origin = TableFileOrigin(
        task.stream,
        task.topic_id,
        task.partition,
        task.task_id,
        task.start,
        task.end,
        task.batch_bytes_max,
    )
    return TableFileWriter(
        file,
        origin,
        row_group_bytes=task.row_group_bytes,
        field_ids=dict(task.field_ids) or FIELD_IDS,
    )


class _BatchRows(ABC):
    """The part that computes: batches to rows to a data file. One thread at a time."""

    def __init__(self, task: FileTask, writer: TableFileWriter) -> None:
        self._first = max(task.start, task.log_start)
        self._end = task.end
        self._writer = writer
        self._builder = RowBuilder(
            partition=task.partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        )

    def close(self) -> TableFileFacts:
        """Write what is left and the footer."""
        self._flush()
        return self._writer.close()

    @abstractmethod
    def _refuse(self, error: UnreadableBatchError) -> None:
        """Decide about a batch that cannot be read: raise, or go on without it."""

    def _flush(self) -> None:
        """Write the rows that are held; batches are kept whole, and rows of the range alone."""
        rows = self._take()
        offsets = rows["offset"].to_numpy()
        first, end = np.searchsorted(offsets, (self._first, self._end)).tolist()
        self._writer.write(rows.slice(first, end - first))

    def _take(self) -> "pa.Table":
        while True:  # once more for every batch that is refused
            try:
                return self._builder.take()
            except UnreadableBatchError as error:
                self._refuse(error)


class _WalRows(_BatchRows):
    """The rows of WAL objects."""

    def __init__(self, task: FileTask, inputs: WalInputs, writer: TableFileWriter) -> None:
        super().__init__(task, writer)
        self._inputs = inputs

    def add(self, run: memoryview, batches: FetchedBatches) -> None:
        """Take in the rows of a run; batches are added until so many are held as become rows."""
        within = (batches.base_offsets < self._end) & (batches.next_offsets > self._first)
        first, end = int(within.argmax()), int(within.sum())
        end += first
        while first < end:
            part = batches.part(first, end)
            try:
                first += self._builder.add_batches(run, part, bytes_max=ROWS_BYTES)
            except UnreadableBatchError as error:
                self._refuse(error)
            if self._builder.size_bytes >= ROWS_BYTES:
                self._flush()

    def _refuse(self, error: UnreadableBatchError) -> NoReturn:
        start, end = error.base_offset, error.end
        piece = next(one for one in self._inputs.pieces if one.start <= start < one.end)
        key = piece_key(self._inputs.domain, piece)
        raise InputError(FailureKind.UNREADABLE, str(error), key, start, end) from error


class _SegmentRows(_BatchRows):
    """The rows of segments; what cannot be read is left out and noted."""

    def __init__(self, task: FileTask, writer: TableFileWriter) -> None:
        super().__init__(task, writer)
        self.left_out: list[tuple[int, int]] = []

    def add(self, batches: list[memoryview]) -> None:
        """Take in the rows of these batches."""
        for batch in batches:
            header = parse_header(batch)
            if header.base_offset + header.last_offset_delta < self._first:
                continue  # deleted: nobody has to be able to read it either
            try:
                self._builder.add(header.base_offset, batch)
            except UnreadableBatchError as error:
                self._refuse(error)
            if self._builder.size_bytes >= ROWS_BYTES:
                self._flush()

    def _refuse(self, error: UnreadableBatchError) -> None:
        insort(self.left_out, (error.base_offset, error.end))


class _FileRows:
    """The part that computes: rows of data files to a new one. One thread at a time."""

    def __init__(self, task: FileTask, inputs: TableInputs, writer: TableFileWriter) -> None:
        self._task = task
        self._kept_offsets = (
            None if inputs.kept_offsets is None else unpack_offsets(inputs.kept_offsets)
        )
        self._columns = table_schema().names
        self._reached = task.start
        self._row_count = 0
        self._writer = writer

    def add(self, group: RowGroupData) -> None:
        """Take in the rows of a row group."""
        rows = group.rows(self._columns)
        offsets = rows["offset"].to_numpy()
        first, last = offsets.item(0), offsets.item(-1)
        if first < self._reached:
            reason = f"rows of {group.piece.key} begin at {first}, others reach to {self._reached}"
            raise InputError(
                FailureKind.CORRUPT, reason, group.piece.key, group.piece.start, group.piece.end
            )
        self._reached = last + 1
        if self._kept_offsets is not None:
            rows = _chosen(rows, are_kept(offsets, self._kept_offsets))
        self._row_count += rows.num_rows
        # Views, as the writer holds them; what was read is large, for it may be anybody's file.
        self._writer.write(rows.cast(table_schema(views=True)))

    def close(self) -> TableFileFacts:
        """Write what is left and the footer."""
        if self._kept_offsets is not None and self._row_count != len(self._kept_offsets):
            task = self._task
            count = len(self._kept_offsets)
            reason = f"{count} rows were to be kept, {self._row_count} of them are there"
            raise InputError(FailureKind.CORRUPT, reason, "", task.start, task.end)
        return self._writer.close()


def _chosen(rows: "pa.Table", mask: object) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return rows.filter(pa.array(mask))
