"""Many small reads at the price of few: what is asked for in one turn of the loop goes together.

A hop to a thread and back costs several times as much as reading a small file that the system has
in memory, and whoever catches up on a quiet topic reads thousands of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lakelog.model.failures import Failure
from lakelog.model.ranges import ByteRange

READS_PER_HOP: Final = 32
"""More are spread over the threads, so that a slow disk is asked for several things at once."""

Ranges = Sequence[ByteRange] | None
Read = Callable[[str, Ranges], list[memoryview]]


class _Asked(NamedTuple):
    key: str
    ranges: Ranges
    answer: "asyncio.Future[list[memoryview]]"


class ReadTogether:
    """Collects reads and hands them to a pool in bunches."""

    def __init__(self, pool: ThreadPoolExecutor, read: Read) -> None:
        self._pool = pool
        self._read = read
        self._asked: list[_Asked] = []

    async def read(self, key: str, ranges: Ranges) -> list[memoryview]:
        """What `read` returns or raises, read on a thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[memoryview]] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._send, loop)
        self._asked.append(_Asked(key, ranges, answer))
        return await answer

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), READS_PER_HOP):
            bunch = asked[start : start + READS_PER_HOP]
            try:
                self._pool.submit(self._work, loop, bunch)
            except RuntimeError as error:  # the pool was shut down meanwhile
                _deliver(bunch, [OSError(str(error))] * len(bunch))

    def _work(self, loop: asyncio.AbstractEventLoop, bunch: list[_Asked]) -> None:
        results: list[list[memoryview] | Exception] = []
        for asked in bunch:
            try:
                results.append(self._read(asked.key, asked.ranges))
            except (OSError, Failure) as error:
                results.append(error)
        loop.call_soon_threadsafe(_deliver, bunch, results)


def _deliver(bunch: list[_Asked], results: Sequence[list[memoryview] | Exception]) -> None:
    for asked, result in zip(bunch, results, strict=True):
        if asked.answer.done():
            continue  # nobody waits any more
        if isinstance(result, Exception):
            asked.answer.set_exception(result)
        else:
            asked.answer.set_result(result)
