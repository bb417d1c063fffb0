"""One compaction task: ranges of WAL objects in, one data file out.

The worker never raises for its input: what is missing, damaged or unreadable becomes an answer
that names the object and the offsets, so that the tasks beside it go on. Its memory is bounded by
slices of a few MiB and a row group, not by the stream. The file is built in a temporary file and
put as one object, because an object is complete or not there.
"""

import asyncio
import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from tempfile import TemporaryFile
from typing import BinaryIO, Final, TypeAlias, TypeVar, cast

import numpy as np

from lakelog.compaction.tasks import (
    CompactionAnswer,
    CompactionFailure,
    CompactionResult,
    CompactionTask,
    Trouble,
    WalPiece,
)
from lakelog.log.plan import coalesce
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ids import DomainId, WalId
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.records.acceptance import DECOMPRESSED_BYTES_MAX
from lakelog.records.header import parse_header
from lakelog.records.table_facts import TableFileFacts, TableFileOrigin
from lakelog.records.table_file import TableFileWriter
from lakelog.records.table_rows import RowBuilder, UnreadableBatchError
from lakelog.records.table_schema import FIELD_IDS
from lakelog.wal.ids import object_key
from lakelog.wal.runs import verify_run

ResultT = TypeVar("ResultT")

READ_BYTES: Final = 8 << 20
"""WAL bytes that are read at once; the next slice is read while this one is decoded."""

ROWS_BYTES: Final = 4 << 20
"""Decompressed bytes that become rows at once: what fits the processor's cache is faster."""


_Slice: TypeAlias = tuple[tuple[WalPiece, memoryview], ...]
"""Pieces with their bytes."""

_TROUBLES: Final[Mapping[type[Failure], Trouble]] = {
    NotFound: Trouble.MISSING,
    Corrupt: Trouble.CORRUPT,
}


class _TroubleError(Exception):
    """Ends a task; becomes its answer."""

    def __init__(self, trouble: Trouble, reason: str, key: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.trouble = trouble
        self.key = key
        self.start = start
        self.end = end


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
    try:
        with TemporaryFile(dir=directory) as file:
            facts = await _build(objects, task, file, pool)
            await _put(objects, task, file, facts.size_bytes)
    except _TroubleError as error:
        return _failure(task, error)
    except OSError as error:
        reason = f"the temporary file: {error}"
        return _failure(task, _TroubleError(Trouble.UNAVAILABLE, reason, "", task.start, task.end))
    read_bytes = sum(piece.byte_length for piece in task.pieces)
    return CompactionResult(task.task_id, task.attempt, task.key, facts, read_bytes)


def _failure(task: CompactionTask, error: _TroubleError) -> CompactionFailure:
    return CompactionFailure(
        task.task_id,
        task.attempt,
        error.trouble,
        str(error),
        error.key,
        error.start,
        error.end,
    )


async def _build(
    objects: ObjectStore, task: CompactionTask, file: BinaryIO, pool: Executor | None
) -> TableFileFacts:
    """Read a slice while the one before it is worked on."""
    work = _Work(task, file)
    held: _Slice = ()
    try:
        for pieces in [*_slices(task), ()]:
            done = await asyncio.gather(
                _run(pool, partial(work.add, held)),
                _read(objects, task, pieces),
                return_exceptions=True,  # so that neither goes on when the task has ended
            )
            held = _second(*done)
        return await _run(pool, work.close)
    except BaseException:
        work.abandon()
        raise


def _second(first: BaseException | None, second: BaseException | ResultT) -> ResultT:
    """The second outcome, unless either is a failure."""
    for error in (first, second):
        if isinstance(error, BaseException):
            raise error
    return cast("ResultT", second)


async def _run(pool: Executor | None, work: Callable[[], ResultT]) -> ResultT:
    if pool is None:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)


async def _put(objects: ObjectStore, task: CompactionTask, file: BinaryIO, size_bytes: int) -> None:
    file.flush()
    # Not closed here: a store that was cancelled may still read it.
    content = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
    try:
        await objects.put(task.key, [memoryview(content)])
    except Failure as error:
        reason = f"{type(error).__name__}: {error}"
        trouble = Trouble.UNAVAILABLE
        raise _TroubleError(trouble, reason, task.key, task.start, task.end) from error


def _slices(task: CompactionTask) -> Iterator[tuple[WalPiece, ...]]:
    some: list[WalPiece] = []
    size = 0
    for piece in task.pieces:
        if some and size + piece.byte_length > READ_BYTES:
            yield tuple(some)
            some, size = [], 0
        some.append(piece)
        size += piece.byte_length
    if some:
        yield tuple(some)


async def _read(objects: ObjectStore, task: CompactionTask, pieces: Sequence[WalPiece]) -> _Slice:
    """The pieces with their bytes, each object read once."""
    by_object: dict[str, list[WalPiece]] = {}
    for piece in pieces:
        by_object.setdefault(_key(task, piece), []).append(piece)
    reads = (_read_object(objects, key, some) for key, some in by_object.items())
    found: dict[WalPiece, memoryview] = {}
    for runs in await asyncio.gather(*reads):
        found |= runs
    return tuple((piece, found[piece]) for piece in pieces)


async def _read_object(
    objects: ObjectStore, key: str, pieces: Sequence[WalPiece]
) -> dict[WalPiece, memoryview]:
    spans = [ByteRange(one.byte_start, one.byte_start + one.byte_length) for one in pieces]
    merged = coalesce(spans)
    try:
        contents = await objects.get_ranges(key, merged)
    except Failure as error:
        trouble = _TROUBLES.get(type(error), Trouble.UNAVAILABLE)
        raise _TroubleError(trouble, str(error), key, pieces[0].start, pieces[-1].end) from error
    runs = {}
    for piece, span in zip(pieces, spans, strict=True):
        holder = bisect_right(merged, span.start, key=lambda one: one.start) - 1
        start = span.start - merged[holder].start
        runs[piece] = contents[holder][start : start + len(span)]
    return runs


def _key(task: CompactionTask, piece: WalPiece) -> str:
    return object_key(piece.zone, DomainId(task.domain), WalId(piece.wal_id))


class _Work:
    """The part that computes: bytes to rows to the file. One thread at a time."""

    def __init__(self, task: CompactionTask, file: BinaryIO) -> None:
        self._task = task
        origin = TableFileOrigin(
            task.stream,
            task.topic_id,
            task.partition,
            task.task_id,
            task.start,
            task.end,
            task.batch_bytes_max,
        )
        self._writer = TableFileWriter(
            file,
            origin,
            row_group_bytes=task.row_group_bytes,
            field_ids=dict(task.field_ids) or FIELD_IDS,
        )
        self._builder = RowBuilder(
            partition=task.partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
        )

    def add(self, some: _Slice) -> None:
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
            if base < self._task.end and end > self._task.start:
                self._builder.add(base, batch)
                if self._builder.size_bytes >= ROWS_BYTES:
                    self._flush()
            base = end
        if base != piece.end:
            raise Corrupt(f"the batches from {piece.start} on end at {base} and not {piece.end}")

    def _flush(self) -> None:
        rows = self._builder.take()
        offsets = rows["offset"].to_numpy()
        first, end = np.searchsorted(offsets, (self._task.start, self._task.end)).tolist()
        self._writer.write(rows.slice(first, end - first))

    def _trouble(self, trouble: Trouble, error: Exception, piece: WalPiece) -> _TroubleError:
        start = error.base_offset if isinstance(error, UnreadableBatchError) else piece.start
        end = error.end if isinstance(error, UnreadableBatchError) else piece.end
        return _TroubleError(trouble, str(error), _key(self._task, piece), start, end)
