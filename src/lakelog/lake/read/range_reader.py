"""The rows of a pinned range, in order of offsets, wherever they lie by now.

Rules:

- A range holds the same records for ever (C1); the plan's entries are only hints. When an object
  is gone, the index is asked for the same range again, from the first row that was not given yet,
  and the read goes on. So a plan may be hours old.
- What retention took meanwhile is `DataLoss`, or left out, as `failOnDataLoss` says. So is a batch
  that is intact and cannot be read, which no consumer could read either.
- Memory is bounded by some fetches of a few MiB and the batch that is made.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lakelog.clock import Tasks
from lakelog.index.entries import LocatedRange, no_entries
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_fetch import ObjectGone, Portion, RangeRead, fetches
from lakelog.lake.read.range_plan import DataLoss, PlannedRange
from lakelog.lake.read.row_decoder import RowMaker, SmallBatches
from lakelog.lake.read.shared_reads import ByteSource
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.records.table_rows import UnreadableBatchError

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD: Final = 4
"""Portions that are on their way while one is turned into rows."""

MOVES_MAX: Final = 16
"""How often in a row a plan may turn out to be old before a single row could be read."""

ResultT = TypeVar("ResultT")


Locate: TypeAlias = Callable[[PinnedRange], Awaitable[LocatedRange | None]]
"""Asks the index for the entries of a range; None when the stream is gone."""


@dataclass(frozen=True, slots=True)
class RowOptions:
    """How rows are read."""

    columns: tuple[str, ...]
    fail_on_data_loss: bool = True
    pool: Executor | None = None
    """Where rows are made; without one, in the loop."""
    note: Callable[[str], None] = field(default=lambda _: None)
    """Hears of what was left out."""
    since_us: int | None = None
    """Rows that are older need not be given, and some are not."""


async def read_range(
    objects: ByteSource, hinted: PlannedRange, locate: Locate, options: RowOptions
) -> "AsyncGenerator[pa.RecordBatch, None]":
    """All rows of the range as batches of some MiB; raises `DataLoss` and `Corrupt`."""
    pinned = hinted.pinned
    maker = RowMaker(options.columns, topic=pinned.topic, partition=pinned.partition)
    skip = partial(_skipped, options)
    held = SmallBatches()
    position, moves, gone = pinned.start, 0, ""
    while position < pinned.end:
        reading = RangeRead(objects, hinted, maker, skip, options.since_us)
        try:
            async with aclosing(_fetched(reading)) as portions:
                async for portion in portions:
                    rows = portion.rows()
                    while (batch := await _run_in(options.pool, partial(_next, rows))) is not None:
                        full = held.add(batch)
                        if full is not None:
                            yield full
                    position, moves, gone = max(position, portion.end), 0, ""
            position = pinned.end  # a data file without rows has no portion
        except ObjectGone as missing:
            moves += 1
            if missing.key == gone or moves > MOVES_MAX:
                raise NotFound(f"{missing}, and the index names it for {pinned}") from missing
            gone = missing.key
            hinted = await _moved(hinted, position, locate, options)
            position = hinted.pinned.start
    rest = held.take()
    if rest is not None:
        yield rest


async def _moved(
    hinted: PlannedRange, position: int, locate: Locate, options: RowOptions
) -> PlannedRange:
    """What is left of the range from the position on, where it lies now."""
    left = replace(hinted.pinned, start=position)
    return placed(left, await locate(left), options)


def placed(wanted: PinnedRange, found: LocatedRange | None, options: RowOptions) -> PlannedRange:
    """The range with its entries, without what was trimmed, if that may be; else `DataLoss`."""
    log_start = wanted.end if found is None else found.log_start
    if log_start > wanted.start:
        what = "its topic was deleted" if found is None else f"the log begins at {log_start} now"
        lost = f"{wanted} cannot be read any more: {what}"
        if options.fail_on_data_loss:
            raise DataLoss(f"{lost}; set failOnDataLoss to false to read what is there")
        options.note(lost)
        wanted = replace(wanted, start=min(log_start, wanted.end))
    if found is None or wanted.start == wanted.end:
        return PlannedRange(wanted, no_entries(0, wanted.start))
    if found.entries.start > wanted.start or found.entries.end < wanted.end:
        raise Corrupt(f"the index has no entries for all of {wanted}")
    return PlannedRange(wanted, found.entries)


def _skipped(options: RowOptions, error: UnreadableBatchError, key: str) -> None:
    if options.fail_on_data_loss:
        raise Corrupt(f"{key}: {error}; set failOnDataLoss to false to leave it out") from error
    options.note(f"{key}: {error}")


async def _fetched(reading: RangeRead) -> AsyncGenerator[Portion, None]:
    """The portions in order, some of them on their way already."""
    tasks = Tasks()
    window: deque[asyncio.Task[Portion]] = deque()
    try:
        async with aclosing(fetches(reading)) as pending:
            async for fetch in pending:
                window.append(tasks.spawn(fetch.fetch(), name="fetch"))
                if len(window) > AHEAD:
                    yield await window.popleft()
        while window:
            yield await window.popleft()
    finally:
        with suppress(Failure):  # whoever waited for it has heard of it
            await tasks.close()


def _next(rows: "Iterator[pa.RecordBatch]") -> "pa.RecordBatch | None":
    return next(rows, None)


async def _run_in(pool: Executor | None, work: Callable[[], ResultT]) -> ResultT:
    if pool is None:
        return work()
    return await asyncio.get_running_loop().run_in_executor(pool, work)
