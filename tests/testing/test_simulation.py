"""The virtual-time loop: time, replay, processes that stop and die."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from lakelog.testing.simulation import Deadlock, Process, SimClock, SimEntropy, SimLoop, simulate


def test_time_moves_only_when_nothing_is_ready_and_costs_nothing() -> None:
    async def main(loop: SimLoop) -> tuple[float, float]:
        await asyncio.sleep(0)
        before = loop.time()
        await asyncio.sleep(86_400)
        return before, loop.time()

    (before, after), _ = simulate(main, seed=1)
    assert before == 0.0
    assert after == pytest.approx(86_400)


def test_waiting_for_ever_is_a_deadlock() -> None:
    async def main(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(Deadlock):
        simulate(main, seed=1)


async def shuffled(loop: SimLoop) -> None:
    """Sets of tasks, cancellation, executors and chance in one."""

    async def worker(number: int) -> None:
        dice = loop.dice(f"worker-{number}")
        try:
            for _ in range(3):
                await asyncio.sleep(dice.waiting_s(1.0))
                loop.note(number, dice.number(0, 100))
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            loop.note("cancelled", number)
            raise

    tasks = {loop.create_task(worker(number)) for number in range(20)}
    await asyncio.wait(tasks, timeout=5)
    for task in tasks:
        task.cancel()
    loop.note(await loop.run_in_executor(None, sum, [1, 2]))
    done, _ = await asyncio.wait(tasks)
    loop.note([hash(task) for task in done])


def test_a_seed_repeats_itself_and_differs_from_others() -> None:
    traces = [simulate(shuffled, seed=seed)[1] for seed in (1, 1, 2)]
    assert traces[0] == traces[1] != traces[2]


def test_an_actor_has_the_same_dice_whoever_else_throws() -> None:
    loop = SimLoop(7)
    try:
        alone = [loop.dice("a").number(0, 1000) for _ in range(2)]
        loop.dice("b").number(0, 1000)
        assert [loop.dice("a").number(0, 1000) for _ in range(2)] == alone
    finally:
        loop.close()


def run_ticker(harm: Callable[[SimLoop, Process], Coroutine[None, None, None]]) -> list[float]:
    """When a process that ticks every second did so."""
    ticks: list[float] = []
    closed: list[str] = []

    async def tick(loop: SimLoop) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                ticks.append(round(loop.time(), 3))
        finally:
            closed.append("finally")

    async def main(loop: SimLoop) -> list[float]:
        process = Process("ticker")
        loop.spawn(tick(loop), process=process, name="tick")
        await harm(loop, process)
        assert not closed
        return list(ticks)

    return simulate(main, seed=1)[0]


def test_a_stopped_process_does_nothing_until_it_is_continued() -> None:
    async def harm(loop: SimLoop, process: Process) -> None:
        await asyncio.sleep(2.5)
        loop.stop_process(process)
        await asyncio.sleep(10)
        loop.continue_process(process)
        await asyncio.sleep(2)

    assert run_ticker(harm) == [1.0, 2.0, 12.5, 13.5]


def test_a_killed_process_never_runs_again_not_even_its_finally() -> None:
    async def harm(loop: SimLoop, process: Process) -> None:
        await asyncio.sleep(2.5)
        loop.kill_process(process)
        await asyncio.sleep(10)

    assert run_ticker(harm) == [1.0, 2.0]


def test_tasks_belong_to_the_process_that_started_them() -> None:
    async def main(loop: SimLoop) -> list[str]:
        heard: list[str] = []

        async def child() -> None:
            await asyncio.sleep(2)
            heard.append("child")

        async def parent() -> None:
            loop.call_later(2, heard.append, "timer")
            await asyncio.gather(child())

        process = Process("p")
        loop.spawn(parent(), process=process, name="parent")
        await asyncio.sleep(1)
        loop.kill_process(process)
        await asyncio.sleep(5)
        return list(heard)

    assert simulate(main, seed=1)[0] == []


def test_clocks_of_two_processes_differ_and_jump() -> None:
    async def main(loop: SimLoop) -> tuple[int, float]:
        right, wrong = SimClock(loop), SimClock(loop, start_s=500, skew_ms=-7_000, drift=0.1)
        await asyncio.sleep(10)
        wrong.skew_ms += 60_000
        return wrong.now_ms() - right.now_ms(), wrong.monotonic_s() - right.monotonic_s()

    assert simulate(main, seed=1)[0] == (54_000, 500.0)


def test_dice_are_within_their_bounds() -> None:
    dice = SimEntropy("x")
    assert all(3 <= dice.number(3, 5) < 5 for _ in range(50))
    assert all(0.5 <= dice.between(0.5, 0.75) < 0.75 for _ in range(50))
    assert not any(dice.chance(0.0) for _ in range(50))
    assert all(dice.chance(1.0) for _ in range(50))
    mean = sum(dice.waiting_s(2.0) for _ in range(2000)) / 2000
    assert 1.8 < mean < 2.2
