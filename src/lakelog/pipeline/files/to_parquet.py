"""Workers that make a data file: of WAL objects, of segments, or of other data files.

A worker never raises for its input: what is missing, damaged or unreadable becomes an answer that
names the object and the offsets, so that the tasks beside it go on. Its memory is bounded by slices
of a few MiB and a row group, not by the stream. The file is built in a temporary file and put as
one object, because an object is complete or not there.

- `compact`: ranges of WAL objects in, one data file out.
- `compact_rows`: segments in, one data file for the table out, without what cannot be read. The log
  keeps the segments (`lakelog.pipeline.planning.backfill` says why).
- `rewrite`: data files in, one data file out, with all rows or those that are kept. Rows go over
  row group by row group and keep their offsets and everything else; the new file's row groups are
  cut anew. Where some rows are kept, each of them must be found: a file that lacks one is not what
  was looked at when the rows were chosen.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final, TypeAlias

import numpy as np

from lakelog.model.failures import Corrupt, Failure
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    CompactionAnswer,
    CompactionFailure,
    CompactionResult,
    CompactionTask,
    RewriteTask,
    RowsResult,
    RowsTask,
    SegmentPiece,
    Trouble,
    WalPiece,
    are_kept,
    unpack_offsets,
)
from lakelog.pipeline.files.inputs import (
    READ_BYTES,
    RowGroupData,
    Slice,
    StreamIdentity,
    TroubleError,
    feed_groups,
    feed_wal,
    piece_key,
    run_in,
    trouble_of,
)
from lakelog.pipeline.files.output import make_file, table_writer
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.header import parse_header
from lakelog.records.segment_file import (
    HEADER,
    SegmentMap,
    parse_segment,
    tail_bytes,
    verify_batches,
)
from lakelog.records.table_facts import TableFileFacts
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError
from lakelog.records.table_schema import table_schema
from lakelog.wal.layout import verify_run

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_BYTES: Final = 4 << 20
"""Decompressed bytes that become rows at once: what fits the processor's cache is faster."""


async def compact(
    objects: ObjectStore,
    task: CompactionTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> CompactionAnswer:
    """Make the task's file, by way of a temporary one in `directory`.

    With a pool the loop stays free, and the next bytes are read while rows are written.
    """
    facts = await make_file(
        objects, task, lambda file: _build_from_wal(objects, task, file, pool), directory=directory
    )
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.byte_length for piece in task.pieces)
    return CompactionResult(task.task_id, task.attempt, task.key, facts, read_bytes)


async def _build_from_wal(
    objects: ObjectStore, task: CompactionTask, file: BinaryIO, pool: Executor | None
) -> TableFileFacts:
    work = _WalRows(task, file)
    try:
        await feed_wal(objects, task.domain, task.pieces, work.add, pool=pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


class _WalRows:
    """The part that computes: bytes to rows to the file. One thread at a time."""

    def __init__(self, task: CompactionTask, file: BinaryIO) -> None:
        self._task = task
        self._first = max(task.start, task.log_start)
        self._writer = table_writer(file, task)
        self._builder = RowBuilder(
            partition=task.partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        )

    def add(self, some: Slice) -> None:
        """Take in the batches of these pieces."""
        for piece, run in some:
            try:
                self._add_piece(piece, run)
            except Corrupt as error:
                raise self._trouble(Trouble.CORRUPT, error, piece) from error
            except UnreadableBatchError as error:
                raise self._trouble(Trouble.UNREADABLE, error, piece) from error

    def close(self) -> TableFileFacts:
        """Write what is left and the footer."""
        self._flush()
        return self._writer.close()

    def abandon(self) -> None:
        """Make no file of what was taken in."""
        self._writer.abandon()

    def _add_piece(self, piece: WalPiece, run: memoryview) -> None:
        base = piece.start
        for batch in verify_run(run):
            end = base + parse_header(batch).last_offset_delta + 1
            if base < self._task.end and end > self._first:
                self._builder.add(base, batch)
                if self._builder.size_bytes >= ROWS_BYTES:
                    self._flush()
            base = end
        if base != piece.end:
            raise Corrupt(f"the batches from {piece.start} on end at {base} and not {piece.end}")

    def _flush(self) -> None:
        rows = self._builder.take()
        offsets = rows["offset"].to_numpy()
        first, end = np.searchsorted(offsets, (self._first, self._task.end)).tolist()
        self._writer.write(rows.slice(first, end - first))

    def _trouble(self, trouble: Trouble, error: Exception, piece: WalPiece) -> TroubleError:
        start = error.base_offset if isinstance(error, UnreadableBatchError) else piece.start
        end = error.end if isinstance(error, UnreadableBatchError) else piece.end
        return TroubleError(trouble, str(error), piece_key(self._task.domain, piece), start, end)


RowsAnswer: TypeAlias = RowsResult | CompactionFailure


async def compact_rows(
    objects: ObjectStore,
    task: RowsTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> RowsAnswer:
    """Make the task's file, by way of a temporary one in `directory`; with a pool, in it."""
    left_out: list[tuple[int, int]] = []

    async def build(file: BinaryIO) -> TableFileFacts:
        return await _build_from_segments(objects, task, _SegmentRows(task, file, left_out), pool)

    facts = await make_file(objects, task, build, directory=directory)
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.size_bytes for piece in task.pieces)
    return RowsResult(task.task_id, task.attempt, task.key, facts, read_bytes, tuple(left_out))


async def _build_from_segments(
    objects: ObjectStore, task: RowsTask, work: "_SegmentRows", pool: Executor | None
) -> TableFileFacts:
    try:
        for piece in task.pieces:
            await _take_segment(objects, piece, work, pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


async def _take_segment(
    objects: ObjectStore, piece: SegmentPiece, work: "_SegmentRows", pool: Executor | None
) -> None:
    """Give the rows of one segment to the work; whatever is wrong with it names it."""
    try:
        found = await _open_segment(objects, piece)
        for span, start, end in _segment_slices(found):
            (data,) = await objects.get_ranges(piece.key, [span])
            batches = await run_in(pool, partial(verify_batches, data, start=start, end=end))
            await run_in(pool, partial(work.add, batches))
    except Failure as error:
        raise TroubleError(
            trouble_of(error), str(error), piece.key, piece.start, piece.end
        ) from error


async def _open_segment(objects: ObjectStore, piece: SegmentPiece) -> SegmentMap:
    size_bytes = piece.size_bytes
    (head,) = await objects.get_ranges(piece.key, [ByteRange(0, min(HEADER.size, size_bytes))])
    needed = tail_bytes(head)
    if needed > size_bytes:
        raise Corrupt(f"{size_bytes} bytes, index and footer would have {needed}")
    (tail,) = await objects.get_ranges(piece.key, [ByteRange(size_bytes - needed, size_bytes)])
    found = parse_segment(head, tail, size_bytes=size_bytes)
    if not found.entries or found.start > piece.start or found.end != piece.end:
        raise Corrupt(f"it holds [{found.start}, {found.end}), or has no index")
    return found


def _segment_slices(found: SegmentMap) -> Iterator[tuple[ByteRange, int, int]]:
    """Bytes and offsets [start, end) of a segment, a few MiB at once."""
    start, position = found.start, HEADER.size
    for entry in found.entries[1:]:
        if entry.position - position >= READ_BYTES:
            yield ByteRange(position, entry.position), start, entry.offset
            start, position = entry.offset, entry.position
    yield ByteRange(position, found.body_end), start, found.end


class _SegmentRows:
    """The part that computes: batches to rows to the file. One thread at a time."""

    def __init__(self, task: RowsTask, file: BinaryIO, left_out: list[tuple[int, int]]) -> None:
        self._task = task
        self._first = max(task.start, task.log_start)
        self._left_out = left_out
        self._writer = table_writer(file, task)
        self._builder = RowBuilder(
            partition=task.partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        )

    def add(self, batches: list[memoryview]) -> None:
        """Take in the rows of these batches; what cannot be read is left out and noted."""
        for batch in batches:
            header = parse_header(batch)
            if header.base_offset + header.last_offset_delta < self._first:
                continue  # deleted: nobody has to be able to read it either
            try:
                self._builder.add(header.base_offset, batch)
            except UnreadableBatchError as error:
                self._left_out.append((error.base_offset, error.end))
            if self._builder.size_bytes >= ROWS_BYTES:
                self._flush()

    def close(self) -> TableFileFacts:
        """Write what is left and the footer."""
        self._flush()
        return self._writer.close()

    def abandon(self) -> None:
        """Make no file of what was taken in."""
        self._writer.abandon()

    def _flush(self) -> None:
        rows = self._builder.take()
        offsets = rows["offset"].to_numpy()
        first, end = np.searchsorted(offsets, (self._first, self._task.end)).tolist()
        self._writer.write(rows.slice(first, end - first))


async def rewrite(
    objects: ObjectStore,
    task: RewriteTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> CompactionAnswer:
    """Make the task's file, by way of a temporary one in `directory`.

    With a pool the loop stays free, and the next row group is read while rows are written.
    """
    facts = await make_file(
        objects,
        task,
        lambda file: _build_from_files(objects, task, file, pool),
        directory=directory,
    )
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.size_bytes for piece in task.pieces)
    return CompactionResult(task.task_id, task.attempt, task.key, facts, read_bytes)


async def _build_from_files(
    objects: ObjectStore, task: RewriteTask, file: BinaryIO, pool: Executor | None
) -> TableFileFacts:
    work = _FileRows(task, file)
    source = StreamIdentity(task.stream, task.topic_id, task.partition)
    try:
        await feed_groups(objects, source, task.pieces, work.add, pool=pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


class _FileRows:
    """The part that computes: rows to the file. One thread at a time."""

    def __init__(self, task: RewriteTask, file: BinaryIO) -> None:
        self._task = task
        self._kept_offsets = (
            None if task.kept_offsets is None else unpack_offsets(task.kept_offsets)
        )
        self._columns = table_schema().names
        self._reached = task.start
        self._row_count = 0
        self._writer = table_writer(file, task)

    def add(self, group: RowGroupData) -> None:
        """Take in the rows of a row group."""
        rows = group.rows(self._columns)
        offsets = rows["offset"].to_numpy()
        first, last = offsets.item(0), offsets.item(-1)
        if first < self._reached:
            reason = f"rows of {group.piece.key} begin at {first}, others reach to {self._reached}"
            raise TroubleError(
                Trouble.CORRUPT, reason, group.piece.key, group.piece.start, group.piece.end
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
            raise TroubleError(Trouble.CORRUPT, reason, "", task.start, task.end)
        return self._writer.close()

    def abandon(self) -> None:
        """Make no file of what was taken in."""
        self._writer.abandon()


def _chosen(rows: "pa.Table", mask: object) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return rows.filter(pa.array(mask))
