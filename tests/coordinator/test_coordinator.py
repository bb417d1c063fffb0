"""A coordinator as a whole: many domains, going away, what it counts."""

import asyncio

from tests.coordinator.coordinator_cluster import (
    TOPIC,
    CoordinatorCluster,
    beat_ask,
    commit_event,
    join_ask,
    joined,
    play,
    stable,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import DeleteGroup, GroupEventResult
from lakelog.model.errors import ErrorCode

GOING = ErrorCode.NOT_COORDINATOR


def test_a_broker_that_goes_away_sends_everybody_away_at_once() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        groups = broker.coordinator
        member = await joined(broker)
        waiting_sync = broker.sync(sync_ask("other", 1, group_id="none"))
        joining = broker.join(join_ask(group_id="slow", api_version=3))
        follower = broker.join(join_ask(api_version=3))
        await asyncio.sleep(0.2)
        assert (await waiting_sync).code is ErrorCode.UNKNOWN_MEMBER_ID
        assert not joining.done()
        before_s = cluster.loop.time()
        groups.drain()
        assert (await joining).code is GOING
        assert (await follower).code is GOING
        assert cluster.loop.time() == before_s
        assert (await broker.join(join_ask())).code is GOING
        assert (await broker.sync(sync_ask("m", 1))).code is GOING
        assert (await broker.beat(beat_ask())).code is GOING
        assert await broker.heartbeat(member.member_id, 1) is GOING
        assert await broker.commit(commit_event()) is GOING
        assert await broker.call(lambda: groups.leave("g", [("m", None)])) is GOING
        assert await broker.call(lambda: groups.submit(DeleteGroup("g"))) is GOING

    play(scenario, options=GroupOptions(initial_rebalance_delay_ms=3_000))


def test_a_closed_coordinator_leaves_nothing_running() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        cluster.book.put("t", TOPIC, 1)
        await stable(broker)
        await broker.beat(beat_ask(group_id="h"))
        waiting = broker.join(join_ask(group_id="slow", api_version=3, session_timeout_ms=6_000))
        await waiting
        await broker.call(broker.coordinator.close)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not {name for name in names if "group" in name or "offset" in name}
        assert broker.replicas[0].listeners == []
        await broker.call(broker.coordinator.close)

    play(scenario)


def test_groups_are_spread_over_all_domains_and_work_in_each() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker(domains=3)
        cluster.book.put("t", TOPIC, 4)
        names = [f"group-{number}" for number in range(12)]
        for name in names:
            answer = await stable(broker, group_id=name)
            code = await broker.heartbeat(answer.member_id, 1, group_id=name)
            assert code is ErrorCode.NONE
            beaten = await broker.beat(beat_ask(group_id=f"consumer {name}"))
            assert beaten.assignment == ((bytes(TOPIC), (0, 1, 2, 3)),)
        assert all(table.groups for table in broker.coordinator.tables())
        assert sum(len(table.groups) for table in broker.coordinator.tables()) == 24
        await broker.call(lambda: broker.coordinator.prove(None, arrived_s=0.0))
        await asyncio.sleep(10.5)
        assert not any(broker.classic(name).members for name in names)

    play(scenario)


def test_other_events_go_through_the_log_too() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        groups = broker.coordinator
        await broker.commit(commit_event())
        assert await broker.call(lambda: groups.submit(DeleteGroup("g"))) == GroupEventResult(
            ErrorCode.NONE
        )
        missing = await broker.call(lambda: groups.submit(DeleteGroup("g")))
        assert missing == GroupEventResult(ErrorCode.GROUP_ID_NOT_FOUND)

    play(scenario)


def test_groups_are_counted_by_state() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        cluster.book.put("t", TOPIC, 1)
        await stable(one)
        await one.commit(commit_event(group_id="simple"))
        answer = await one.beat(beat_ask(group_id="h"))
        assert answer.assignment
        await asyncio.sleep(0.2)
        for broker in (one, two):
            (family,) = broker.metrics.groups.collect()
            counted = {
                (sample.labels["protocol"], sample.labels["state"]): sample.value
                for sample in family.samples
            }
            assert counted == {
                ("classic", "Stable"): 1,
                ("classic", "Empty"): 1,
                ("consumer", "Stable"): 1,
            }
        assert one.metrics.rebalances.value + two.metrics.rebalances.value >= 1

    play(scenario)


def test_a_group_changes_its_protocol_when_it_is_empty() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        broker = await cluster.broker()
        member = await stable(broker)
        refused = await broker.beat(beat_ask())
        assert refused.code is ErrorCode.GROUP_ID_NOT_FOUND
        leavers = [(member.member_id, None)]
        await broker.call(lambda: broker.coordinator.leave("g", leavers))
        assert (await broker.beat(beat_ask())).code is ErrorCode.NONE
        classic = await broker.join(join_ask(api_version=3))
        assert classic.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert await broker.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
        await broker.beat(beat_ask("m", -1))
        assert (await broker.join(join_ask(api_version=3))).code is ErrorCode.NONE

    play(scenario)
