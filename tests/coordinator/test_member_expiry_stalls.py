"""A broker that stood still or had no store expires nobody for it and keeps nobody who is gone."""

import asyncio

import pytest
from tests.coordinator.coordinator_cluster import (
    SESSION_MS,
    CoordinatorBroker,
    CoordinatorCluster,
    join_ask,
    play,
    stable,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.timers import LATE_EXCUSED_S_MAX
from lakelog.domain.options import DomainOptions
from lakelog.groups.events import Expire
from lakelog.model.errors import ErrorCode

SESSION_S = SESSION_MS / 1000
SOON_S = 0.5
"""A tick, and the way into the log."""
DELAYED = GroupOptions(initial_rebalance_delay_ms=3_000)


async def pause(cluster: CoordinatorCluster, broker: CoordinatorBroker, seconds: float) -> None:
    cluster.loop.stop_process(broker.process)
    await asyncio.sleep(seconds)
    cluster.loop.continue_process(broker.process)


def test_a_pause_expires_nobody() -> None:
    """Not a short one, by which deadlines move, nor a long one, after which all begins anew."""

    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        for seconds in (2.0, 8.0, 30.0, 300.0):
            await asyncio.sleep(SESSION_S - 1)
            await pause(cluster, broker, seconds)
            await asyncio.sleep(0.8)
            assert len(broker.classic().members) == 1, seconds
            assert await broker.heartbeat(answer.member_id, 1) is ErrorCode.NONE
        assert cluster.written(Expire) == []
        await asyncio.sleep(SESSION_S + 2 * SOON_S)
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_after_a_long_pause_who_speaks_soon_stays_and_who_is_silent_goes() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        await asyncio.sleep(SESSION_S - 1)
        await pause(cluster, broker, 60.0)
        await asyncio.sleep(LATE_EXCUSED_S_MAX - SOON_S)
        assert await broker.heartbeat(answer.member_id, 1) is ErrorCode.NONE
        await asyncio.sleep(SESSION_S - 1)
        assert len(broker.classic().members) == 1
        await pause(cluster, broker, 60.0)
        await asyncio.sleep(LATE_EXCUSED_S_MAX + SOON_S)
        assert not broker.classic().members

    for fresh_s in (DomainOptions().fresh_s, 1e9):
        play(scenario, domain=DomainOptions(fresh_s=fresh_s))


@pytest.mark.parametrize(("runs_s", "stands_s"), [(0.15, 0.5), (0.15, 2.5), (0.7, 4.0)])
def test_a_busy_machine_keeps_no_dead_member(runs_s: float, stands_s: float) -> None:
    """Every tick is late, each by itself no more than a stall: that is excused once (rule 23)."""

    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await stable(broker)
        limit_s = SESSION_S + LATE_EXCUSED_S_MAX + 2 * (runs_s + stands_s)
        until_s = cluster.loop.time() + limit_s
        while cluster.loop.time() < until_s:
            await asyncio.sleep(runs_s)
            await pause(cluster, broker, stands_s)
        await asyncio.sleep(SOON_S)
        assert not broker.classic().members
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_an_outage_restarts_the_session_of_a_silent_member_once() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await stable(broker)
        began_s = cluster.loop.time()
        while cluster.loop.time() < began_s + 3 * SESSION_S + LATE_EXCUSED_S_MAX:
            broker.faults.outage_until_s = cluster.loop.time() + 6
            await asyncio.sleep(8)
        await asyncio.sleep(SOON_S)
        assert len(cluster.written(Expire)) == 1

    play(scenario)


def test_a_rebalance_ends_in_time_on_a_busy_machine() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        waiting = broker.join(join_ask(api_version=3))
        while cluster.loop.time() < 3.0 + LATE_EXCUSED_S_MAX + 2:
            await asyncio.sleep(0.15)
            await pause(cluster, broker, 0.8)
        assert waiting.done()

    play(scenario, options=DELAYED)


def test_while_the_store_is_away_nothing_expires_and_then_all_begins_anew() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        broker.faults.outage_until_s = cluster.loop.time() + 40
        await asyncio.sleep(5)
        code = await broker.heartbeat(answer.member_id, 1)
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(35 + SESSION_S - 1)
        assert cluster.written(Expire) == []
        await asyncio.sleep(SESSION_S)
        assert len(cluster.written(Expire)) == 1

    play(scenario)
