"""A virtual-time event loop: one thread, one seed, the same run every time.

Time moves only when nothing is ready to run. Everything that could differ between two runs is
taken away: threads (executors run inline), addresses (tasks and futures hash by birth order,
because asyncio keeps them in sets), the clock, and shared randomness (each actor has a stream of
its own, derived from the seed and its name). Interleavings come from seeded latency at the ports,
never from shuffling what is ready: asyncio promises first in, first out.

A `Process` is a group of tasks that can be stopped, continued and killed as a whole: what it has
scheduled is parked instead of run. A killed process never runs again, not even its `finally`.
"""

import asyncio
import contextvars
import hashlib
import math
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from lakelog.clock import SeededEntropy

T = TypeVar("T")
EPOCH_MS: Final = 1_800_000_000_000
"""Where the wall clocks of a simulation begin."""


class Deadlock(AssertionError):  # noqa: N818 - it reads as what happened
    """Every task waits and no timer is pending."""


TURNS_MAX: Final = 400_000
"""Of the loop in one simulation; the longest worlds take a fifth of it (72,000 in forty seeds)."""


class Livelock(AssertionError):  # noqa: N818 - it reads as what happened
    """Something goes on for ever, so the world never comes to its end."""


class _VirtualSelector(selectors.BaseSelector):
    """No file ever becomes ready; waiting is what moves the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turns_left = TURNS_MAX
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[id(fileobj)] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(id(fileobj))

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is pending")
        self.turns_left -= 1
        if not self.turns_left:
            self.turns_left = TURNS_MAX  # for the clearing up
            raise Livelock(f"{TURNS_MAX} turns of the loop, and the world has not come to its end")
        self.now_s += max(timeout, 0.0)
        return []


@dataclass(slots=True, eq=False)
class Process:
    """Tasks that live and die together."""

    name: str
    stopped: bool = False
    dead: bool = False
    parked: list[tuple[Callable[..., Any], tuple[Any, ...], contextvars.Context]] = field(
        default_factory=list
    )


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def current_process() -> Process | None:
    """The process whose code runs now; None for the world itself."""
    return _process.get()


class _SimTask(asyncio.Task[Any]):
    """A task whose hash is its birth order, so that sets of tasks iterate alike in every run."""

    __slots__ = ("_order", "process")

    def __init__(
        self,
        work: Any,
        *,
        order: int,
        context: contextvars.Context | None = None,
        loop: Any,
        **options: Any,
    ) -> None:
        self._order = order
        self.process = context.get(_process) if context is not None else _process.get()
        super().__init__(work, loop=loop, context=context, **options)

    def __hash__(self) -> int:
        return self._order

    def __eq__(self, other: object) -> bool:
        return self is other


class _SimFuture(asyncio.Future[Any]):
    """A future with such a hash."""

    __slots__ = ("_order",)

    def __init__(self, *, order: int, loop: asyncio.AbstractEventLoop) -> None:
        self._order = order
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._order

    def __eq__(self, other: object) -> bool:
        return self is other


class SimLoop(asyncio.SelectorEventLoop):
    """The loop. `note` adds to the trace whose hash two equal runs share."""

    def __init__(self, seed: int) -> None:
        self._virtual = _VirtualSelector()
        self._born = 0
        super().__init__(self._virtual)
        self.seed = seed
        self.steps = 0
        self._dead: list[_SimTask] = []
        self._clock_resolution = 1e-9
        self._trace = hashlib.sha256()
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Virtual seconds since the simulation began."""
        return self._virtual.now_s

    def note(self, *what: object) -> None:
        """Something worth comparing happened."""
        self.steps += 1
        self._trace.update(repr((round(self.time(), 9), *what)).encode())

    def trace(self) -> str:
        """The hash of everything noted so far."""
        return self._trace.hexdigest()[:16]

    def dice(self, actor: str) -> "SimEntropy":
        """The actor's own source of chance."""
        return SimEntropy(f"{self.seed}/{actor}")

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes by birth order."""
        self._born += 1
        return _SimFuture(order=self._born, loop=self)

    def run_in_executor(  # type: ignore[override]  # the base is typed as a coroutine or a future
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run it here and now: a thread would end whenever it likes."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the caller hears it, as from a thread
            done.set_exception(error)
        return done

    def call_soon(  # type: ignore[override]  # the base infers the types of the arguments
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Schedule, unless the process it belongs to is stopped or dead: then it is parked."""
        process = context.get(_process) if context is not None else _process.get()
        if process is not None and (process.stopped or process.dead):
            context = context or contextvars.copy_context()
            handle = asyncio.Handle(callback, args, self, context)
            process.parked.append((_run, (handle, callback, args), context))
            return handle
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the base infers the types of the arguments
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule for later; due while its process is stopped, it waits for it."""
        context = context or contextvars.copy_context()
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        made: list[asyncio.Handle] = []
        due = super().call_at(
            when, self._due, process, made, callback, args, context, context=context
        )
        made.append(due)
        return due

    def stop_process(self, process: Process) -> None:
        """SIGSTOP: nothing of it runs until it is continued."""
        process.stopped = True

    def continue_process(self, process: Process) -> None:
        """SIGCONT: what was due meanwhile runs now, in its order."""
        process.stopped = False
        parked, process.parked = process.parked, []
        for callback, args, context in parked:
            self.call_soon(callback, *args, context=context)

    def kill_process(self, process: Process) -> None:
        """SIGKILL: nothing of it ever runs again."""
        process.dead = True
        # Nothing else may hold on to its tasks, and a collected task would run its `finally`.
        self._dead += [task for task in self._live() if task.process is process]

    def spawn(
        self, work: Coroutine[Any, Any, T], *, process: Process | None, name: str
    ) -> asyncio.Task[T]:
        """Run `work` as part of a process, or of the world."""
        context = contextvars.copy_context()
        context.run(_process.set, process)
        return self.create_task(work, name=name, context=context)

    def drain(self) -> None:
        """End every task, those of dead processes too, after the verdict was found."""
        while tasks := self._live():
            processes: list[Process] = []
            for task in tasks:
                if task.process is not None and task.process not in processes:
                    processes.append(task.process)
                task.cancel()
            for process in processes:
                process.dead = False
                self.continue_process(process)
            self.run_until_complete(_ended(tasks))

    def _live(self) -> list[_SimTask]:
        found = [task for task in asyncio.all_tasks(self) if isinstance(task, _SimTask)]
        return sorted(found, key=hash)

    def _due(
        self,
        process: Process,
        made: list[asyncio.Handle],
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        if process.stopped or process.dead:
            process.parked.append((_run, (made[0], callback, args), context))
        else:
            callback(*args)

    def _make_task(self, _: asyncio.AbstractEventLoop, work: Any, **options: Any) -> _SimTask:
        self._born += 1
        return _SimTask(work, order=self._born, loop=self, **options)


def _run(handle: asyncio.Handle, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run what was parked, unless it was cancelled since: a loop asks its handles the same."""
    if not handle.cancelled():
        callback(*args)


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int) -> tuple[T, str]:
    """Run a world to its end; returns what it returned and the hash of its trace."""
    loop = SimLoop(seed)
    try:
        result = loop.run_until_complete(main(loop))
        return result, loop.trace()
    finally:
        loop.drain()
        loop.close()


class SimEntropy:
    """Chance for simulations: every actor throws its own."""

    def __init__(self, seed: str) -> None:
        self.entropy = SeededEntropy(seed)

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.entropy.below(1_000_000) < probability * 1_000_000

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * self.entropy.below(1 << 40) / (1 << 40)

    def number(self, low: int, high: int) -> int:
        """A whole number in [low, high)."""
        return low + self.entropy.below(high - low)

    def waiting_s(self, mean_s: float) -> float:
        """A waiting time with a long tail."""
        return -mean_s * math.log(1.0 - self.between(0.0, 1.0))

    def pick(self, among: Sequence[T]) -> T:
        """One of these."""
        return among[self.entropy.below(len(among))]


class SimClock:
    """A process's clocks: a monotonic one with a start of its own, a wall clock that may be wrong.

    `skew_ms` may be changed at any time: the wall clock jumps.
    """

    def __init__(
        self, loop: SimLoop, *, start_s: float = 0.0, skew_ms: int = 0, drift: float = 0.0
    ) -> None:
        self._loop = loop
        self._start_s = start_s
        self._drift = drift
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch; it may jump."""
        return EPOCH_MS + self.skew_ms + int(self._loop.time() * 1000 * (1.0 + self._drift))

    def monotonic_s(self) -> float:
        """Seconds from some start; never goes back."""
        return self._start_s + self._loop.time()
