"""What is larger than a record of the log reaches its group all the same, whole or not at all."""

import asyncio

from tests.coordinator.coordinator_cluster import (
    QUICK,
    TOPIC,
    CoordinatorBroker,
    CoordinatorCluster,
    beat_ask,
    join_ask,
    play,
)

from lakelog.domain.event_queue import EVENT_BYTES_MAX
from lakelog.groups.events import Join, TargetAssignment, encode_group_event
from lakelog.groups.parts import PARTS_LEVEL
from lakelog.model.errors import ErrorCode

MEMBERS = 3
PARTITIONS = 240_000
"""So many that their numbers alone take more than a record."""


async def settled(broker: CoordinatorBroker) -> None:
    async with asyncio.timeout(120):
        while broker.consumer().target_epoch < broker.consumer().epoch:
            await asyncio.sleep(0.5)


def test_a_target_of_many_members_and_many_partitions_is_taken_in_whole() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        cluster.book.put("t", TOPIC, PARTITIONS)
        members = [f"member-{number}" for number in range(MEMBERS)]
        for member in members:
            assert (await one.beat(beat_ask(member))).code is ErrorCode.NONE
        await settled(one)
        await two.replicas[0].prove(arrived_s=two.clock.monotonic_s())
        parts = cluster.written_parts()
        assert {part.group_id for part in parts} == {"g"}
        assert sum(len(part.data) for part in parts) > EVENT_BYTES_MAX
        for broker in (one, two):
            target = broker.consumer().target
            given = sorted(number for share in target.values() for number in share[bytes(TOPIC)])
            assert given == list(range(PARTITIONS))
            assert sorted(target) == members

    play(scenario)


def test_member_metadata_larger_than_a_record_comes_through() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        big = bytes(EVENT_BYTES_MAX + 1)
        answer = await broker.join(join_ask(api_version=3, protocols=(("range", big),)))
        assert answer.code is ErrorCode.NONE
        assert answer.members[0][2] == big
        assert len(cluster.written_parts()) > 1
        assert cluster.written(Join) == []

    play(scenario)


def test_what_is_larger_than_any_event_is_refused_for_good() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        big = bytes(QUICK.sync_bytes_max + 1)
        answer = await broker.join(join_ask(api_version=3, protocols=(("range", big),)))
        assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert cluster.written_parts() == []

    play(scenario)


def test_rule_12_an_older_domain_is_raised_first_and_the_client_asks_again() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        broker.replicas[0].state.level = PARTS_LEVEL - 1
        ask = join_ask(api_version=3, protocols=(("range", bytes(EVENT_BYTES_MAX + 1)),))
        assert (await broker.join(ask)).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(1)
        assert (await broker.join(ask)).code is ErrorCode.NONE

    play(scenario)


def test_an_event_that_fits_goes_as_it_always_did() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await broker.beat(beat_ask("m"))
        await settled(broker)
        assert cluster.written_parts() == []
        (target,) = cluster.written(TargetAssignment)
        assert len(encode_group_event(target)) < EVENT_BYTES_MAX

    play(scenario)
