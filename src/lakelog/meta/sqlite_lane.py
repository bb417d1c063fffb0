"""A thread beside the event loop: jobs go in one by one, what is there is worked off together.

Rules: one wake-up of the loop per batch; a job whose caller was cancelled is still done, because
nobody may know whether it was begun; the thread ends only after everything handed in before
`close` is answered.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from lakelog.model.failures import Failure, Unavailable

BATCH_JOBS_MAX: Final = 128
"""A batch ends here, so that its first caller does not wait for an endless one."""

JobT = TypeVar("JobT")


class Lane(Generic[JobT]):
    """A thread that answers jobs in their order, a batch at a time.

    `work` runs on the thread and returns an answer for each job; an answer that is an exception
    is raised where the job is awaited. `answered` runs on the loop before the callers go on.
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
        self._answered([job for job, _ in jobs], answers)
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

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
