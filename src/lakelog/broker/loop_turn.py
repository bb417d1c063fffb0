"""The loop's time, shared by requests that name much, so that it never stands still for long (R2).

asyncio runs everything that is ready before it looks at sockets and timers again: that is a turn.
It is not enough that each large request pauses after a while, because a hundred of them may be
ready in the same turn. So they share one allowance a turn; when it is used up they queue, and each
turn lets one of them go on. A request that names little neither counts nor waits.

Encoding and decoding cannot pause; what is large is done on a thread, where the loop gets its share
from the interpreter. The hop costs about 0.1 ms.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final, Generic, Self, TypeVar

from msgspec import Struct

from lakelog.clock import Clock

HELD_S_MAX: Final = 0.01
"""The time of one turn that large requests may take together."""

ITEMS_PER_LOOK: Final = 32
"""So many items (partitions, names, resources) are done before the clock is read."""

SLOW_BYTES_MIN: Final = 128 * 1024
"""Requests from here on are decoded on a thread; hostile ones take 20 ms then."""

SLOW_ITEMS_MIN: Final = 500
"""Answers with so many items are encoded on a thread."""

THREADS_MAX: Final = 2

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class LoopTurn:
    """What is left of the allowance, and who waits for a turn."""

    __slots__ = ("_clock", "_held_s", "_is_awaited", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held_s = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_awaited = False

    def parts(self, items: Sequence[ItemT]) -> "LoopParts[ItemT]":
        """The items in parts, with pauses between them: `async for part in turn.parts(items)`."""
        return LoopParts(self, items)

    async def take(self) -> None:
        """Return when something large may be begun; `spent` says how long it took."""
        if self._held_s <= HELD_S_MAX and not self._waiting:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if not self._is_awaited:
            self._is_awaited = True
            asyncio.get_running_loop().call_soon(self._begin)
        await waiter

    def now_s(self) -> float:
        """The time to measure by."""
        return self._clock.monotonic_s()

    def spent(self, since_s: float) -> None:
        """Count the time since then."""
        self._held_s += self._clock.monotonic_s() - since_s

    def _begin(self) -> None:
        """A new turn: the next one goes on."""
        self._held_s = 0.0
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():  # one whose connection is gone was cancelled
                waiter.set_result(None)
                break
        self._is_awaited = bool(self._waiting)
        if self._is_awaited:
            asyncio.get_running_loop().call_soon(self._begin)


class LoopParts(Generic[ItemT]):
    """Items in parts of `ITEMS_PER_LOOK`; between them others may get their turn."""

    __slots__ = ("_began_s", "_items", "_start", "_turn")

    def __init__(self, turn: LoopTurn, items: Sequence[ItemT]) -> None:
        self._turn = turn
        self._items = items
        self._start = 0
        self._began_s = 0.0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[ItemT]:
        items, start = self._items, self._start
        is_large = len(items) > ITEMS_PER_LOOK
        if is_large and start:
            self._turn.spent(self._began_s)
        if start >= len(items):
            raise StopAsyncIteration
        self._start = start + ITEMS_PER_LOOK
        if not is_large:
            return items
        await self._turn.take()
        self._began_s = self._turn.now_s()
        return items[start : self._start]


def is_large(answer: Struct) -> bool:
    """Whether encoding the answer may hold up the loop: its items, and theirs, are counted."""
    count = 0
    for name in answer.__struct_fields__:
        items = getattr(answer, name)
        if not isinstance(items, tuple):
            continue
        count += len(items)
        if count >= SLOW_ITEMS_MIN:
            return True
        for item in items:
            if isinstance(item, Struct):
                count += _items_of(item)
        if count >= SLOW_ITEMS_MIN:
            return True
    return False


def _items_of(item: Struct) -> int:
    fields = (getattr(item, name) for name in item.__struct_fields__)
    return sum(len(field) for field in fields if isinstance(field, tuple))


def on_thread(work: Callable[..., ResultT], *arguments: object) -> "asyncio.Future[ResultT]":
    """Do something that cannot pause on a thread of the process's pool for it."""
    return asyncio.get_running_loop().run_in_executor(_pool(), work, *arguments)


@cache
def _pool() -> ThreadPoolExecutor:
    """Made when the first large message comes; its threads end with the process."""
    return ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="messages")
