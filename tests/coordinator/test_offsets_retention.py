"""Old offsets are forgotten by one broker, with a right clock, and never too early."""

import asyncio
from typing import Any

from tests.coordinator.coordinator_cluster import (
    OTHER_TOPIC,
    TOPIC,
    CoordinatorBroker,
    CoordinatorCluster,
    beat_ask,
    commit_event,
    joined,
    play,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import ExpireOffsets
from lakelog.model.errors import ErrorCode

UNIT_S = 60.0
"""A tenth of the retention: a little world, so that its days pass quickly."""
OPTIONS = GroupOptions(
    initial_rebalance_delay_ms=0,
    offsets_retention_ms=600_000,
    offsets_retention_check_ms=10_000,
)


async def committed(broker: CoordinatorBroker, **changes: Any) -> None:
    time_ms = broker.clock.now_ms()
    code = await broker.commit(commit_event(time_ms=time_ms, **changes))
    assert code is ErrorCode.NONE, code


def offsets(broker: CoordinatorBroker, group_id: str = "g") -> set[bytes]:
    found = broker.coordinator.table(group_id).offsets.get(group_id, {})
    return {topic for topic, _ in found}


def test_offsets_of_nobodys_group_go_after_the_retention_and_the_group_with_them() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        one, two = await cluster.broker(1), await cluster.broker(2)
        await committed(one)
        await asyncio.sleep(9.5 * UNIT_S)
        assert offsets(two)
        await asyncio.sleep(UNIT_S)
        assert two.group("g") is None
        assert not offsets(one)
        assert len(cluster.written(ExpireOffsets)) == 1

    play(scenario, options=OPTIONS)


def test_only_the_groups_first_broker_forgets() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        one, two = await cluster.broker(1), await cluster.broker(2)
        group_id = cluster.group_owned_by(2)
        await committed(one, group_id=group_id)
        cluster.loop.stop_process(two.process)
        await asyncio.sleep(12 * UNIT_S)
        assert offsets(one, group_id)
        cluster.everybody.live.remove(2)
        await asyncio.sleep(UNIT_S)
        assert not offsets(one, group_id)

    play(scenario, options=OPTIONS)


def test_a_group_that_emptied_keeps_its_offsets_from_then_on_for_the_retention() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        broker = await cluster.broker()
        answer = await joined(broker)
        await asyncio.sleep(1)
        leavers = [(answer.member_id, None)]
        await committed_by(broker, answer.member_id)
        await keep(broker, answer.member_id, units=8)
        await broker.call(lambda: broker.coordinator.leave("g", leavers))
        await asyncio.sleep(9.5 * UNIT_S)
        assert offsets(broker)
        await asyncio.sleep(UNIT_S)
        assert not offsets(broker)

    play(scenario, options=OPTIONS)


async def committed_by(broker: CoordinatorBroker, member_id: str) -> None:
    await broker.sync(sync_ask(member_id, 1, (member_id, b"")))
    await committed(broker, member_id=member_id, generation=1)


async def keep(broker: CoordinatorBroker, member_id: str, *, units: int) -> None:
    for _ in range(units * 60 // 8):
        await asyncio.sleep(8)
        assert await broker.heartbeat(member_id, 1) is ErrorCode.NONE


def test_what_members_read_stays_and_what_they_do_not_goes() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        cluster.book.put("u", OTHER_TOPIC, 1)
        broker = await cluster.broker()
        await committed(broker)
        await committed(broker, offsets=((bytes(OTHER_TOPIC), 0, 9, -1, ""),))
        answer = await broker.beat(beat_ask())
        for _ in range(int(11 * UNIT_S / 30)):
            await asyncio.sleep(30)
            assert (await broker.beat(beat_ask("m", answer.epoch))).code is ErrorCode.NONE
        assert offsets(broker) == {bytes(TOPIC)}

    play(scenario, options=OPTIONS)


def test_offsets_of_a_deleted_topic_go_when_it_was_missing_twice() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        cluster.book.put("u", OTHER_TOPIC, 1)
        broker = await cluster.broker()
        await committed(broker)
        await committed(broker, offsets=((bytes(OTHER_TOPIC), 0, 9, -1, ""),))
        cluster.book.drop("t")
        await asyncio.sleep(11)
        cluster.book.put("t", TOPIC, 1)  # it was there all the time: somebody had a bad view
        await asyncio.sleep(11)
        assert offsets(broker) == {bytes(TOPIC), bytes(OTHER_TOPIC)}
        cluster.book.drop("t")
        await asyncio.sleep(25)
        assert offsets(broker) == {bytes(OTHER_TOPIC)}

    play(scenario, options=OPTIONS)


def test_an_empty_group_without_offsets_is_cleared() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await joined(broker)
        leavers = [(answer.member_id, None)]
        await broker.call(lambda: broker.coordinator.leave("g", leavers))
        assert broker.group("g") is not None
        await asyncio.sleep(25)
        assert broker.group("g") is None

    play(scenario, options=OPTIONS)


def test_a_wrong_clock_forgets_nothing() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        broker = await cluster.broker()

        async def is_right() -> bool:
            return abs(broker.clock.skew_ms) < 60_000

        broker.coordinator.expire_offsets_if(is_right)
        await committed(broker)
        broker.clock.skew_ms = 365 * 24 * 3_600_000
        await asyncio.sleep(UNIT_S)
        assert offsets(broker)
        broker.clock.skew_ms = 0
        await asyncio.sleep(10 * UNIT_S)
        assert not offsets(broker)

    play(scenario, options=OPTIONS)


def test_while_the_store_is_away_nothing_is_forgotten() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        broker = await cluster.broker()
        await committed(broker)
        await asyncio.sleep(9.9 * UNIT_S)
        broker.faults.outage_until_s = cluster.loop.time() + UNIT_S
        await asyncio.sleep(UNIT_S + 5)
        assert offsets(broker)
        await asyncio.sleep(UNIT_S)
        assert not offsets(broker)

    play(scenario, options=OPTIONS)
