"""Splits read on a thread of their own, several at once, and given in order to a caller that waits.

Whoever calls has no loop, or one that must not be blocked, as a notebook has. So the reading runs
on a loop of its own; its thread and everything that is open are gone when the last batch was taken
or the iterator is closed. Memory is bounded by some batches of each split.
"""

import asyncio
import threading
from collections.abc import Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lakelog.clock import Tasks
from lakelog.reading.rows import RowOptions
from lakelog.reading.source import Reached, Source, open_source
from lakelog.reading.splits import Split

if TYPE_CHECKING:
    import pyarrow as pa

BATCHES_AHEAD: Final = 2
"""Batches of each split that wait to be taken."""

ResultT = TypeVar("ResultT")


def read_batches(
    reached: Reached, splits: Sequence[Split], options: RowOptions, *, threads: int
) -> "Generator[pa.RecordBatch, None, None]":
    """The rows of the splits, in order; nothing is open before the first is asked for."""
    if not splits:
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="lakelog-rows") as pool:
        running = _Running(reached, splits, replace(options, pool=pool), threads=threads)
        try:
            yield from running.batches()
        finally:
            running.stop()


def elsewhere(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run it on a thread: the caller's may have a loop already, as in a notebook."""
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-plan") as pool:
        return pool.submit(asyncio.run, work).result()


class _Running:
    """A read in progress: a loop on a thread of its own, and a queue for every split."""

    def __init__(
        self, reached: Reached, splits: Sequence[Split], options: RowOptions, *, threads: int
    ) -> None:
        self._reached = reached
        self._threads = threads
        self._splits = splits
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lakelog-read", daemon=True
        )
        self._queues: list[asyncio.Queue[pa.RecordBatch | BaseException | None]] = []
        self._tasks = Tasks()
        self._source: Source | None = None

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The batches of all splits, one split after another."""
        self._thread.start()
        self._call(self._start())
        for queue in self._queues:
            while (found := self._call(queue.get())) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found

    def stop(self) -> None:
        """End what runs; the loop and its thread are gone then."""
        if self._thread.is_alive():
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._source = await open_source(self._reached)
        slots = asyncio.Semaphore(self._threads)
        for split in self._splits:
            queue: asyncio.Queue[pa.RecordBatch | BaseException | None]
            queue = asyncio.Queue(BATCHES_AHEAD)
            self._queues.append(queue)
            work = self._pump(self._source, split, queue, slots)
            self._tasks.spawn(work, name="split")

    async def _pump(
        self,
        source: Source,
        split: Split,
        queue: "asyncio.Queue[pa.RecordBatch | BaseException | None]",
        slots: asyncio.Semaphore,
    ) -> None:
        """The rows of one split into its queue; the semaphore is fair, so the first go first."""
        async with slots:
            try:
                async with aclosing(source.read(split, self._options)) as rows:
                    async for batch in rows:
                        await queue.put(batch)
            except Exception as error:  # noqa: BLE001 - raised in the thread that asked
                await queue.put(error)
            await queue.put(None)

    async def _end(self) -> None:
        await self._tasks.close()
        if self._source is not None:
            await self._source.close()

    def _call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
