"""Every change of a topic, stopped or deceived at every step, and carried on by another broker."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from tests.topics.stepped_stores import Crash, Fault, Steps, TopicStores, make

from lakelog.model.failures import Failure
from lakelog.topics.registry import Topics
from lakelog.topics.topic import Topic

NAME = "a.b"
Change = Callable[[Topics, Topic | None], Awaitable[object]]


async def create(topics: Topics, _: Topic | None) -> object:
    return await make(topics, NAME, 3)


async def grow(topics: Topics, topic: Topic | None) -> object:
    assert topic is not None
    return await topics.grow(topic, 5)


async def delete(topics: Topics, topic: Topic | None) -> object:
    assert topic is not None
    await topics.delete(topic)
    return None


async def alter(topics: Topics, topic: Topic | None) -> object:
    assert topic is not None
    return await topics.alter(topic, lambda old: {**old, "retention.ms": "9"})


CHANGES: dict[str, Change] = {"create": create, "grow": grow, "delete": delete, "alter": alter}
RESULTS = {"create": 3, "grow": 5, "delete": None, "alter": 3}
STEPS_MAX = 30


def partitions(topics: dict[str, Topic]) -> int | None:
    return topics[NAME].partition_count if NAME in topics else None


async def stage(
    name: str, faults: dict[int, Fault]
) -> tuple[TopicStores, Steps, Topics, Topic | None]:
    stores = TopicStores()
    topic = None if name == "create" else await make(stores.registry(), NAME, 3)
    steps = Steps()
    topics = stores.registry(steps)
    await topics.current()
    steps.taken = 0
    steps.faults = faults
    return stores, steps, topics, topic


async def crashed_at(name: str, step: int, fault: Fault) -> bool:
    """Crash a change at a step and let another broker find it; whether it came to that step."""
    stores, steps, topics, topic = await stage(name, {step: fault})
    with suppress(Crash):
        await CHANGES[name](topics, topic)
        assert partitions(await stores.check_at_rest()) == RESULTS[name]
    another = stores.registry()
    await stores.settle(another)
    found = await stores.check_at_rest()
    before = None if topic is None else 3
    assert partitions(found) in {before, RESULTS[name]}
    assert {made.name for made in await another.all()} == set(found)
    return steps.taken > step


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_broker_that_stops_leaves_work_behind_never_a_mess(name: str, fault: Fault) -> None:
    async def scenario() -> None:
        reached = [await crashed_at(name, step, fault) for step in range(STEPS_MAX)]
        assert reached[0]
        assert not reached[-1]

    asyncio.run(scenario())


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST, Fault.SWALLOWED])
def test_a_change_that_failed_can_be_asked_for_again(name: str, fault: Fault) -> None:
    async def scenario() -> None:
        for step in range(STEPS_MAX):
            stores, _, topics, topic = await stage(name, {step: fault})
            with suppress(Failure):
                await CHANGES[name](topics, topic)
            with suppress(Failure):
                await CHANGES[name](topics, topic)
            await stores.settle(stores.registry())
            assert partitions(await stores.check_at_rest()) == RESULTS[name], step

    asyncio.run(scenario())


@pytest.mark.parametrize("name", CHANGES)
def test_a_crash_before_another_broker_does_the_same_is_harmless(name: str) -> None:
    async def scenario() -> None:
        for step in range(STEPS_MAX):
            stores, _, topics, topic = await stage(name, {step: Fault.CRASH_AFTER})
            with suppress(Crash):
                await CHANGES[name](topics, topic)
            with suppress(Failure):
                await CHANGES[name](stores.registry(), topic)
            assert partitions(await stores.check_at_rest()) == RESULTS[name], step

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_deletion_after_a_crash_of_growth_frees_everything(fault: Fault) -> None:
    async def scenario() -> None:
        for step in range(STEPS_MAX):
            stores, _, topics, topic = await stage("grow", {step: fault})
            with suppress(Crash):
                await grow(topics, topic)
            await delete(stores.registry(), topic)
            assert await stores.check_at_rest() == {}

    asyncio.run(scenario())


def test_a_name_is_free_again_after_a_crash_of_its_deletion() -> None:
    async def scenario() -> None:
        for step in range(STEPS_MAX):
            stores, _, topics, topic = await stage("delete", {step: Fault.CRASH_AFTER})
            with suppress(Crash):
                await delete(topics, topic)
            with suppress(Failure):
                await delete(stores.registry(), topic)
            again = await make(stores.registry(), NAME, 2)
            assert await stores.check_at_rest() == {NAME: again}

    asyncio.run(scenario())
