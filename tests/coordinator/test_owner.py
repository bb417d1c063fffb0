"""The first broker of a group says what its topics mean for it; the next ones if it does not."""

import asyncio
from dataclasses import replace

from tests.coordinator.coordinator_cluster import (
    OTHER_TOPIC,
    TOPIC,
    CoordinatorCluster,
    beat_ask,
    play,
)

from lakelog.coordinator.timers import RANK_DELAY_S
from lakelog.groups.events import Resolved, TargetAssignment, TopicsChanged
from lakelog.model.errors import ErrorCode

ID, OTHER = bytes(TOPIC), bytes(OTHER_TOPIC)


def test_a_topic_that_grows_is_assigned_anew_within_a_second_or_so() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask())
        cluster.book.put("t", TOPIC, 4)
        cluster.book.put("unread", OTHER_TOPIC, 4)
        await asyncio.sleep(2.5)
        beaten = await broker.beat(beat_ask("m", answer.epoch))
        assert beaten.assignment == ((ID, (0, 1, 2, 3)),)
        assert len(cluster.written(TopicsChanged)) == 1
        assert len(cluster.written(TargetAssignment)) == 2

    play(scenario)


def test_patterns_follow_the_topics() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("log-a", TOPIC, 1)
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask(names=None, pattern="log-.*"))
        assert answer.code is ErrorCode.NONE
        await asyncio.sleep(1)
        first = await broker.beat(beat_ask("m", answer.epoch))
        owned = first.assignment or answer.assignment
        assert owned == ((ID, (0,)),)
        cluster.book.put("log-b", OTHER_TOPIC, 1)
        await asyncio.sleep(2.5)
        second = await broker.beat(beat_ask("m", first.epoch))
        assert second.assignment == ((ID, (0,)), (OTHER, (0,)))
        assert [event.names for event in cluster.written(Resolved)] == [
            ("log-a",),
            ("log-a", "log-b"),
        ]

    play(scenario)


def test_a_topic_that_is_deleted_is_taken_away() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        cluster.book.put("u", OTHER_TOPIC, 1)
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask(names=("t", "u")))
        cluster.book.drop("u")
        await asyncio.sleep(2.5)
        beaten = await broker.beat(beat_ask("m", answer.epoch))
        assert beaten.assignment == ((ID, (0, 1)),)

    play(scenario)


def test_one_broker_says_it_and_the_others_find_nothing_left() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        brokers = [await cluster.broker(number) for number in (1, 2, 3)]
        await brokers[0].beat(beat_ask())
        cluster.book.put("t", TOPIC, 4)
        await asyncio.sleep(20)
        assert len(cluster.written(TopicsChanged)) == 1
        assert len(cluster.written(TargetAssignment)) == 2

    play(scenario)


def test_when_the_first_broker_says_nothing_the_next_one_does() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        one, two = await cluster.broker(1), await cluster.broker(2)
        group_id = cluster.group_owned_by(2)
        cluster.loop.kill_process(two.process)
        began_s = cluster.loop.time()
        answer = await one.beat(beat_ask(group_id=group_id))
        assert answer.code is ErrorCode.NONE
        while one.consumer(group_id).target == {}:
            await asyncio.sleep(0.1)
        assert RANK_DELAY_S <= cluster.loop.time() - began_s < RANK_DELAY_S + 0.5

    play(scenario)


def test_a_store_that_is_away_for_a_while_delays_a_target_and_does_not_lose_it() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask())
        broker.faults.outage_until_s = cluster.loop.time() + 20
        cluster.book.put("t", TOPIC, 3)
        await asyncio.sleep(25)
        beaten = await broker.beat(beat_ask("m", answer.epoch))
        assert beaten.assignment == ((ID, (0, 1, 2)),)

    play(scenario)


def test_a_broker_that_starts_takes_up_what_was_left_undone() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        one = await cluster.broker(1)
        answer = await one.beat(beat_ask())
        cluster.kill(one)
        cluster.book.put("t", TOPIC, 3)
        two = await cluster.broker(2)
        await asyncio.sleep(2.5)
        beaten = await two.beat(beat_ask("m", answer.epoch))
        assert beaten.assignment == ((ID, (0, 1, 2)),)

    play(scenario)


def test_how_often_a_group_gets_a_target_may_be_chosen_for_it() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        slow = replace(cluster.settings.defaults, assignment_interval_ms=10_000)
        cluster.settings.chosen["slow"] = slow
        broker = await cluster.broker()
        for group_id in ("slow", "usual"):
            await broker.beat(beat_ask(group_id=group_id))
        cluster.book.put("t", TOPIC, 4)
        await asyncio.sleep(5)
        made = [event.group_id for event in cluster.written(TargetAssignment)]
        assert made == ["slow", "usual", "usual"]
        await asyncio.sleep(6)
        made = [event.group_id for event in cluster.written(TargetAssignment)]
        assert made == ["slow", "usual", "usual", "slow"]

    play(scenario)
