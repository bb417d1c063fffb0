import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.topics.stepped_stores import Fault, SteppedStore, Steps, manual_clock

from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.topics.id_blocks import PRODUCER_BLOCK, ProducerIds


class CountedStore(MemoryMetadataStore):
    """Counts its reads, and holds them back when it is told to."""

    def __init__(self) -> None:
        super().__init__(manual_clock())
        self.reads = 0
        self.gate: asyncio.Event | None = None

    async def get(self, key: str) -> KeyValue | None:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        return await super().get(key)


def run(scenario: Callable[[CountedStore], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await scenario(CountedStore())

    asyncio.run(bounded())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_producer_id_is_given_out_once_for_ever() -> None:
    async def scenario(store: CountedStore) -> None:
        brokers = [ProducerIds(store) for _ in range(3)]
        given = await asyncio.gather(
            *(ids.next() for ids in brokers for _ in range(PRODUCER_BLOCK + 10))
        )
        assert len(set(given)) == len(given)
        assert min(given) == 0
        assert await ProducerIds(store).next() not in given

    run(scenario)


def test_an_id_that_another_broker_gave_out_is_known_at_once() -> None:
    async def scenario(store: CountedStore) -> None:
        here, there = ProducerIds(store), ProducerIds(store)
        assert not await here.was_given_out(0)
        producer = await there.next()
        assert await here.was_given_out(producer)
        assert not await here.was_given_out(1 << 62)
        assert not await here.was_given_out(PRODUCER_BLOCK)

    run(scenario)


def test_a_known_id_is_not_asked_for() -> None:
    async def scenario(store: CountedStore) -> None:
        ids = ProducerIds(store)
        producer = await ids.next()
        reads = store.reads
        assert await ids.was_given_out(producer)
        assert store.reads == reads

    run(scenario)


def test_a_storm_of_invented_ids_shares_one_read() -> None:
    async def scenario(store: CountedStore) -> None:
        ids = ProducerIds(store)
        store.gate = asyncio.Event()
        first = asyncio.create_task(ids.was_given_out(5))
        await turns()
        storm = [asyncio.create_task(ids.was_given_out(6 + number)) for number in range(100)]
        await turns()
        store.gate.set()
        assert not any(await asyncio.gather(first, *storm))
        assert store.reads == 2  # the first one's had begun before the others asked

    run(scenario)


def test_a_read_whose_asker_went_away_answers_nobody() -> None:
    """Else an id that was given out would be called unknown, and its producer refused."""

    async def scenario(store: CountedStore) -> None:
        await ProducerIds(store).next()
        ids = ProducerIds(store)
        store.gate = asyncio.Event()
        *gone, stays = [asyncio.create_task(ids.was_given_out(5)) for _ in range(3)]
        await turns()
        for asker in gone:  # the second one's read begins after the third one asked
            asker.cancel()
            await turns()
        assert store.reads == 4  # with the one that took the block
        store.gate.set()
        assert await stays

    run(scenario)


def test_while_the_counter_cannot_be_read_nobody_is_called_unknown() -> None:
    async def scenario(store: CountedStore) -> None:
        steps = Steps()
        ids = ProducerIds(SteppedStore(store, steps))
        steps.faults = {steps.taken: Fault.UNAVAILABLE}
        with pytest.raises(Unavailable):
            await ids.was_given_out(5)
        assert not await ids.was_given_out(5)

    run(scenario)


def test_a_counter_that_holds_no_number_is_corrupt() -> None:
    async def scenario(store: CountedStore) -> None:
        await store.put(keys.NEXT_PRODUCER, b"many", expect=0)
        with pytest.raises(Corrupt):
            await ProducerIds(store).was_given_out(5)

    run(scenario)
