"""Reading data files: row groups become runs of batches, like what a WAL object holds.

A data file's entry is as large as the file, so a read looks at its row groups instead: the footer
is read once and kept, and each row group is a piece of its own. Rows are rebuilt on threads of
their own and kept in a cache of their own, so cold reads push out neither the tail nor each other:
a request brings in one row group at the least when it needs some, and more while there is room.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Final, TypeVar

from lakelog.log.cache import PartCache, Run, run_of
from lakelog.log.options import LogOptions
from lakelog.log.plan import Piece, StreamPlan
from lakelog.log.wal_source import UNLIMITED
from lakelog.model.failures import Corrupt
from lakelog.model.ids import ByteRange
from lakelog.objects.port import ObjectStore
from lakelog.records.header import BatchError
from lakelog.records.table_batches import batches_from_rows, empty_batches
from lakelog.records.table_bytes import TAIL_BYTES, footer_bytes
from lakelog.records.table_file import TableFile
from lakelog.records.table_schema import TIMESTAMP_US_MAX, RowGroup
from lakelog.streams.objects import FileName, ObjectName
from lakelog.telemetry import MetricsRegistry

FOOTER_GUESS_BYTES: Final = 64 << 10
"""What is read of a file's end at first: the footer of about thirty row groups."""


async def read_end(objects: ObjectStore, key: str, size_bytes: int) -> memoryview:
    """What `TableFile.open` needs; `Corrupt` for what is no data file of that size."""
    start = max(0, size_bytes - FOOTER_GUESS_BYTES)
    (end,) = await objects.get_ranges(key, [ByteRange(start, size_bytes)])
    needed = footer_bytes(end[-TAIL_BYTES:])
    if needed > size_bytes:
        raise Corrupt(f"{key} has {size_bytes} bytes, its footer would have {needed}")
    if needed > len(end):
        (end,) = await objects.get_ranges(key, [ByteRange(size_bytes - needed, size_bytes)])
    return end


ResultT = TypeVar("ResultT")

FOOTERS_MAX: Final = 256
"""Footers that are kept: about 100 kB each, when files are large."""


class ParquetSource:
    """The data files that the index of one domain names."""

    has_parts = True
    is_ranged = False
    read_bytes_max = UNLIMITED

    def __init__(self, objects: ObjectStore, options: LogOptions, metrics: MetricsRegistry) -> None:
        self._objects = objects
        self._options = options
        self._metrics = metrics
        self._files: OrderedDict[ObjectName, TableFile] = OrderedDict()
        self._runs = PartCache(options.table_cache_bytes)
        self._loading: dict[tuple[ObjectName, int], asyncio.Future[None]] = {}
        self._reads = asyncio.Semaphore(options.table_reads_max)
        self._group_bytes = options.table_group_bytes
        """Called whenever rows become batches."""

    def cached(self, piece: Piece) -> Run | None:
        """The run of a row group, if it is in memory."""
        return self._runs.use((piece.name, piece.byte_start))

    def spend(self, piece: Piece, run: Run) -> None:
        """Somebody read this row group to its end: it may go, but others may come for it yet."""
        self._runs.spend((piece.name, piece.byte_start), run)

    def room_bytes(self) -> int:
        """What can be brought in without pushing out what somebody has not read to its end."""
        return self._runs.room_bytes()

    def knows(self, piece: Piece) -> bool:
        """Whether the footer of the piece's file is in memory."""
        return piece.name in self._files

    def known_parts(self, piece: Piece, *, offset: int) -> Iterable[Piece]:
        """The entry as it is: its row groups are brought in by `admit`."""
        del offset
        return (piece,)

    async def open(self, plans: Sequence[StreamPlan]) -> None:
        """Footers are read with the first row group that is needed."""

    def reads_whole(self, name: ObjectName) -> bool:
        """Parts of it are read."""
        del name
        return False

    async def load(self, name: ObjectName, pieces: Sequence[Piece]) -> None:
        """Bring these row groups into memory."""
        del name
        await asyncio.gather(*(self.run(piece) for piece in pieces))

    async def admit(self, plans: Sequence[StreamPlan]) -> set[int]:
        """Bring in row groups that the plans, all of data files, begin with.

        Returns the streams that have to wait their turn: otherwise many readers of the far past
        would push out each other's row groups before they were read to their end. A group that
        fails to load is left to whoever serves its stream.
        """
        firsts = await asyncio.gather(
            *(self.parts(plan.pieces[0], offset=plan.wanted.offset) for plan in plans),
            return_exceptions=True,
        )
        found = [
            (plan, parts[0])
            for plan, parts in zip(plans, firsts, strict=True)
            if not isinstance(parts, BaseException)
        ]
        cold = [(plan, first) for plan, first in found if self.cached(first) is None]
        # Nobody has to be let in while somebody is served: who is first in line would push out
        # what another is reading, in each request another one.
        is_served = len(cold) < len(found)
        room = self.room_bytes()
        loads: list[Piece] = []
        later: set[int] = set()
        for plan, first in cold:
            if room >= self._group_bytes or not (is_served or loads):
                room -= self._group_bytes
                loads.append(first)
            else:
                later.add(plan.wanted.stream)
        await asyncio.gather(*(self.run(piece) for piece in loads), return_exceptions=True)
        return later

    async def parts(self, piece: Piece, *, offset: int) -> list[Piece]:
        """The row groups of a data file's entry from an offset on, each a piece of its own."""
        file = await self._file(piece)
        if file.origin.start > piece.start or file.origin.end < piece.end:
            raise Corrupt(f"{_key(piece.name)} does not hold the offsets of its entry")
        if not file.row_groups:
            # What the file stands for holds no row: one piece that reads nothing.
            return [_part(piece, RowGroup(piece.start, piece.end, 0, 0, 0, 0, 0))]
        at = max(offset, piece.start)
        first = bisect_right(file.row_groups, at, key=lambda group: group.end)
        end = bisect_left(file.row_groups, piece.end, key=lambda group: group.start)
        return [_part(piece, group) for group in file.row_groups[first:end]]

    async def run(self, piece: Piece) -> Run:
        """The batches of one row group, each group read once, whoever asks meanwhile."""
        mark = (piece.name, piece.byte_start)
        while (running := self._loading.get(mark)) is not None:
            await asyncio.shield(running)
        run = self._runs.get(mark)
        if run is not None:
            return run
        done = self._loading[mark] = asyncio.get_running_loop().create_future()
        try:
            async with self._reads:
                run = await self._load(piece)
            # One that is larger than thought would push out another that is being read, and that
            # one the next: room is judged by the largest.
            self._group_bytes = max(self._group_bytes, run.size_bytes)
            self._runs.put(mark, run)
            return run
        finally:
            del self._loading[mark]
            done.set_result(None)

    async def _load(self, piece: Piece) -> Run:
        if not piece.byte_length:
            return run_of([memoryview(batch) for batch in empty_batches(piece.start, piece.end)])
        file = await self._file(piece)
        self._metrics.objects_got.inc()
        span = ByteRange(piece.byte_start, piece.byte_start + piece.byte_length)
        (data,) = await self._objects.get_ranges(_key(piece.name), [span])
        return await self._work(
            partial(_rebuild, file, piece, data, self._options.table_batch_bytes)
        )

    async def _file(self, piece: Piece) -> TableFile:
        """The file with its footer, read when it is not known yet."""
        file = self._files.get(piece.name)
        if file is None:
            file = await self._open(_key(piece.name), piece.object_bytes)
            self._files[piece.name] = file
            while len(self._files) > FOOTERS_MAX:
                self._files.popitem(last=False)
        self._files.move_to_end(piece.name)
        return file

    async def _open(self, key: str, size_bytes: int) -> TableFile:
        self._metrics.objects_got.inc()
        end = await read_end(self._objects, key, size_bytes)
        return await self._work(partial(TableFile.open, end, size_bytes=size_bytes))

    def _work(self, work: Callable[[], ResultT]) -> Awaitable[ResultT]:
        """Do this on a thread, or here and now where there are to be none."""
        if self._options.table_threads:
            pool = _pool(self._options.table_threads)
            return asyncio.get_running_loop().run_in_executor(pool, work)
        return _now(work)


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lakelog-tables")


async def _now(work: Callable[[], ResultT]) -> ResultT:
    return work()


def _key(name: ObjectName) -> str:
    assert isinstance(name, FileName), name
    return name.key


def _part(piece: Piece, group: RowGroup) -> Piece:
    """A row group as a piece; a clamped timestamp says no more than the entry's own."""
    max_timestamp_ms = piece.max_timestamp_ms
    if group.max_timestamp_us < TIMESTAMP_US_MAX:
        max_timestamp_ms = min(max_timestamp_ms, group.max_timestamp_us // 1000)
    return Piece(
        max(piece.start, group.start),
        min(piece.end, group.end),
        group.byte_start,
        group.byte_end - group.byte_start,
        piece.name,
        piece.object_bytes,
        max_timestamp_ms,
    )


def _rebuild(file: TableFile, piece: Piece, data: memoryview, bytes_max: int) -> Run:
    """The batches of a row group that lie in its piece."""
    starts = [group.byte_start for group in file.row_groups]
    rows = file.read(starts.index(piece.byte_start), data)
    limit = min(bytes_max, file.origin.batch_bytes_max)
    try:
        made = batches_from_rows(rows, start=piece.start, end=piece.end, batch_bytes_max=limit)
    except BatchError as error:
        raise Corrupt(f"{_key(piece.name)}: {error}") from error
    return run_of([memoryview(batch) for batch in made])
