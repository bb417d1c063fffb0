"""One task of rows for the table: segments in, one data file out, without what cannot be read.

The log keeps the segments (`lakelog.pipeline.planning.backfill` says why). Memory is bounded by a
slice of a few MiB and a row group. The worker never raises for its input.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from typing import BinaryIO, TypeAlias

import numpy as np

from lakelog.model.failures import Corrupt, Failure
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.output import make_file, table_writer
from lakelog.pipeline.files.segment_tasks import RowsResult, RowsTask, SegmentPiece
from lakelog.pipeline.files.tasks import CompactionFailure
from lakelog.pipeline.files.wal_input import (
    READ_BYTES,
    TroubleError,
    run_in,
    trouble_of,
)
from lakelog.pipeline.files.worker import ROWS_BYTES
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
        return await _build(objects, task, _Work(task, file, left_out), pool)

    facts = await make_file(objects, task, build, directory=directory)
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.size_bytes for piece in task.pieces)
    return RowsResult(task.task_id, task.attempt, task.key, facts, read_bytes, tuple(left_out))


async def _build(
    objects: ObjectStore, task: RowsTask, work: "_Work", pool: Executor | None
) -> TableFileFacts:
    try:
        for piece in task.pieces:
            await _take(objects, piece, work, pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


async def _take(
    objects: ObjectStore, piece: SegmentPiece, work: "_Work", pool: Executor | None
) -> None:
    """Give the rows of one segment to the work; whatever is wrong with it names it."""
    try:
        found = await _open(objects, piece)
        for span, start, end in _slices(found):
            (data,) = await objects.get_ranges(piece.key, [span])
            batches = await run_in(pool, partial(verify_batches, data, start=start, end=end))
            await run_in(pool, partial(work.add, batches))
    except Failure as error:
        raise TroubleError(
            trouble_of(error), str(error), piece.key, piece.start, piece.end
        ) from error


async def _open(objects: ObjectStore, piece: SegmentPiece) -> SegmentMap:
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


def _slices(found: SegmentMap) -> Iterator[tuple[ByteRange, int, int]]:
    """Bytes and offsets [start, end) of a segment, a few MiB at once."""
    start, position = found.start, HEADER.size
    for entry in found.entries[1:]:
        if entry.position - position >= READ_BYTES:
            yield ByteRange(position, entry.position), start, entry.offset
            start, position = entry.offset, entry.position
    yield ByteRange(position, found.body_end), start, found.end


class _Work:
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
