"""Faulty stores: each fate does what it says, and nothing takes a request back."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.testing.faulty import (
    Faults,
    FaultyLink,
    FaultyMetadataStore,
    FaultyObjectStore,
    Journal,
)
from lakelog.testing.simulation import Process, SimClock, SimLoop, simulate

T = TypeVar("T")


class Bench:
    """One process, one store of each kind, one set of faults."""

    def __init__(self, loop: SimLoop, faults: Faults) -> None:
        self.loop = loop
        self.clock = SimClock(loop)
        self.journal = Journal()
        self.process = Process("p")
        link = FaultyLink(loop, self.process, loop.dice("link"), faults, self.journal)
        self.meta = MemoryMetadataStore(self.clock)
        self.objects = MemoryObjectStore(self.clock)
        self.store = FaultyMetadataStore(link, self.meta)
        self.log = self.store.log("log")
        own = SimClock(loop, skew_ms=5_000)
        self.far = FaultyObjectStore(link, self.objects, own=own, theirs=self.clock)

    async def end(self) -> int:
        return (await self.meta.log("log").read(after=0)).end


def run(faults: Faults, act: Callable[[Bench], Coroutine[Any, Any, T]]) -> T:
    async def main(loop: SimLoop) -> T:
        return await act(Bench(loop, faults))

    return simulate(main, seed=3)[0]


def test_without_faults_everything_arrives_after_some_time() -> None:
    async def act(bench: Bench) -> None:
        assert await bench.log.append(b"one") == 1
        assert bench.loop.time() > 0
        assert (await bench.log.read(after=0)).records == (b"one",)
        assert await bench.store.put("k", b"v", expect=0) > 0
        with pytest.raises(Conflict):
            await bench.store.put("k", b"v", expect=0)
        await bench.far.put("a/b", [b"x", b"y"])
        assert bytes(await bench.far.get("a/b")) == b"xy"
        assert [info.key async for info in bench.far.list("")] == ["a/b"]
        await bench.far.delete(["a/b"])
        with pytest.raises(NotFound):
            await bench.far.get("a/b")
        kinds = [mutation.kind for mutation in bench.journal.mutations]
        assert kinds == ["append", "key", "put", "delete"]

    run(Faults(), act)


def test_unavailable_means_that_nothing_was_written() -> None:
    async def act(bench: Bench) -> None:
        with pytest.raises(Unavailable):
            await bench.log.append(b"one")
        await asyncio.sleep(100)
        assert await bench.end() == 0

    run(Faults(unavailable=1.0), act)


@pytest.mark.parametrize(
    ("faults", "at_once", "in_the_end"),
    [
        (Faults(lost_request=1.0), 0, 0),
        (Faults(lost_reply=1.0), 1, 1),
        (Faults(late=1.0, late_s=50.0), 0, 1),
    ],
    ids=["lost request", "lost reply", "late"],
)
def test_an_unknown_outcome_is_one_of_three(faults: Faults, at_once: int, in_the_end: int) -> None:
    async def act(bench: Bench) -> None:
        with pytest.raises(OutcomeUnknown):
            await bench.log.append(b"one")
        assert await bench.end() == at_once
        await asyncio.sleep(200)
        assert await bench.end() == in_the_end

    run(faults, act)


def test_a_lost_answer_to_a_question_is_unavailable() -> None:
    async def act(bench: Bench) -> None:
        with pytest.raises(Unavailable):
            await bench.store.get("k")

    run(Faults(lost_reply=1.0), act)


def test_an_outage_ends() -> None:
    async def act(bench: Bench) -> None:
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await bench.log.append(b"one")
        await asyncio.sleep(10)
        await bench.log.append(b"two")
        assert (await bench.log.read(after=0)).records == (b"two",)

    run(Faults(outage_until_s=5.0), act)


def test_a_request_lands_although_its_process_was_killed() -> None:
    async def act(bench: Bench) -> None:
        bench.loop.spawn(bench.log.append(b"one"), process=bench.process, name="append")
        await asyncio.sleep(0)
        bench.loop.kill_process(bench.process)
        await asyncio.sleep(5)
        assert await bench.end() == 1

    run(Faults(), act)


def test_a_lost_watch_costs_time_and_a_kept_one_does_not() -> None:
    async def waited_s(bench: Bench) -> float:
        waiting = bench.loop.spawn(bench.log.wait(after=0, timeout_s=30), process=None, name="w")
        await asyncio.sleep(1)
        await bench.meta.log("log").append(b"one")
        await waiting
        return bench.loop.time()

    assert run(Faults(), waited_s) < 2
    assert run(Faults(watch_loss=1.0), waited_s) >= 30


def test_healing_leaves_only_latency() -> None:
    faults = Faults(unavailable=1.0, lost_reply=1.0, watch_loss=1.0, outage_until_s=1e9)

    async def act(bench: Bench) -> None:
        faults.heal()
        assert await bench.log.append(b"one") == 1
        assert bench.loop.time() > 0
        assert (await bench.log.read(after=0)).records == (b"one",)

    run(faults, act)


def test_the_store_has_a_clock_of_its_own() -> None:
    async def act(bench: Bench) -> int:
        return await bench.far.clock_skew_ms()

    assert run(Faults(), act) == pytest.approx(-5_000, abs=100)


def test_two_appends_at_a_time_are_noticed() -> None:
    async def act(bench: Bench) -> list[str]:
        await bench.log.append(b"one")
        await bench.log.append(b"two")
        assert bench.journal.overlaps == []
        await asyncio.gather(bench.log.append(b"three"), bench.log.append(b"four"))
        return bench.journal.overlaps

    assert len(run(Faults(), act)) == 1
