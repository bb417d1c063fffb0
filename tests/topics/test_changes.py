"""Streams that come late: made by a broker that slept while another deleted their topic."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.topics.stepped_stores import MemoryStreams, SteppedStreams, Steps, TopicStores, make, run

from lakelog.clock import SeededEntropy
from lakelog.model.ids import TopicId
from lakelog.topics.failures import NoSuchTopic, TopicExists
from lakelog.topics.registry import Topics


class SleepingStreams(SteppedStreams):
    """A way to the streams that sleeps before it makes any."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams, Steps())
        self.asleep = asyncio.Event()
        self.awake = asyncio.Event()

    async def create_streams(
        self, topic: TopicId, *, first_partition: int, streams: Sequence[int]
    ) -> None:
        self.asleep.set()
        await self.awake.wait()
        await super().create_streams(topic, first_partition=first_partition, streams=streams)


def sleeper(stores: TopicStores) -> tuple[Topics, SleepingStreams]:
    streams = SleepingStreams(stores.streams)
    return Topics(stores.store, streams, stores.clock, SeededEntropy("sleeper")), streams


def test_streams_of_a_growth_that_came_after_the_deletion_do_not_stay() -> None:
    async def scenario(stores: TopicStores) -> None:
        made = await make(stores.registry(), "orders", 1)
        slow, streams = sleeper(stores)
        growth = asyncio.get_running_loop().create_task(slow.grow(made, 3))
        await streams.asleep.wait()
        await stores.registry().delete(made)
        assert await stores.check_at_rest() == {}
        streams.awake.set()
        with pytest.raises(NoSuchTopic):
            await growth
        assert await stores.check_at_rest() == {}

    run(scenario)


@pytest.mark.parametrize("again", [False, True])
def test_streams_of_a_creation_that_others_finished_and_deleted_do_not_stay(again: bool) -> None:
    async def scenario(stores: TopicStores) -> None:
        slow, streams = sleeper(stores)
        creation = asyncio.get_running_loop().create_task(make(slow, "orders", 2))
        await streams.asleep.wait()
        helper = stores.registry()
        with pytest.raises(TopicExists):
            await make(helper, "orders", 2)
        found = await helper.find("orders")
        assert found is not None
        await helper.delete(found)
        topics = {"orders": await make(helper, "orders", 5)} if again else {}
        streams.awake.set()
        assert (await creation).id == found.id  # it was made, and then deleted
        assert await stores.check_at_rest() == topics

    run(scenario)


def test_a_creation_that_another_broker_finished_is_its_authors_success() -> None:
    async def scenario(stores: TopicStores) -> None:
        slow, streams = sleeper(stores)
        creation = asyncio.get_running_loop().create_task(make(slow, "orders", 2))
        await streams.asleep.wait()
        with pytest.raises(TopicExists):
            await make(stores.registry(), "orders", 7)
        streams.awake.set()
        made = await creation
        assert await stores.check_at_rest() == {"orders": made}
        assert made.partition_count == 2

    run(scenario)
