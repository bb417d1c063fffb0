"""Jobs between the event loop and a thread."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from lakelog.meta.sqlite_threads import BATCH_JOBS_MAX, WorkerThread
from lakelog.model.failures import Conflict, Unavailable


def test_jobs_that_wait_are_worked_off_together_and_in_order() -> None:
    gate = threading.Event()
    batches: list[list[int]] = []

    def work(jobs: Sequence[int]) -> Sequence[object]:
        gate.wait(10)
        batches.append(list(jobs))
        return [job * 2 for job in jobs]

    async def run() -> None:
        lane = WorkerThread("test", work)
        futures = [lane.submit(number) for number in range(300)]
        gate.set()
        assert await asyncio.gather(*futures) == [number * 2 for number in range(300)]
        await lane.close()

    asyncio.run(run())
    assert [job for batch in batches for job in batch] == list(range(300))
    assert len(batches) < 10
    assert max(map(len, batches)) == BATCH_JOBS_MAX


def test_each_caller_gets_its_own_copy_of_a_failure() -> None:
    async def run() -> None:
        failure = Conflict("shared")
        lane = WorkerThread[int]("test", lambda jobs: [failure] * len(jobs))
        answers = await asyncio.gather(*map(lane.submit, range(3)), return_exceptions=True)
        assert [repr(answer) for answer in answers] == ["Conflict('shared')"] * 3
        assert len({id(answer) for answer in answers}) == 3
        await lane.close()

    asyncio.run(run())


def test_who_is_woken_by_what_was_answered_goes_on_after_the_caller() -> None:
    async def run() -> None:
        order: list[str] = []
        watching = asyncio.get_running_loop().create_future()
        lane = WorkerThread[int](
            "test",
            lambda jobs: jobs,
            answered=lambda _jobs, _answers: watching.set_result(None),
        )

        async def watch() -> None:
            await watching
            order.append("woken")

        async def call() -> None:
            await lane.submit(1)
            order.append("caller")

        await asyncio.gather(watch(), call())
        assert order == ["caller", "woken"]
        await lane.close()

    asyncio.run(run())


def test_a_bug_on_the_thread_is_raised_where_the_job_is_awaited_and_the_thread_goes_on() -> None:
    def work(jobs: Sequence[int]) -> Sequence[object]:
        return [1 // job for job in jobs]

    async def run() -> None:
        lane = WorkerThread("test", work)
        with pytest.raises(ZeroDivisionError):
            await lane.submit(0)
        assert await lane.submit(1) == 1
        await lane.close()

    asyncio.run(run())


def test_closing_answers_what_was_handed_in_before_and_ends_the_thread() -> None:
    async def run() -> None:
        before = threading.active_count()
        lane = WorkerThread[int]("test", list)
        futures = [lane.submit(number) for number in range(500)]
        await lane.close()
        await lane.close()
        assert [future.result() for future in futures] == list(range(500))
        assert threading.active_count() == before
        with pytest.raises(Unavailable):
            lane.submit(1)

    asyncio.run(run())


def test_a_loop_that_is_gone_does_not_hurt_the_thread() -> None:
    gate = threading.Event()
    loop = asyncio.new_event_loop()

    def work(jobs: Sequence[int]) -> Sequence[object]:
        gate.wait(10)
        return jobs

    async def run() -> WorkerThread[int]:
        lane = WorkerThread("test", work)
        lane.submit(1)
        return lane

    lane = loop.run_until_complete(run())
    loop.close()
    lane._jobs.put(None)
    gate.set()
    lane._thread.join(10)
    assert not lane._thread.is_alive()
