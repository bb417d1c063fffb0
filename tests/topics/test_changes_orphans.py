"""A Create that lands after the Drop of its topic: its streams are found and dropped."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.memory_cluster import MemoryCluster, batch, run
from tests.topics.stepped_stores import make, manual_clock
from tests.topics.test_on_the_log import registry

from lakelog.clock import SeededEntropy
from lakelog.log.log import Log
from lakelog.meta import keys
from lakelog.model.failures import Corrupt, OutcomeUnknown
from lakelog.model.ids import TopicId
from lakelog.testing.conformance_meta import ManualClock
from lakelog.topics.changes import GRACE_S, OrphanStreams
from lakelog.topics.registry import LEFT_BEHIND_S, Topics
from lakelog.topics.topic import Topic

STALE = TopicId(bytes(range(16)))


class StalledStreams:
    """The log of a broker that stalls before its Create, and never hears that it landed."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.goes_on = asyncio.Event()
        self.stalled = asyncio.Event()

    async def create_streams(
        self, topic: TopicId, *, first_partition: int, streams: Sequence[int]
    ) -> None:
        self.stalled.set()
        await self.goes_on.wait()
        await self._log.create_streams(topic, first_partition=first_partition, streams=streams)
        raise OutcomeUnknown("the broker was gone when its record was applied")

    async def drop_streams(self, streams: Sequence[int]) -> None:
        raise AssertionError(f"it is gone: {streams}")


async def deleted_while_its_creator_stalled(cluster: MemoryCluster, clock: ManualClock) -> Topic:
    """Another broker finishes the topic, it is deleted, and then the creator's Create lands."""
    stalled = StalledStreams(cluster.nodes[0].log)
    creator = Topics(cluster.metadata, stalled, clock, SeededEntropy("creator"))
    other = Topics(cluster.metadata, cluster.nodes[0].log, clock, SeededEntropy("other"))
    creating = asyncio.create_task(make(creator, "orders", 3))
    await stalled.stalled.wait()
    await other.refresh()
    clock.advance(LEFT_BEHIND_S)
    await other.refresh()
    made = await other.find("orders")
    assert made is not None
    await other.delete(made)
    stalled.goes_on.set()
    with pytest.raises(OutcomeUnknown):
        await creating
    return made


def test_streams_that_came_after_their_drop_are_dropped_in_the_second_look() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        log, clock = (await cluster.node()).log, manual_clock()
        gone = await deleted_while_its_creator_stalled(cluster, clock)
        assert all(log.facts(stream) for stream in gone.streams())
        orphans = OrphanStreams(cluster.metadata, log, clock)
        assert await orphans.drop_once() == 0
        clock.advance(GRACE_S - 1)
        assert await orphans.drop_once() == 0
        clock.advance(1)
        assert await orphans.drop_once() == 3
        assert not any(log.facts(stream) for stream in gone.streams())
        assert await orphans.drop_once() == 0

    run(scenario)


def test_topics_that_are_there_or_come_to_be_keep_their_streams() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        log, clock = (await cluster.node()).log, manual_clock()
        made = await make(registry(cluster, 0), "live", 2)
        stalled = StalledStreams(log)
        creating = asyncio.create_task(
            make(Topics(cluster.metadata, stalled, clock, SeededEntropy("slow")), "creating", 2)
        )
        await stalled.stalled.wait()
        stalled.goes_on.set()
        await asyncio.gather(creating, return_exceptions=True)
        assert len(log.replicas[0].state.streams) == 4
        orphans = OrphanStreams(cluster.metadata, log, clock)
        for _ in range(3):
            assert await orphans.drop_once() == 0
            clock.advance(GRACE_S)
        grown = await registry(cluster, 0).grow(made, 5)
        assert all(log.facts(stream) for stream in grown.streams())

    run(scenario)


def test_streams_that_hold_records_stay_whatever_the_keys_say() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        log, clock = (await cluster.node()).log, manual_clock()
        await log.create_streams(STALE, first_partition=0, streams=[1, 2])
        await log.append([1], [batch(b"x")], deadline_s=cluster.soon())
        orphans = OrphanStreams(cluster.metadata, log, clock)
        await orphans.drop_once()
        clock.advance(GRACE_S)
        assert await orphans.drop_once() == 1
        assert (log.facts(1) is None, log.facts(2) is None) == (False, True)

    run(scenario)


def test_a_key_that_cannot_be_read_stops_the_look() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        log, clock = (await cluster.node()).log, manual_clock()
        await log.create_streams(STALE, first_partition=0, streams=[1])
        await cluster.metadata.put(keys.topic("newer"), b'{"format": 99}', expect=0)
        orphans = OrphanStreams(cluster.metadata, log, clock)
        for _ in range(2):
            with pytest.raises(Corrupt):
                await orphans.drop_once()
            clock.advance(GRACE_S)
        assert log.facts(1) is not None

    run(scenario)
