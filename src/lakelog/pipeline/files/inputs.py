"""The inputs of workers: WAL objects, segments, and data files by their row groups, all checked.

A worker never raises for its input: what is missing, damaged, unreadable or not what the index says
is a `InputError` that names the object and the offsets, and becomes the task's answer.

WAL objects are read in slices, each object of a slice once, and segments a few MiB at once. Data
files are read row group by row group: memory is bounded by two row groups, one that is read and one
that is worked on, and by a few small files, which are read whole and together: they mostly wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from lakelog.log.plan import coalesce, cut_out
from lakelog.log.wal_source import walk_run
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ids import ByteRange, DomainId, WalId
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileFailure,
    SegmentPiece,
    TablePiece,
    WalInputs,
    WalPiece,
)
from lakelog.records.fetched_batches import FetchedBatches
from lakelog.records.segment_file import (
    HEADER,
    SegmentMap,
    parse_segment,
    tail_bytes,
    verify_batches,
)
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile
from lakelog.wal.layout import object_key

if TYPE_CHECKING:
    import pyarrow as pa

ResultT = TypeVar("ResultT")

READ_BYTES: Final = 8 << 20
"""Bytes that are read at once; of WAL objects the next are read while these are worked on."""

Slice: TypeAlias = tuple[tuple[WalPiece, memoryview], ...]
"""Pieces with their bytes."""


AddRun: TypeAlias = Callable[[memoryview, FetchedBatches], None]
"""Takes in a run of WAL objects: its bytes, and the batches in them with their offsets."""


class InputError(Exception):
    """Ends a task; becomes its answer. Empty `key`: no object is at fault."""

    def __init__(self, trouble: FailureKind, reason: str, key: str, start: int, end: int) -> None:
        super().__init__(reason)
        self.trouble = trouble
        self.key = key
        self.start = start
        self.end = end

    def answer(self, task_id: str, attempt: str) -> FileFailure:
        """The answer to the task that it ended."""
        return FileFailure(
            task_id, attempt, self.trouble, str(self), self.key, self.start, self.end
        )


def trouble_of(error: Failure, key: str, start: int, end: int) -> InputError:
    """What ends a task because this object of these offsets cannot be read."""
    trouble = FailureKind.UNAVAILABLE
    if isinstance(error, NotFound):
        trouble = FailureKind.MISSING
    elif isinstance(error, Corrupt):
        trouble = FailureKind.CORRUPT
    return InputError(trouble, str(error), key, start, end)


async def run_in(pool: Executor | None, work: Callable[[], ResultT]) -> ResultT:
    """Do this in the pool, or here and now where there is none."""
    if pool is None:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def piece_key(domain: int, piece: WalPiece) -> str:
    """The key of the object that a piece lies in."""
    return object_key(piece.zone, DomainId(domain), WalId(piece.wal_id))


async def feed_wal(
    objects: ObjectStore,
    inputs: WalInputs,
    add: AddRun,
    *,
    pool: Executor | None,
) -> None:
    """Give the bytes of each piece and its batches to `add`.

    The next slice is read while `add` works in the pool.
    """
    held: Slice = ()
    for pieces in [*_wal_slices(inputs.pieces), ()]:
        done = await asyncio.gather(
            run_in(pool, partial(_add_slice, inputs.domain, held, add)),
            _read_wal(objects, inputs.domain, pieces),
            return_exceptions=True,  # so that neither goes on when the task has ended
        )
        held = _second(*done)


def _add_slice(domain: int, held: Slice, add: AddRun) -> None:
    for piece, run in held:
        key = piece_key(domain, piece)
        try:
            batches = walk_run(run, piece.start)
        except Corrupt as error:
            raise trouble_of(error, key, piece.start, piece.end) from error
        end = batches.next_offset(piece.start)
        if end != piece.end:
            reason = f"the batches from {piece.start} on end at {end} and not {piece.end}"
            raise InputError(FailureKind.CORRUPT, reason, key, piece.start, piece.end)
        add(run, batches)


def _second(first: BaseException | None, second: BaseException | ResultT) -> ResultT:
    """The second outcome, unless either is a failure."""
    for error in (first, second):
        if isinstance(error, BaseException):
            raise error
    return cast("ResultT", second)


def _wal_slices(pieces: Sequence[WalPiece]) -> Iterator[tuple[WalPiece, ...]]:
    gathered: list[WalPiece] = []
    size_bytes = 0
    for piece in pieces:
        if gathered and size_bytes + piece.byte_length > READ_BYTES:
            yield tuple(gathered)
            gathered, size_bytes = [], 0
        gathered.append(piece)
        size_bytes += piece.byte_length
    if gathered:
        yield tuple(gathered)


async def _read_wal(objects: ObjectStore, domain: int, pieces: Sequence[WalPiece]) -> Slice:
    """The pieces with their bytes, each object read once."""
    by_object: dict[str, list[WalPiece]] = {}
    for piece in pieces:
        by_object.setdefault(piece_key(domain, piece), []).append(piece)
    reads = (_read_object(objects, key, group) for key, group in by_object.items())
    runs: dict[WalPiece, memoryview] = {}
    for runs_of_object in await asyncio.gather(*reads):
        runs |= runs_of_object
    return tuple((piece, runs[piece]) for piece in pieces)


async def _read_object(
    objects: ObjectStore, key: str, pieces: Sequence[WalPiece]
) -> dict[WalPiece, memoryview]:
    spans = [ByteRange(piece.byte_start, piece.byte_start + piece.byte_length) for piece in pieces]
    merged = coalesce(spans)
    try:
        contents = await objects.get_ranges(key, merged)
    except Failure as error:
        raise trouble_of(error, key, pieces[0].start, pieces[-1].end) from error
    return dict(zip(pieces, cut_out(spans, merged, contents), strict=True))


async def feed_segments(
    objects: ObjectStore,
    pieces: Sequence[SegmentPiece],
    add: Callable[[list[memoryview]], None],
    *,
    pool: Executor | None,
) -> None:
    """Give the batches of all segments to `add`; whatever is wrong with a segment names it."""
    for piece in pieces:
        try:
            segment = await _open_segment(objects, piece)
            for span, start, end in _segment_slices(segment):
                (data,) = await objects.get_ranges(piece.key, [span])
                batches = await run_in(pool, partial(verify_batches, data, start=start, end=end))
                await run_in(pool, partial(add, batches))
        except Failure as error:
            raise trouble_of(error, piece.key, piece.start, piece.end) from error


async def _open_segment(objects: ObjectStore, piece: SegmentPiece) -> SegmentMap:
    size_bytes = piece.size_bytes
    (head,) = await objects.get_ranges(piece.key, [ByteRange(0, min(HEADER.size, size_bytes))])
    needed = tail_bytes(head)
    if needed > size_bytes:
        raise Corrupt(f"{size_bytes} bytes, index and footer would have {needed}")
    (tail,) = await objects.get_ranges(piece.key, [ByteRange(size_bytes - needed, size_bytes)])
    segment = parse_segment(head, tail, size_bytes=size_bytes)
    if not segment.entries or segment.start > piece.start or segment.end != piece.end:
        raise Corrupt(f"it holds [{segment.start}, {segment.end}), or has no index")
    return segment


def _segment_slices(segment: SegmentMap) -> Iterator[tuple[ByteRange, int, int]]:
    """Bytes and offsets [start, end) of a segment, a few MiB at once."""
    start, position = segment.start, HEADER.size
    for entry in segment.entries[1:]:
        if entry.position - position >= READ_BYTES:
            yield ByteRange(position, entry.position), start, entry.offset
            start, position = entry.offset, entry.position
    yield ByteRange(position, segment.body_end), start, segment.end


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
        """Its rows, checked; raises `InputError`."""
        try:
            return self.file.read(self.number, self.data, columns=columns)
        except Corrupt as error:
            raise _file_trouble(error, self.piece) from error


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


def _file_trouble(error: Failure, piece: TablePiece) -> InputError:
    return trouble_of(error, piece.key, piece.start, piece.end)


async def _groups(
    objects: ObjectStore, source: StreamIdentity, pieces: Sequence[TablePiece]
) -> AsyncGenerator[RowGroupData, None]:
    for together in _small_ones_together(pieces):
        reads = [_opened(objects, source, piece) for piece in together]
        for piece, opened in zip(
            together, await asyncio.gather(*reads, return_exceptions=True), strict=True
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
        raise _file_trouble(error, piece) from error
    return file, end


def _small_ones_together(pieces: Sequence[TablePiece]) -> Iterator[list[TablePiece]]:
    """Small files in a few at once, others one by one."""
    gathered: list[TablePiece] = []
    for piece in pieces:
        if gathered and (piece.size_bytes > SMALL_BYTES or len(gathered) == SMALL_AT_ONCE):
            yield gathered
            gathered = []
        gathered.append(piece)
        if piece.size_bytes > SMALL_BYTES:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


async def _read_file(objects: ObjectStore, piece: TablePiece, span: ByteRange) -> memoryview:
    try:
        (data,) = await objects.get_ranges(piece.key, [span])
    except Failure as error:
        raise _file_trouble(error, piece) from error
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
