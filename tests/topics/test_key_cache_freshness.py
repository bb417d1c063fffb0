import asyncio

from tests.topics.stepped_stores import Fault, Steps, TopicStores, make, run

from lakelog.meta import keys
from lakelog.model.failures import Unavailable
from lakelog.model.ids import TopicId


def test_an_unknown_name_is_unknown_only_after_asking_the_store() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        assert await there.find("orders") is None
        await make(here, "orders")
        assert there.cached("orders") is None
        assert await there.find("orders") is not None
        assert await there.find_id(TopicId(bytes(16))) is None

    run(scenario)


def test_a_storm_of_unknown_names_costs_a_few_looks() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        await topics.current()
        steps.names.clear()
        await asyncio.gather(*(topics.find(f"t{number}") for number in range(1_000)))
        assert len(steps.names) <= 3

    run(scenario)


def test_a_store_that_is_down_is_not_asked_once_for_each_who_waits() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        steps.faults = dict.fromkeys(range(1_000), Fault.UNAVAILABLE)
        found = await asyncio.gather(
            *(topics.find(f"t{number}") for number in range(1_000)), return_exceptions=True
        )
        assert all(isinstance(outcome, Unavailable) for outcome in found)
        assert len(steps.names) <= 3

    run(scenario)


def test_own_changes_cost_no_reading_of_all_topics() -> None:
    async def scenario(stores: TopicStores) -> None:
        steps = Steps()
        topics = stores.registry(steps)
        await topics.current()
        for number in range(5):
            await make(topics, f"t{number}")
            await topics.current()
        assert sum(name.startswith("range") for name in steps.names) == 1

    run(scenario)


def test_a_change_whose_author_died_before_announcing_it_is_found_in_time() -> None:
    async def scenario(stores: TopicStores) -> None:
        here, there = stores.registry(), stores.registry()
        await there.current()
        made = await make(here, "orders")
        revision = await stores.store.get(keys.TOPICS_REVISION)
        assert revision is not None
        await there.current()
        grown = await stores.store.get(keys.topic("orders"))
        assert grown is not None
        await stores.store.put(
            keys.topic("orders"),
            grown.value.replace(b'"replication_factor":1', b'"replication_factor":2'),
        )
        await there.current()
        assert there.cached("orders") == made
        stores.clock.advance(31)
        await there.refresh()
        seen = there.cached("orders")
        assert seen is not None
        assert seen.replication_factor == 2

    run(scenario)
