import asyncio

import pytest
from tests.topics.stepped_stores import Fault, SteppedStore, Steps, manual_clock

from lakelog.clock import SeededEntropy
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Corrupt, Unavailable
from lakelog.topics.cluster import PipelineToken, pipeline_token


def test_everybody_finds_the_token_that_the_first_one_made() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        found = await asyncio.gather(
            *(pipeline_token(store.another(), SeededEntropy(str(n))) for n in range(5))
        )
        assert len(set(found)) == 1
        assert len(found[0]) == 32
        assert int(found[0], 16)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.SWALLOWED])
def test_a_token_whose_writing_was_not_confirmed_is_settled_by_reading(fault: Fault) -> None:
    async def scenario() -> None:
        steps = Steps()
        steps.faults = {1: fault}
        store = SteppedStore(MemoryMetadataStore(manual_clock()), steps)
        token = PipelineToken(store, SeededEntropy("x"))
        if fault is Fault.LOST:
            with pytest.raises(Unavailable):
                await token.get()
        found = await token.get()
        assert found == await pipeline_token(store, SeededEntropy("y"))
        taken = steps.taken
        assert await token.get() == found
        assert steps.taken == taken  # it is kept

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [b"", b"x" * 32, b"0" * 31, b"0" * 33])
def test_what_is_no_token_opens_nothing(value: bytes) -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore(manual_clock())
        await store.put(keys.PIPELINE_TOKEN, value)
        with pytest.raises(Corrupt, match="holds no token"):
            await pipeline_token(store, SeededEntropy("x"))

    asyncio.run(scenario())
