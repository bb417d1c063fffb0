"""Who falls silent is noticed, by one broker, and nobody else is thrown out with it."""

import asyncio

from tests.coordinator.coordinator_cluster import (
    SESSION_MS,
    CoordinatorBroker,
    CoordinatorCluster,
    commit_event,
    join_ask,
    joined,
    keep_alive,
    play,
    stable,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.timers import RANK_DELAY_S
from lakelog.groups.events import Adopt, Expire, TimerExpired
from lakelog.groups.state import ClassicState
from lakelog.model.errors import ErrorCode

SESSION_S = SESSION_MS / 1000
SOON_S = 0.5
"""A tick, and the way into the log."""
DELAYED = GroupOptions(initial_rebalance_delay_ms=3_000)


def test_a_silent_member_expires_after_its_session_and_not_before() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await stable(broker)
        await asyncio.sleep(SESSION_S - SOON_S)
        assert len(broker.classic().members) == 1
        await asyncio.sleep(2 * SOON_S)
        assert not broker.classic().members
        assert broker.metrics.expired_members.value == 1
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_heartbeats_keep_a_member_and_nothing_is_written_for_them() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        before = len(cluster.journal.mutations)
        await keep_alive(broker, answer, every_s=3, for_s=60)
        assert len(cluster.journal.mutations) == before

    play(scenario)


def test_commits_and_joins_are_signs_of_life() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        for _ in range(4):
            await asyncio.sleep(SESSION_S - 1)
            asked = commit_event(answer.member_id, answer.generation)
            assert await broker.commit(asked) is ErrorCode.NONE
        await asyncio.sleep(SESSION_S - 1)
        again = await broker.join(join_ask(answer.member_id))
        assert again.code is ErrorCode.NONE
        await asyncio.sleep(SESSION_S - 1)
        assert list(broker.classic().members) == [answer.member_id]

    play(scenario)


def test_a_member_that_moves_is_adopted_once_and_stays() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        answer = await stable(one)
        await asyncio.sleep(1)
        await keep_alive(two, answer, every_s=0.001, for_s=0.01)
        await keep_alive(two, answer, every_s=3, for_s=60)
        assert cluster.written(Adopt) == [Adopt("g", answer.member_id, 2)]
        assert cluster.written(Expire) == []
        member = one.classic().members[answer.member_id]
        assert (member.holder, member.holder_epoch) == (2, member.holder_epoch)
        await asyncio.sleep(SESSION_S + SOON_S)
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_two_brokers_that_both_hear_a_member_never_expire_it() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        answer = await stable(one)
        for _ in range(10):
            await keep_alive(one, answer, every_s=2, for_s=4)
            await keep_alive(two, answer, every_s=2, for_s=4)
        assert cluster.written(Expire) == []
        assert one.classic().generation == 1

    play(scenario)


def test_members_of_a_dead_broker_get_a_full_session_at_the_groups_first_broker() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        three = await cluster.broker(3)
        await stable(one)
        await asyncio.sleep(SESSION_S - 1)
        cluster.kill(one)
        await asyncio.sleep(SESSION_S - SOON_S)
        assert len(two.classic().members) == 1
        await asyncio.sleep(3 * SOON_S)
        assert not two.classic().members
        assert len(cluster.written(Expire)) == 1
        assert two.metrics.expired_members.value + three.metrics.expired_members.value == 1

    play(scenario)


def test_only_the_groups_first_broker_expires_members_of_a_dead_one() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two, _ = [await cluster.broker(number) for number in (1, 2, 3)]
        cluster.everybody.live.remove(1)
        group_id = next(name for name in map(str, range(99)) if two.brokers.ranked(name)[0] == 3)
        cluster.everybody.live.append(1)
        await stable(one, group_id=group_id)
        cluster.kill(one)
        cluster.loop.stop_process(cluster.brokers[3].process)
        await asyncio.sleep(3 * SESSION_S)
        assert len(two.classic(group_id).members) == 1
        cluster.everybody.live.remove(3)
        await asyncio.sleep(SESSION_S + 2 * SOON_S)
        assert not two.classic(group_id).members

    play(scenario)


def test_members_that_find_another_broker_in_time_stay() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        answer = await stable(one)
        await asyncio.sleep(SESSION_S - 1)
        cluster.kill(one)
        await asyncio.sleep(SESSION_S - 2)
        await keep_alive(two, answer, every_s=1, for_s=20)
        assert cluster.written(Expire) == []
        assert two.classic().generation == 1

    play(scenario)


def test_a_broker_that_comes_back_watches_its_members_in_full() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one = await cluster.broker(1)
        answer = await stable(one)
        await asyncio.sleep(SESSION_S - 1)
        cluster.kill(one)
        again = await cluster.broker(1)
        await asyncio.sleep(SESSION_S - SOON_S)
        assert await again.heartbeat(answer.member_id, 1) is ErrorCode.NONE
        await asyncio.sleep(SESSION_S + SOON_S)
        assert not again.classic().members

    play(scenario)


def test_bad_news_are_told_only_by_a_state_that_is_current() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        two.faults.watch_loss = 1.0  # it hears of records only when it asks
        await asyncio.sleep(1.1)
        answer = await stable(one)
        assert two.group("g") is None
        assert await two.heartbeat(answer.member_id, 1) is ErrorCode.NONE
        assert await two.heartbeat(answer.member_id, 7) is ErrorCode.ILLEGAL_GENERATION

    play(scenario)


def test_a_broker_that_lost_its_session_says_15_and_expires_nobody() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        broker.brokers.until_s = broker.clock.monotonic_s()
        code = await broker.heartbeat(answer.member_id, 1)
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await broker.join(join_ask())).code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(3 * SESSION_S)
        assert cluster.written(Expire) == []
        broker.brokers.until_s = float("inf")
        await asyncio.sleep(SESSION_S - 1)
        assert await broker.heartbeat(answer.member_id, 1) is ErrorCode.NONE

    play(scenario)


def test_a_paused_broker_does_not_speak_for_a_member_that_others_expired() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        answer = await stable(one)
        cluster.loop.stop_process(one.process)
        cluster.everybody.live.remove(1)
        waiting = one.heartbeat(answer.member_id, 1)
        await asyncio.sleep(SESSION_S + 2 * SOON_S)
        assert not two.classic().members
        cluster.everybody.live.append(1)
        one.brokers.until_s = 0.0
        cluster.loop.continue_process(one.process)
        assert await waiting is ErrorCode.COORDINATOR_NOT_AVAILABLE
        one.brokers.until_s = float("inf")
        await asyncio.sleep(2)
        assert await one.heartbeat(answer.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    play(scenario)


def test_wall_clocks_an_hour_apart_make_no_difference() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one = await cluster.broker(1, skew_ms=3_600_000)
        two = await cluster.broker(2, skew_ms=-3_600_000)
        first = one.join(join_ask(api_version=3))
        second = two.join(join_ask(api_version=3))
        answers = [await first, await second]
        assert {answer.generation for answer in answers} == {1}
        assert cluster.loop.time() < 6.0 + SOON_S  # the second member made the first wait again
        one.clock.skew_ms = -7_200_000
        await asyncio.sleep(SESSION_S - 1)
        assert len(one.classic().members) == 2
        await asyncio.sleep(1 + 2 * SOON_S)
        assert not one.classic().members

    play(scenario, options=DELAYED)


def test_a_member_that_waits_to_join_is_not_silent() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        both = [broker.join(join_ask(api_version=3)) for _ in range(2)]
        leader, slow = sorted([await one for one in both], key=lambda one: not one.members)
        shares = ((leader.member_id, b""), (slow.member_id, b""))
        assert (await broker.sync(sync_ask(leader.member_id, 1, *shares))).code is ErrorCode.NONE
        assert (await broker.sync(sync_ask(slow.member_id, 1))).code is ErrorCode.NONE
        waiting = broker.join(join_ask(leader.member_id))  # the other one does not follow
        alive = asyncio.ensure_future(_beat_on(broker, slow.member_id, 1))
        await asyncio.sleep(5 * SESSION_S)
        assert not waiting.done()
        assert cluster.written(Expire) == []
        await asyncio.sleep(2 * SESSION_S)
        alive.cancel()
        answer = await waiting
        assert (answer.generation, len(answer.members)) == (2, 1)

    play(scenario, options=DELAYED)


async def joined_slowly(broker: CoordinatorBroker) -> str:
    return (await broker.join(join_ask())).member_id


async def _beat_on(broker: CoordinatorBroker, member_id: str, generation: int) -> None:
    while True:
        await asyncio.sleep(1)
        await broker.heartbeat(member_id, generation)


def test_a_new_member_may_not_wait_for_ever() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker, rebalance_timeout_ms=3_600_000)
        new = await joined_slowly(broker)
        waiting = broker.join(join_ask(new))
        alive = asyncio.ensure_future(_beat_on(broker, answer.member_id, 1))
        await asyncio.sleep(299)
        assert not waiting.done()
        await asyncio.sleep(2)
        alive.cancel()
        assert (await waiting).code is ErrorCode.UNKNOWN_MEMBER_ID

    play(scenario)


def test_when_the_first_broker_of_a_group_is_gone_the_next_ends_its_wait() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        group_id = cluster.group_owned_by(2)
        answer = one.join(join_ask(group_id=group_id, api_version=3))
        await asyncio.sleep(1)
        # The others do not know yet that it is gone: only its silence tells.
        cluster.loop.kill_process(two.process)
        assert (await answer).generation == 1
        assert 3.0 + RANK_DELAY_S <= cluster.loop.time() < 3.0 + RANK_DELAY_S + SOON_S
        assert len(cluster.written(TimerExpired)) == 1

    play(scenario, options=DELAYED)


def test_only_the_first_broker_ends_a_wait() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        brokers = [await cluster.broker(number) for number in (1, 2, 3)]
        answer = await brokers[0].join(join_ask(api_version=3))
        assert answer.generation == 1
        await asyncio.sleep(9)
        assert len(cluster.written(TimerExpired)) == 1

    play(scenario, options=DELAYED)


def test_members_that_do_not_ask_for_their_assignment_in_time_are_removed() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await joined(broker, rebalance_timeout_ms=5_000)
        assert broker.classic().state is ClassicState.COMPLETING
        alive = asyncio.ensure_future(_beat_on(broker, answer.member_id, 1))
        await asyncio.sleep(5 + SOON_S)
        alive.cancel()
        assert not broker.classic().members

    play(scenario)


def test_a_replica_that_jumps_ahead_answers_what_waits_from_its_new_state() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        waiting = one.join(join_ask(api_version=3))
        await asyncio.sleep(0.5)
        await two.replicas[0].prove(arrived_s=two.clock.monotonic_s())
        # As after a stop behind a trim: the state is another one, and no record says how.
        one.replicas[0].state = two.replicas[0].state.frozen()
        frozen = one.replicas[0].state.groups
        frozen.apply(TimerExpired("g", 0, "", one.classic().join_number), position=99)
        for callback in one.replicas[0].on_reload:
            callback()
        answer = await waiting
        assert (answer.code, answer.generation) == (ErrorCode.NONE, 1)
        assert cluster.loop.time() < 1.0  # long before any timer

    play(scenario, options=DELAYED)
