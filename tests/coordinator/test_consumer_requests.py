"""Heartbeats of consumer groups are written when they change something, and answered in full."""

import asyncio
from dataclasses import replace

from tests.coordinator.coordinator_cluster import (
    TOPIC,
    CoordinatorBroker,
    CoordinatorCluster,
    beat_ask,
    play,
)

from lakelog.groups.events import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    Expire,
    TargetAssignment,
)
from lakelog.model.errors import ErrorCode

SESSION_S = 45.0
ID = bytes(TOPIC)


async def consumer(broker: CoordinatorBroker, member_id: str = "m") -> ConsumerHeartbeatResult:
    answer = await broker.beat(beat_ask(member_id))
    assert answer.code is ErrorCode.NONE, answer
    return answer


def test_a_member_that_joins_gets_its_partitions_with_the_first_answer() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        broker = await cluster.broker()
        answer = await consumer(broker)
        assert answer.assignment == ((ID, (0, 1, 2)),)
        assert answer.epoch == broker.consumer().epoch
        assert cluster.loop.time() < 0.1

    play(scenario)


def test_that_holds_when_another_broker_makes_the_target() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        one, _ = await cluster.broker(1), await cluster.broker(2)
        group_id = cluster.group_owned_by(2)
        began_s = cluster.loop.time()
        answer = await one.beat(beat_ask(group_id=group_id))
        assert answer.assignment == ((ID, (0, 1, 2)),)
        assert cluster.loop.time() - began_s < 0.1
        assert len(cluster.written(TargetAssignment)) == 1

    play(scenario)


def test_heartbeats_that_change_nothing_are_not_written_and_keep_the_member() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        broker = await cluster.broker()
        answer = await consumer(broker)
        await asyncio.sleep(2)
        before = len(cluster.journal.mutations)
        for _ in range(20):
            await asyncio.sleep(5)
            beaten = await broker.beat(beat_ask("m", answer.epoch))
            assert (beaten.code, beaten.epoch, beaten.assignment) == (0, answer.epoch, None)
        assert len(cluster.journal.mutations) == before
        await asyncio.sleep(SESSION_S - 1)
        assert list(broker.consumer().members) == ["m"]
        await asyncio.sleep(2)
        assert not broker.consumer().members
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_a_member_that_moves_to_another_broker_is_watched_there() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        one, two = await cluster.broker(1), await cluster.broker(2)
        answer = await consumer(one)
        for _ in range(20):
            await asyncio.sleep(5)
            assert (await two.beat(beat_ask("m", answer.epoch))).code is ErrorCode.NONE
        assert two.consumer().members["m"].holder == 2
        assert cluster.written(Expire) == []

    play(scenario)


def test_partitions_are_given_up_before_they_are_given_away() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        broker = await cluster.broker()
        first = await consumer(broker, "a")
        await asyncio.sleep(1)
        second = await consumer(broker, "b")
        assert second.assignment == ()
        reduced = await broker.beat(beat_ask("a", first.epoch))
        assert reduced.assignment is not None
        ((_, kept),) = reduced.assignment
        assert len(kept) == 1
        waiting = await broker.beat(beat_ask("b", second.epoch))
        assert waiting.assignment is None
        await broker.beat(beat_ask("a", first.epoch, owned=((ID, kept),)))
        given = await broker.beat(beat_ask("b", waiting.epoch))
        assert given.assignment == ((ID, tuple({0, 1} - set(kept))),)

    play(scenario)


def test_members_that_come_in_one_second_share_targets() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 100)
        broker = await cluster.broker()
        joins = []
        for number in range(50):
            joins.append(broker.beat(beat_ask(f"m{number}")))
            await asyncio.sleep(0.05)
        answers = [await one for one in joins]
        assert {answer.code for answer in answers} == {ErrorCode.NONE}
        await asyncio.sleep(2)
        # A target that a member overtook is refused and made again: those that count are few.
        assert broker.metrics.rebalances.value <= 5
        group = broker.consumer()
        assert group.target_epoch == group.epoch
        sizes = {len(share.get(ID, ())) for share in group.target.values()}
        assert sizes == {2}

    play(scenario)


def test_bad_news_are_told_only_by_a_state_that_is_current() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        one, two = await cluster.broker(1), await cluster.broker(2)
        group_id = cluster.group_owned_by(1)
        two.faults.watch_loss = 1.0  # it hears of records only when it asks
        await asyncio.sleep(1.1)
        answer = await one.beat(beat_ask(group_id=group_id))
        assert two.group(group_id) is None
        # It did not know the member when this came: what waited elsewhere looks the same (K4).
        beaten = await two.beat(beat_ask("m", answer.epoch, group_id=group_id))
        assert beaten.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        beaten = await two.beat(beat_ask("m", answer.epoch, group_id=group_id))
        assert (beaten.code, beaten.epoch) == (ErrorCode.NONE, answer.epoch)
        fenced = await two.beat(beat_ask("m", answer.epoch + 7, group_id=group_id))
        assert fenced.code is ErrorCode.FENCED_MEMBER_EPOCH
        unknown = await two.beat(beat_ask("nobody", 1, group_id=group_id))
        assert unknown.code is ErrorCode.UNKNOWN_MEMBER_ID
        none = await two.beat(beat_ask("m", 1, group_id="nothing"))
        assert none.code is ErrorCode.GROUP_ID_NOT_FOUND

    play(scenario)


def test_a_leave_is_written_and_answered_with_its_epoch() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        broker = await cluster.broker()
        await consumer(broker)
        left = await broker.beat(beat_ask("m", -1))
        assert (left.code, left.epoch) == (ErrorCode.NONE, -1)
        assert not broker.consumer().members
        static = await broker.beat(beat_ask("s", instance_id="i"))
        away = await broker.beat(beat_ask("s", -2, instance_id="i"))
        assert (away.code, away.epoch) == (ErrorCode.NONE, -2)
        back = await broker.beat(beat_ask("s2", instance_id="i"))
        assert (back.code, back.assignment) == (ErrorCode.NONE, static.assignment)

    play(scenario)


def test_version_0_members_get_an_id() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask("", api_version=0))
        assert answer.code is ErrorCode.NONE
        assert len(answer.member_id) == 22

    play(scenario)


def test_a_changed_subscription_gets_its_partitions_with_the_answer() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 2)
        cluster.book.put("u", TOPIC.__class__(b"u" * 16), 1)
        broker = await cluster.broker()
        answer = await consumer(broker)
        await asyncio.sleep(1)
        changed = await broker.beat(beat_ask("m", answer.epoch, names=("t", "u")))
        assert changed.assignment == ((ID, (0, 1)), (b"u" * 16, (0,)))
        assert changed.epoch == answer.epoch + 1

    play(scenario)


def test_without_a_session_or_the_store_the_answer_is_15() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        broker = await cluster.broker()
        answer = await consumer(broker)
        broker.brokers.until_s = 0.0
        lost = await broker.beat(beat_ask("m", answer.epoch))
        assert lost.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.brokers.until_s = float("inf")
        broker.faults.outage_until_s = cluster.loop.time() + 20
        unknown = await broker.beat(beat_ask("new"))
        assert unknown.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(22)
        assert (await broker.beat(beat_ask("m", answer.epoch))).code in {
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
        }

    play(scenario)


def test_a_subscription_larger_than_a_record_comes_through_and_one_beyond_all_is_refused() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        names = tuple(f"{number:0240}" for number in range(5_000))
        assert (await broker.beat(beat_ask(names=names))).code is ErrorCode.NONE
        assert broker.consumer().members["m"].names == names
        names = tuple(f"{number:0240}" for number in range(40_000))
        answer = await broker.beat(beat_ask("n", names=names))
        assert answer.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert list(broker.consumer().members) == ["m"]

    play(scenario)


def test_a_session_that_is_chosen_for_a_group_holds_from_the_next_heartbeat_on() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 3)
        broker = await cluster.broker()
        answer = await consumer(broker)
        longer = replace(cluster.settings.defaults, session_timeout_ms=60_000)
        cluster.settings.chosen["g"] = longer
        assert (await broker.beat(beat_ask("m", answer.epoch))).code is ErrorCode.NONE
        written = len(cluster.written(ConsumerHeartbeat))
        assert (await broker.beat(beat_ask("m", answer.epoch))).code is ErrorCode.NONE
        assert len(cluster.written(ConsumerHeartbeat)) == written
        await asyncio.sleep(59)
        assert list(broker.consumer().members) == ["m"]
        await asyncio.sleep(2)
        assert not broker.consumer().members

    play(scenario)
