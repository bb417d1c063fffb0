"""One compaction task: ranges of WAL objects in, one data file out.

The worker never raises for its input: what is missing, damaged or unreadable becomes an answer
that names the object and the offsets, so that the tasks beside it go on. Its memory is bounded by
slices of a few MiB and a row group, not by the stream. The file is built in a temporary file and
put as one object, because an object is complete or not there.
"""

from concurrent.futures import Executor
from typing import BinaryIO, Final

import numpy as np

from lakelog.model.failures import Corrupt
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.output import make_file, table_writer
from lakelog.pipeline.files.tasks import (
    CompactionAnswer,
    CompactionFailure,
    CompactionResult,
    CompactionTask,
    Trouble,
    WalPiece,
)
from lakelog.pipeline.files.wal_input import (
    Slice,
    TroubleError,
    feed,
    piece_key,
    run_in,
)
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.header import parse_header
from lakelog.records.table_facts import TableFileFacts
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError
from lakelog.wal.runs import verify_run

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
        objects, task, lambda file: _build(objects, task, file, pool), directory=directory
    )
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.byte_length for piece in task.pieces)
    return CompactionResult(task.task_id, task.attempt, task.key, facts, read_bytes)


async def _build(
    objects: ObjectStore, task: CompactionTask, file: BinaryIO, pool: Executor | None
) -> TableFileFacts:
    work = _Work(task, file)
    try:
        await feed(objects, task.domain, task.pieces, work.add, pool=pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


class _Work:
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
