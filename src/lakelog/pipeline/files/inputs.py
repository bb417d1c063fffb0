"""The inputs of workers: pieces of WAL objects, and data files by their row groups, all checked.

A worker never raises for its input: what is missing, damaged, unreadable or not what the index says
is a `TroubleError` that names the object and the offsets, and becomes the task's answer.

WAL objects are read in slices, each object of a slice once. Data files are read row group by row
group: memory is bounded by two row groups, one that is read and one that is worked on, and by a few
small files, which are read whole and together: they mostly wait.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from lakelog.log.plan import coalesce
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ids import DomainId, WalId
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import CompactionFailure, TablePiece, Trouble, WalPiece
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile
from lakelog.wal.ids import object_key

if TYPE_CHECKING:
    import pyarrow as pa

ResultT = TypeVar("ResultT")

READ_BYTES: Final = 8 << 20
"""WAL bytes that are read at once; the next slice is read while this one is worked on."""

Slice: TypeAlias = tuple[tuple[WalPiece, memoryview], ...]
"""Pieces with their bytes."""

_TROUBLES: Final[Mapping[type[Failure], Trouble]] = {
    NotFound: Trouble.MISSING,
    Corrupt: Trouble.CORRUPT,
}


class TroubleError(Exception):
    """Ends a task; becomes its answer. Empty `key`: no object is at fault."""

    def __init__(self, trouble: Trouble, reason: str, key: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.trouble = trouble
        self.key = key
        self.start = start
        self.end = end

    def answer(self, task_id: str, attempt: str) -> CompactionFailure:
        """The answer to the task that it ended."""
        return CompactionFailure(
            task_id, attempt, self.trouble, str(self), self.key, self.start, self.end
        )


def trouble_of(error: Failure) -> Trouble:
    """What a failed read means for the task."""
    return _TROUBLES.get(type(error), Trouble.UNAVAILABLE)


def piece_key(domain: int, piece: WalPiece) -> str:
    """The key of the object that a piece lies in."""
    return object_key(piece.zone, DomainId(domain), WalId(piece.wal_id))


async def feed_wal(
    objects: ObjectStore,
    domain: int,
    pieces: Sequence[WalPiece],
    work: Callable[[Slice], None],
    *,
    pool: Executor | None,
) -> None:
    """Give all pieces to `work`, slice by slice; the next is read while it works in the pool."""
    held: Slice = ()
    for some in [*_wal_slices(pieces), ()]:
        done = await asyncio.gather(
            run_in(pool, partial(work, held)),
            _read_wal(objects, domain, some),
            return_exceptions=True,  # so that neither goes on when the task has ended
        )
        held = _second(*done)


async def run_in(pool: Executor | None, work: Callable[[], ResultT]) -> ResultT:
    """Do this in the pool, or here and now where there is none."""
    if pool is None:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def _second(first: BaseException | None, second: BaseException | ResultT) -> ResultT:
    """The second outcome, unless either is a failure."""
    for error in (first, second):
        if isinstance(error, BaseException):
            raise error
    return cast("ResultT", second)


def _wal_slices(pieces: Sequence[WalPiece]) -> Iterator[tuple[WalPiece, ...]]:
    some: list[WalPiece] = []
    size = 0
    for piece in pieces:
        if some and size + piece.byte_length > READ_BYTES:
            yield tuple(some)
            some, size = [], 0
        some.append(piece)
        size += piece.byte_length
    if some:
        yield tuple(some)


async def _read_wal(objects: ObjectStore, domain: int, pieces: Sequence[WalPiece]) -> Slice:
    """The pieces with their bytes, each object read once."""
    by_object: dict[str, list[WalPiece]] = {}
    for piece in pieces:
        by_object.setdefault(piece_key(domain, piece), []).append(piece)
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
        raise TroubleError(
            trouble_of(error), str(error), key, pieces[0].start, pieces[-1].end
        ) from error
    runs = {}
    for piece, span in zip(pieces, spans, strict=True):
        holder = bisect_right(merged, span.start, key=lambda one: one.start) - 1
        start = span.start - merged[holder].start
        runs[piece] = contents[holder][start : start + len(span)]
    return runs


FOOTER_BYTES: Final = 64 << 10
"""What is read of a large file's end at first: the footer of a common one."""

SMALL_BYTES: Final = 1 << 20
"""A file up to this size is read whole, at once with others."""

SMALL_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """The stream whose files are read; what the footer of each must say."""

    stream: int
    topic_id: bytes
    partition: int


@dataclass(frozen=True, slots=True)
class RowGroupData:
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
            raise file_trouble(error, self.piece) from error


async def feed_groups(
    objects: ObjectStore,
    source: StreamIdentity,
    pieces: Sequence[TablePiece],
    work: Callable[[RowGroupData], None],
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
            held = done[1] if isinstance(done[1], RowGroupData) else None


async def _end(objects: ObjectStore, piece: TablePiece) -> memoryview:
    """The end of the file with its footer; the whole of a small file."""
    wanted = piece.size_bytes if piece.size_bytes <= SMALL_BYTES else FOOTER_BYTES
    end = await _read_file(objects, piece, ByteRange(piece.size_bytes - wanted, piece.size_bytes))
    needed = footer_bytes(end[-TAIL_BYTES:])
    if needed <= len(end):
        return end
    start = max(0, piece.size_bytes - needed)
    return await _read_file(objects, piece, ByteRange(start, piece.size_bytes))


def file_trouble(error: Failure, piece: TablePiece) -> TroubleError:
    """What ends a task because of this file."""
    trouble = Trouble.UNAVAILABLE
    if isinstance(error, NotFound):
        trouble = Trouble.MISSING
    elif isinstance(error, Corrupt):
        trouble = Trouble.CORRUPT
    return TroubleError(trouble, str(error), piece.key, piece.start, piece.end)


async def _groups(
    objects: ObjectStore, source: StreamIdentity, pieces: Sequence[TablePiece]
) -> AsyncGenerator[RowGroupData, None]:
    for some in _small_ones_together(pieces):
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
                    data = await _read_file(
                        objects, piece, ByteRange(group.byte_start, group.byte_end)
                    )
                yield RowGroupData(piece, file, number, data)


async def _opened(
    objects: ObjectStore, source: StreamIdentity, piece: TablePiece
) -> tuple[TableFile, memoryview]:
    """The file by its footer, which must say what the index says, and what was read of its end."""
    try:
        end = await _end(objects, piece)
        file = TableFile.open(end, size_bytes=piece.size_bytes)
        _check(file, source, piece)
    except Corrupt as error:
        raise file_trouble(error, piece) from error
    return file, end


def _small_ones_together(pieces: Sequence[TablePiece]) -> Iterator[list[TablePiece]]:
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


async def _read_file(objects: ObjectStore, piece: TablePiece, span: ByteRange) -> memoryview:
    try:
        (data,) = await objects.get_ranges(piece.key, [span])
    except Failure as error:
        raise file_trouble(error, piece) from error
    return data


def _check(file: TableFile, source: StreamIdentity, piece: TablePiece) -> None:
    origin = file.origin
    found = StreamIdentity(origin.stream, origin.topic_id, origin.partition)
    if found != source:
        raise Corrupt(f"the file is of {found}, not of {source}")
    if origin.end != piece.end or origin.start > piece.start:
        raise Corrupt(f"the file holds [{origin.start}, {origin.end}), its entry does not")
    if file.row_groups and not piece.in_table:
        raise Corrupt("the file has rows, and the table does not name it")
