"""Topics on the real log: their streams begin and cease to exist where records are written."""

import asyncio

from tests.log.world import World, batch, run
from tests.topics.stage import make

from lakelog.clock import SeededEntropy
from lakelog.domain.state import Verdict
from lakelog.topics.registry import Topics


def registry(world: World, number: int) -> Topics:
    log = world.nodes[number].log
    return Topics(world.store, log, world.clock, SeededEntropy(f"topics {number}"))


def test_streams_exist_before_the_topic_is_seen_and_not_after_it_is_gone() -> None:
    async def scenario(world: World) -> None:
        await world.node("broker-1")
        await world.node("broker-2")
        here, there = registry(world, 0), registry(world, 1)
        made = await make(here, "orders", 3)
        found = await there.find("orders")
        assert found == made
        log = world.nodes[1].log
        streams = made.streams()
        await log.prove(streams, arrived_s=world.clock.monotonic_s(), deadline_s=world.soon())
        for partition, stream in enumerate(streams):
            facts = log.facts(stream)
            assert facts is not None
            assert (facts.topic, facts.partition, facts.head) == (made.id, partition, 0)
        wrote = await log.append(streams[:1], [batch(b"x")], deadline_s=world.soon())
        assert list(wrote.verdicts) == [Verdict.ACCEPTED]
        grown = await there.grow(made, 5)
        assert all(log.facts(stream) is not None for stream in grown.streams())
        await here.delete(made)
        late = await log.append(streams[:1], [batch(b"y")], deadline_s=world.soon())
        assert list(late.verdicts) == [Verdict.UNKNOWN_STREAM]
        assert all(log.facts(stream) is None for stream in grown.streams())

    run(scenario)


def test_a_creation_that_was_cut_short_is_finished_by_asking_again() -> None:
    async def scenario(world: World) -> None:
        await world.node("broker-1")
        topics = registry(world, 0)
        for turns in range(12):
            name = f"t{turns}"
            cut = asyncio.get_running_loop().create_task(make(topics, name))
            for _ in range(turns):
                await asyncio.sleep(0)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            made = topics.cached(name) or await make(topics, name)
            assert all(world.nodes[0].log.facts(stream) for stream in made.streams())

    run(scenario)
