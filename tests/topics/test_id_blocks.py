import asyncio

import pytest
from tests.topics.stepped_stores import Fault, SteppedStore, Steps, manual_clock

from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.topics.id_blocks import COUNTER_MAX, take_block

KEY = "/counter"


def test_blocks_follow_each_other_from_the_first_number_on() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        assert await take_block(store, KEY, 3, first=1) == range(1, 4)
        assert await take_block(store, KEY, 1, first=1) == range(4, 5)

    asyncio.run(scenario())


def test_no_number_is_given_out_twice_whatever_the_store_does() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        takers = []
        for number in range(8):
            steps = Steps()
            steps.faults = {1: Fault.SWALLOWED, 3: Fault.LOST} if number % 2 else {}
            takers.append(SteppedStore(store.another(), steps))

        async def take_ten(taker: SteppedStore) -> list[range]:
            return [await take_block(taker, KEY, 5, first=0) for _ in range(10)]

        taken = await asyncio.gather(*map(take_ten, takers))
        numbers = [number for blocks in taken for block in blocks for number in block]
        assert len(set(numbers)) == len(numbers) == 400

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b"9" * 21, str(COUNTER_MAX).encode()])
def test_a_counter_that_holds_no_number_or_is_used_up_is_corrupt(value: bytes) -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        await store.put(KEY, value)
        with pytest.raises(Corrupt):
            await take_block(store, KEY, 1, first=0)

    asyncio.run(scenario())


def test_a_store_that_is_down_is_said_to_be() -> None:
    async def scenario() -> None:
        steps = Steps()
        steps.faults = {0: Fault.UNAVAILABLE}
        store = SteppedStore(MemoryMetadataStore(manual_clock()), steps)
        with pytest.raises(Unavailable):
            await take_block(store, KEY, 1, first=0)

    asyncio.run(scenario())
