"""The threads beside the event loop, and noticing what other processes append.

`WorkerThread`: jobs go in one by one, what is there is worked off together. Rules: one wake-up of
the loop per batch; a job whose caller was cancelled is still done, because nobody may know whether
it was begun; the thread ends only after everything handed in before `close` is answered.

`FileWatch` asks the file whether it changed. SQLite has no notices between processes; `PRAGMA
data_version` tells in microseconds whether any other connection committed. Rules: nobody asks
unless somebody waits; the pace follows what can be expected: fast while others append, slower while
they live but rest, slowest when alone, so that an idle broker costs next to nothing.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from lakelog.clock import Clock
from lakelog.meta.sqlite_statements import heads, living_sessions
from lakelog.model.failures import Failure, Unavailable

BATCH_JOBS_MAX: Final = 128
"""A batch ends here, so that its first caller does not wait for an endless one."""

JobT = TypeVar("JobT")


class WorkerThread(Generic[JobT]):
    """A thread that answers jobs in their order, a batch at a time.

    `work` runs on the thread and returns an answer for each job; an answer that is an exception
    is raised where the job is awaited. `answered` runs on the loop before the callers go on; whom
    it wakes goes on after them.
    `idle` says how many seconds to wait for a job before `tick` is called; None waits for ever.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[JobT]], Sequence[object]],
        *,
        answered: Callable[[Sequence[JobT], Sequence[object]], None] = lambda _jobs, _answers: None,
        idle: Callable[[], float | None] = lambda: None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._answered = answered
        self._idle = idle
        self._tick = tick
        self._jobs: queue.SimpleQueue[tuple[JobT, asyncio.Future[object]] | None] = (
            queue.SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: JobT) -> asyncio.Future[object]:
        """Hand a job in; the future gets its answer."""
        if self._closing:
            raise Unavailable("the metadata store is closed")
        answer: asyncio.Future[object] = self._loop.create_future()
        self._jobs.put((job, answer))
        return answer

    def call_loop(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the event loop soon; for the thread."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop was closed first: nobody waits any more.
            return

    async def close(self) -> None:
        """Work off what was handed in, then end the thread."""
        if not self._closing:
            self._closing = True
            self._jobs.put(None)
        await asyncio.shield(self._ended)
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                first = self._jobs.get(timeout=self._idle())
            except queue.Empty:
                self._tick()
                continue
            batch = self._batch(first)
            jobs = [item for item in batch if item is not None]
            if jobs:
                self._answer(jobs)
            if len(jobs) < len(batch):
                break
        self.call_loop(self._end)

    def _batch(
        self, first: tuple[JobT, asyncio.Future[object]] | None
    ) -> list[tuple[JobT, asyncio.Future[object]] | None]:
        batch = [first]
        while batch[-1] is not None and len(batch) < BATCH_JOBS_MAX and not self._jobs.empty():
            batch.append(self._jobs.get())
        return batch

    def _answer(self, jobs: list[tuple[JobT, asyncio.Future[object]]]) -> None:
        answers: Sequence[object]
        try:
            answers = self._work([job for job, _ in jobs])
        except Exception as error:  # noqa: BLE001 - a bug; it is raised where the jobs are awaited
            answers = [error] * len(jobs)
        assert len(answers) == len(jobs), (len(answers), len(jobs))
        self.call_loop(lambda: self._deliver(jobs, answers))

    def _deliver(
        self, jobs: list[tuple[JobT, asyncio.Future[object]]], answers: Sequence[object]
    ) -> None:
        for (_, future), answer in zip(jobs, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Failure):
                # One failure may answer several callers: each raises its own copy.
                future.set_exception(type(answer)(*answer.args))
            elif isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        # After the futures: who is woken by `answered` runs after the callers that it is about.
        self._answered([job for job, _ in jobs], answers)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


FAST_S: Final = 0.002
REST_S: Final = 0.025
ALONE_S: Final = 0.1
"""Pauses between two looks: others append, others live, nobody else is there.

A look costs 3 µs, but waking a thread that slept costs about 0.1 ms of CPU: it is the number of
looks that an idle broker pays for (measured: 2 %, 0.6 %, 0.2 % of a core).
"""

FAST_FOR_S: Final = 10.0
"""How long after the last foreign append the next one is expected at once."""

SESSIONS_EVERY_S: Final = 2.0
"""How often it is asked who lives, because a session ends without a write."""

WATCH_FOR_S: Final = 5.0
"""How long the watch goes on after the last waiter left: the next one is rarely far."""


class FileWatch:
    """What one reading connection knows of the file's changes; lives on the reader's thread."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._data_version = 0
        self._changed()
        self._heads = heads(connection)
        self._others = False
        self._fast_until_s = 0.0
        self._sessions_at_s = 0.0
        self._wanted_until_s = 0.0
        self.asleep = False
        """The thread waits for a job and will not look by itself: send it one."""
        self.own_heads: dict[str, int] = {}
        self.own_sessions: set[str] = set()
        """What this process appended and began itself; set elsewhere."""

    def want(self, timeout_s: float) -> None:
        """Somebody waits for that long; callable from any thread."""
        until_s = self._clock.monotonic_s() + timeout_s + WATCH_FOR_S
        self._wanted_until_s = max(self._wanted_until_s, until_s)

    def pause_s(self) -> float | None:
        """How long to wait before the next look; None when nobody waits."""
        now_s = self._clock.monotonic_s()
        self.asleep = now_s >= self._wanted_until_s
        if self.asleep:
            # Asked again after saying so: a waiter that came meanwhile has not been told.
            if self._clock.monotonic_s() >= self._wanted_until_s:
                return None
            self.asleep = False
        if now_s < self._fast_until_s:
            return FAST_S
        return REST_S if self._others else ALONE_S

    def look(self) -> dict[str, int]:
        """The logs that grew since the last look, with their newest positions."""
        now_s = self._clock.monotonic_s()
        changed = self._changed()
        if changed or now_s >= self._sessions_at_s:
            living = living_sessions(self._connection, self._clock.now_ms())
            self._others = any(session not in self.own_sessions for session in living)
            self._sessions_at_s = now_s + SESSIONS_EVERY_S
        if not changed:
            return {}
        known, self._heads = self._heads, heads(self._connection)
        grown = {log: head for log, head in self._heads.items() if head > known.get(log, 0)}
        if any(head > self.own_heads.get(log, 0) for log, head in grown.items()):
            self._fast_until_s = now_s + FAST_FOR_S
        return grown

    def _changed(self) -> bool:
        before = self._data_version
        self._data_version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        return before != self._data_version
