"""The input of a worker: pieces of WAL objects, read in slices, each object of a slice once.

A worker never raises for its input: what is missing, damaged or unreadable is a `TroubleError` that
names the object and the offsets, and becomes the task's answer.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast

from lakelog.log.plan import coalesce
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.model.ids import DomainId, WalId
from lakelog.model.ranges import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.tasks import CompactionFailure, Trouble, WalPiece
from lakelog.wal.ids import object_key

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


async def feed(
    objects: ObjectStore,
    domain: int,
    pieces: Sequence[WalPiece],
    work: Callable[[Slice], None],
    *,
    pool: Executor | None,
) -> None:
    """Give all pieces to `work`, slice by slice; the next is read while it works in the pool."""
    held: Slice = ()
    for some in [*_slices(pieces), ()]:
        done = await asyncio.gather(
            run_in(pool, partial(work, held)),
            _read(objects, domain, some),
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


def _slices(pieces: Sequence[WalPiece]) -> Iterator[tuple[WalPiece, ...]]:
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


async def _read(objects: ObjectStore, domain: int, pieces: Sequence[WalPiece]) -> Slice:
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
