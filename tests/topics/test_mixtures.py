"""Several brokers that change the same names at random, with replies lost on the way."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import pytest
from tests.topics.stepped_stores import Fault, Steps, TopicStores, make

from lakelog.model.failures import Failure
from lakelog.topics import failures
from lakelog.topics.registry import Topics

NAMES = ("a.b", "a_b", "c")
SEEDS = 60


class DeceivedSteps(Steps):
    """Writes of keys whose reply is lost now and then, whether they were made or not."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def take(self, name, work):  # type: ignore[no-untyped-def] # as in Steps
        if name.startswith("put") and self._chance.random() < 0.1:
            self.faults[self.taken] = self._chance.choice([Fault.LOST, Fault.SWALLOWED])
        return await super().take(name, work)


def _changed(change: dict[str, str], old: Mapping[str, str]) -> dict[str, str]:
    return {**old, **change}


async def change_at_random(topics: Topics, chance: random.Random) -> None:
    for _ in range(10):
        name = chance.choice(NAMES)
        with suppress(Failure):
            topic = await topics.find(name)
            if topic is None:
                await make(topics, name, chance.randrange(1, 4))
                continue
            match chance.randrange(3):
                case 0:
                    await topics.delete(topic)
                case 1:
                    await topics.grow(topic, topic.partition_count + chance.randrange(1, 3))
                case _:
                    change = {"segment.ms": str(chance.randrange(1, 9))}
                    await topics.alter(topic, partial(_changed, change))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_mixture_of_changes_comes_to_rest(seed: int) -> None:
    async def scenario() -> None:
        stores = TopicStores()
        chance = random.Random(seed)
        brokers = [stores.registry(DeceivedSteps(chance)) for _ in range(4)]
        await asyncio.gather(*(change_at_random(broker, chance) for broker in brokers))
        judge = stores.registry()
        await stores.settle(judge)
        topics = await stores.check_at_rest()
        assert {topic.name for topic in await judge.all()} == set(topics)
        unified = [failures.unified_name(name) for name in topics]
        assert len(set(unified)) == len(unified)
        for broker in brokers:
            assert await broker.all() == tuple(topics[name] for name in sorted(topics))

    asyncio.run(scenario())
