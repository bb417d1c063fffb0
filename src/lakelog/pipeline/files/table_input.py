"""The input of a worker that reads data files: their row groups, one after another, all checked.

A worker never raises for its input: a file that is missing, damaged, or not what the index says is
a `TroubleError` that names it. Memory is bounded by two row groups, one that is read and one that
is worked on, and by a few small files, which are read whole and together: they mostly wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.tasks import TablePiece, Trouble
from lakelog.pipeline.files.wal_input import TroubleError, run_in
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile

if TYPE_CHECKING:
    import pyarrow as pa

FOOTER_BYTES: Final = 64 << 10
"""What is read of a large file's end at first: the footer of a common one."""

SMALL_BYTES: Final = 1 << 20
"""A file up to this size is read whole, at once with others."""

SMALL_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Source:
    """The stream whose files are read; what the footer of each must say."""

    stream: int
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a file, with its bytes."""

    piece: TablePiece
    file: TableFile
    number: int
    data: memoryview

    def rows(self, columns: Sequence[str]) -> "pa.Table":
        """Its rows, checked; raises `TroubleError`."""
        try:
            return self.file.read(self.number, self.data, columns=columns)
        except Corrupt as error:
            raise trouble_of(error, self.piece) from error


async def feed_groups(
    objects: ObjectStore,
    source: Source,
    pieces: Sequence[TablePiece],
    work: Callable[[Group], None],
    *,
    pool: Executor | None,
) -> None:
    """Give every row group of all pieces to `work`; the next is read while it works in the pool."""
    async with aclosing(_groups(objects, source, pieces)) as groups:
        held = await anext(groups, None)
        while held is not None:
            done = await asyncio.gather(
                run_in(pool, partial(work, held)),
                anext(groups, None),
                return_exceptions=True,  # so that neither goes on when the task has ended
            )
            for outcome in done:
                if isinstance(outcome, BaseException):
                    raise outcome
            held = done[1] if isinstance(done[1], Group) else None


async def _end(objects: ObjectStore, piece: TablePiece) -> memoryview:
    """The end of the file with its footer; the whole of a small file."""
    wanted = piece.size_bytes if piece.size_bytes <= SMALL_BYTES else FOOTER_BYTES
    end = await _read(objects, piece, ByteRange(piece.size_bytes - wanted, piece.size_bytes))
    needed = footer_bytes(end[-TAIL_BYTES:])
    if needed <= len(end):
        return end
    start = max(0, piece.size_bytes - needed)
    return await _read(objects, piece, ByteRange(start, piece.size_bytes))


def trouble_of(error: Failure, piece: TablePiece) -> TroubleError:
    """What ends a task because of this file."""
    trouble = Trouble.UNAVAILABLE
    if isinstance(error, NotFound):
        trouble = Trouble.MISSING
    elif isinstance(error, Corrupt):
        trouble = Trouble.CORRUPT
    return TroubleError(trouble, str(error), piece.key, piece.start, piece.end)


async def _groups(
    objects: ObjectStore, source: Source, pieces: Sequence[TablePiece]
) -> AsyncGenerator[Group, None]:
    for some in _together(pieces):
        reads = [_opened(objects, source, piece) for piece in some]
        for piece, opened in zip(
            some, await asyncio.gather(*reads, return_exceptions=True), strict=True
        ):
            if isinstance(opened, BaseException):
                raise opened
            file, end = opened
            held_from = piece.size_bytes - len(end)
            for number, group in enumerate(file.row_groups):
                if group.byte_start >= held_from:
                    data = end[group.byte_start - held_from : group.byte_end - held_from]
                else:
                    data = await _read(objects, piece, ByteRange(group.byte_start, group.byte_end))
                yield Group(piece, file, number, data)


async def _opened(
    objects: ObjectStore, source: Source, piece: TablePiece
) -> tuple[TableFile, memoryview]:
    """The file by its footer, which must say what the index says, and what was read of its end."""
    try:
        end = await _end(objects, piece)
        file = TableFile.open(end, size_bytes=piece.size_bytes)
        _check(file, source, piece)
    except Corrupt as error:
        raise trouble_of(error, piece) from error
    return file, end


def _together(pieces: Sequence[TablePiece]) -> Iterator[list[TablePiece]]:
    """Small files in a few at once, others one by one."""
    some: list[TablePiece] = []
    for piece in pieces:
        if some and (piece.size_bytes > SMALL_BYTES or len(some) == SMALL_AT_ONCE):
            yield some
            some = []
        some.append(piece)
        if piece.size_bytes > SMALL_BYTES:
            yield some
            some = []
    if some:
        yield some


async def _read(objects: ObjectStore, piece: TablePiece, span: ByteRange) -> memoryview:
    try:
        (data,) = await objects.get_ranges(piece.key, [span])
    except Failure as error:
        raise trouble_of(error, piece) from error
    return data


def _check(file: TableFile, source: Source, piece: TablePiece) -> None:
    origin = file.origin
    found = Source(origin.stream, origin.topic_id, origin.partition)
    if found != source:
        raise Corrupt(f"the file is of {found}, not of {source}")
    if origin.end != piece.end or origin.start > piece.start:
        raise Corrupt(f"the file holds [{origin.start}, {origin.end}), its entry does not")
    if file.row_groups and not piece.in_table:
        raise Corrupt("the file has rows, and the table does not name it")
