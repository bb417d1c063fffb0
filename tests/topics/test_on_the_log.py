"""Topics on the real log: their streams begin and cease to exist where records are written."""

import asyncio

from tests.memory_cluster import MemoryCluster, batch, run
from tests.topics.stepped_stores import make

from lakelog.clock import SeededEntropy
from lakelog.domain.state import Verdict
from lakelog.topics.registry import Topics


def registry(cluster: MemoryCluster, number: int) -> Topics:
    log = cluster.nodes[number].log
    return Topics(cluster.metadata, log, cluster.clock, SeededEntropy(f"topics {number}"))


def test_streams_exist_before_the_topic_is_seen_and_not_after_it_is_gone() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        await cluster.node("broker-1")
        await cluster.node("broker-2")
        here, there = registry(cluster, 0), registry(cluster, 1)
        made = await make(here, "orders", 3)
        found = await there.find("orders")
        assert found == made
        log = cluster.nodes[1].log
        streams = made.streams()
        await log.prove(streams, arrived_s=cluster.clock.monotonic_s(), deadline_s=cluster.soon())
        for partition, stream in enumerate(streams):
            facts = log.facts(stream)
            assert facts is not None
            assert (facts.topic, facts.partition, facts.head) == (made.id, partition, 0)
        wrote = await log.append(streams[:1], [batch(b"x")], deadline_s=cluster.soon())
        assert list(wrote.verdicts) == [Verdict.ACCEPTED]
        grown = await there.grow(made, 5)
        assert all(log.facts(stream) is not None for stream in grown.streams())
        await here.delete(made)
        late = await log.append(streams[:1], [batch(b"y")], deadline_s=cluster.soon())
        assert list(late.verdicts) == [Verdict.UNKNOWN_STREAM]
        assert all(log.facts(stream) is None for stream in grown.streams())

    run(scenario)


def test_a_creation_that_was_cut_short_is_finished_by_asking_again() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        await cluster.node("broker-1")
        topics = registry(cluster, 0)
        for turns in range(12):
            name = f"t{turns}"
            cut = asyncio.get_running_loop().create_task(make(topics, name))
            for _ in range(turns):
                await asyncio.sleep(0)
            cut.cancel()
            await asyncio.gather(cut, return_exceptions=True)
            made = topics.cached(name) or await make(topics, name)
            assert all(cluster.nodes[0].log.facts(stream) for stream in made.streams())

    run(scenario)
