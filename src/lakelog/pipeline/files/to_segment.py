"""One segment task: ranges of WAL objects in, one segment out, every batch as it was accepted.

For topics without a table, and for what cannot be rows: a batch whose CRC is right is copied
whether or not its records can be read. Nothing is decompressed. The worker never raises for its
input, and its memory is bounded by slices of a few MiB (`lakelog.pipeline.files.inputs`).
"""

from concurrent.futures import Executor
from typing import BinaryIO, TypeAlias

from lakelog.model.failures import Corrupt
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    CompactionFailure,
    SegmentResult,
    SegmentTask,
    Trouble,
    WalPiece,
)
from lakelog.pipeline.files.inputs import (
    Slice,
    TroubleError,
    feed_wal,
    piece_key,
    run_in,
)
from lakelog.pipeline.files.output import make_file
from lakelog.records.header import parse_header
from lakelog.records.segment_file import SegmentFacts, SegmentWriter
from lakelog.wal.layout import verify_run

SegmentAnswer: TypeAlias = SegmentResult | CompactionFailure


async def compact_segment(
    objects: ObjectStore,
    task: SegmentTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> SegmentAnswer:
    """Make the task's segment, by way of a temporary file in `directory`.

    With a pool the loop stays free, and the next bytes are read while batches are checked.
    """
    facts = await make_file(
        objects, task, lambda file: _build(objects, task, file, pool), directory=directory
    )
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.byte_length for piece in task.pieces)
    return SegmentResult(task.task_id, task.attempt, task.key, facts, read_bytes)


async def _build(
    objects: ObjectStore, task: SegmentTask, file: BinaryIO, pool: Executor | None
) -> SegmentFacts:
    work = _Work(task, file)
    await feed_wal(objects, task.domain, task.pieces, work.add, pool=pool)
    return await run_in(pool, work.close)


class _Work:
    """The part that computes: runs to batches to the file. One thread at a time."""

    def __init__(self, task: SegmentTask, file: BinaryIO) -> None:
        self._task = task
        self._writer = SegmentWriter(
            file, created_ms=task.created_ms, index_interval_bytes=task.index_interval_bytes
        )

    def add(self, some: Slice) -> None:
        """Take in the batches of these pieces."""
        for piece, run in some:
            try:
                self._add_piece(piece, run)
            except Corrupt as error:
                key = piece_key(self._task.domain, piece)
                trouble = Trouble.CORRUPT
                raise TroubleError(trouble, str(error), key, piece.start, piece.end) from error

    def close(self) -> SegmentFacts:
        """Write what comes after the batches."""
        return self._writer.close()

    def _add_piece(self, piece: WalPiece, run: memoryview) -> None:
        batches, start = verify_run(run), piece.start
        while start < self._task.start and batches:  # in the first piece alone, if at all
            end = start + parse_header(batches[0]).last_offset_delta + 1
            if end > self._task.start:
                break
            batches, start = batches[1:], end
        end = self._writer.add(batches, start)
        if end != piece.end:
            raise Corrupt(f"the batches from {piece.start} on end at {end} and not {piece.end}")
