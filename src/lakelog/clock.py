"""The only reader of time and chance, and the parent of background tasks.

Everything above takes a `Clock` and an `Entropy`, so that a simulation can own both. Nothing else
in the package may read the clock, draw a random number or start a task without a parent.
"""

import asyncio
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

BACKGROUND_NICENESS: Final = 5
"""Measured: with this a tail's latency beside a catching-up reader halves, and more costs it."""

_BEGAN_NS: Final = time.time_ns()
"""Tells one process from an earlier one with its number."""


class Clock(Protocol):
    """Two readings of time: one that humans share and one that only moves forward."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; it may jump."""

    def monotonic_s(self) -> float:
        """Seconds from some start; never goes back. Deadlines and durations use this."""


class Uptime(Protocol):
    """How long this machine has been running: what nobody can set."""

    def boot(self) -> str:
        """A name for the time since the machine was started, unique."""

    def uptime_s(self) -> float:
        """Seconds since then, those in which it was suspended included where it counts them."""


class Entropy(Protocol):
    """A source of chance."""

    def token(self, size: int) -> bytes:
        """That many unpredictable bytes."""

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; it may jump."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from some start; never goes back."""
        return time.monotonic()


class SystemUptime:
    """What the kernel counts."""

    def __init__(self) -> None:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                self._boot = file.read().strip()
        except OSError:
            # Not Linux: what is counted is known to be the same only in this process.
            self._boot = f"process-{os.getpid()}-{_BEGAN_NS}"

    def boot(self) -> str:
        """A name for the time since the machine was started, unique."""
        return self._boot

    def uptime_s(self) -> float:
        """Seconds since then. Linux counts a suspend here and not in its monotonic clock."""
        counted = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime(counted)


class SystemEntropy:
    """The operating system's source of randomness."""

    def token(self, size: int) -> bytes:
        """That many unpredictable bytes."""
        return os.urandom(size)

    def below(self, bound: int) -> int:
        """A number in [0, bound)."""
        return int.from_bytes(os.urandom(8), "big") % bound


class SeededEntropy:
    """Chance that repeats: for simulations and tests, never for ids that outlive a process."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def token(self, size: int) -> bytes:
        """That many bytes of the seed's stream."""
        return self._random.randbytes(size)

    def below(self, bound: int) -> int:
        """A number in [0, bound) of the seed's stream."""
        return self._random.randrange(bound)


async def agreed_now_ms(
    clock: Clock, skew_ms: Callable[[], Awaitable[int]], *, skew_max_ms: int
) -> int | None:
    """The time, if it may be used to delete what is old (rule 20); else None.

    The clock is read before and after the comparison: one that jumps and comes back between
    reading and comparing would be found right.
    """
    before_ms = clock.now_ms()
    apart_ms = await skew_ms()
    moved_ms = clock.now_ms() - before_ms
    return before_ms if max(abs(apart_ms), abs(moved_ms)) <= skew_max_ms else None


def lower_priority() -> None:
    """Let the machine's other threads go before the one that calls this.

    For threads that read for whoever is behind: who waits at the end of the log goes first. Where a
    thread has no priority of its own nothing changes.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BACKGROUND_NICENESS)


class Tasks:
    """The parent of background tasks: it keeps them alive, hears their failure, ends them all.

    A failure is a bug or a named fatal condition; it is kept, and `failed` and `close` raise it, so
    that a component never dies in silence.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Run `work` until it ends or `close` is called."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def failed(self) -> None:
        """Wait until a task fails, then raise what it raised."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._failure)

    async def close(self) -> None:
        """Cancel what runs, wait for it, and raise the first failure if nobody heard it yet."""
        for task in list(self._running):
            task.cancel()
        while self._running:
            await asyncio.wait(list(self._running))
        if self._failure is not None and self._failure.done() and not self._failure.cancelled():
            self._failure.result()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # it waits for whoever asks; a killed process never does
