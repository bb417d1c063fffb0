"""Groups hold no more than they may; who is in can stay (rule 25)."""

import logging
from typing import Any

import pytest
from tests.coordinator.coordinator_cluster import (
    QUICK,
    TOPIC,
    CoordinatorBroker,
    CoordinatorCluster,
    beat_ask,
    commit_event,
    join_ask,
    keep_alive,
    play,
    stable,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import DeleteGroup, LeaveResult, TargetAssignment
from lakelog.groups.table import OFFSET_BYTES, group_bytes, member_bytes
from lakelog.model.errors import ErrorCode

ID = bytes(TOPIC)
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
TOO_MUCH = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def limited(**changes: Any) -> GroupOptions:
    return GroupOptions(initial_rebalance_delay_ms=0, **changes)


def limits(broker: CoordinatorBroker) -> dict[tuple[str, ...], int]:
    list(broker.metrics.group_limits.collect())
    return broker.metrics.group_limits.values


def test_no_more_groups_are_made_than_there_may_be() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        for number in range(3):
            assert await broker.commit(commit_event(group_id=f"g{number}")) is ErrorCode.NONE
        assert await broker.commit(commit_event(group_id="one more")) is TOO_MUCH
        assert (await broker.join(join_ask(group_id="new", api_version=3))).code is FULL
        beaten = await broker.beat(beat_ask("m", group_id="new"))
        assert (beaten.code, bool(beaten.reason)) == (FULL, True)
        assert await broker.commit(commit_event(group_id="g1")) is ErrorCode.NONE
        assert limits(broker)["groups", "held"] == limits(broker)["groups", "limit"] == 3
        assert broker.metrics.group_refusals.value == 3
        await broker.call(lambda: broker.coordinator.submit(DeleteGroup("g0")))
        assert await broker.commit(commit_event(group_id="one more")) is ErrorCode.NONE

    play(scenario, options=limited(groups_max=3))


def test_offsets_of_invented_groups_end_in_refusals_and_not_in_growth() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        codes = [
            await broker.commit(commit_event(group_id=f"g{number}", offsets=rows(10)))
            for number in range(100)
        ]
        taken = codes.count(ErrorCode.NONE)
        assert 0 < taken < 50
        assert codes == [ErrorCode.NONE] * taken + [TOO_MUCH] * (100 - taken)
        assert limits(broker)["bytes", "held"] <= limits(broker)["bytes", "limit"]
        again = commit_event(group_id="g0", offsets=rows(10))
        assert await broker.commit(again) is ErrorCode.NONE  # it makes nothing larger

    play(scenario, options=limited(groups_bytes_max=100_000))


def rows(count: int, metadata: str = "") -> tuple[tuple[bytes, int, int, int, str], ...]:
    return tuple((ID, partition, 5, -1, metadata) for partition in range(count))


def test_one_group_may_not_take_everything() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        assert await broker.commit(commit_event(offsets=rows(20))) is ErrorCode.NONE
        assert await broker.commit(commit_event(offsets=rows(60))) is TOO_MUCH
        assert await broker.commit(commit_event(offsets=rows(20, "x" * 4_000))) is TOO_MUCH
        assert await broker.commit(commit_event(group_id="other")) is ErrorCode.NONE

    play(scenario, options=limited(group_bytes_max=20_000))


def test_who_is_in_a_full_group_stays_and_goes_on() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        assert await broker.commit(commit_event(answer.member_id, 1)) is ErrorCode.NONE
        newcomer = await broker.join(join_ask(api_version=3, protocols=(("range", bytes(9_000)),)))
        assert (newcomer.code, newcomer.member_id) == (FULL, "")
        await keep_alive(broker, answer, every_s=3, for_s=30)
        assert await broker.commit(commit_event(answer.member_id, 1)) is ErrorCode.NONE
        again = await broker.join(join_ask(answer.member_id))
        assert again.code is ErrorCode.NONE
        large = sync_ask(answer.member_id, again.generation, (answer.member_id, bytes(9_000)))
        assert (await broker.sync(large)).code is FULL
        small = sync_ask(answer.member_id, again.generation, (answer.member_id, b"mine"))
        assert (await broker.sync(small)).code is ErrorCode.NONE

    play(scenario, options=limited(group_bytes_max=10_000))


def test_limits_that_were_lowered_throw_nobody_out() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one = await cluster.broker(1)
        answer = await stable(one)
        assert await one.commit(commit_event(answer.member_id, 1)) is ErrorCode.NONE
        cluster.options = limited(group_bytes_max=1, groups_bytes_max=1, groups_max=1)
        two = await cluster.broker(2)
        await keep_alive(two, answer, every_s=3, for_s=30)
        assert await two.commit(commit_event(answer.member_id, 1)) is ErrorCode.NONE
        assert await two.commit(commit_event(answer.member_id, 1, offsets=rows(2))) is TOO_MUCH
        again = await two.join(join_ask(answer.member_id))
        assert again.code is ErrorCode.NONE
        left = await two.call(lambda: two.coordinator.leave("g", [(answer.member_id, None)]))
        assert left == LeaveResult((ErrorCode.NONE,), (answer.member_id,))

    play(scenario)


def test_a_target_that_is_too_much_is_not_written() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1_000)
        broker = await cluster.broker()
        answer = await broker.beat(beat_ask("m"))
        assert answer.code is ErrorCode.NONE
        assert not answer.assignment
        assert cluster.written(TargetAssignment) == []
        cluster.book.put("t", TOPIC, 10)

    play(scenario, options=limited(group_bytes_max=20_000))


@pytest.mark.parametrize("domains", [1, 3])
def test_what_is_held_is_what_the_tables_hold(domains: int) -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 4)
        broker = await cluster.broker(domains=domains)
        answer = await stable(broker)
        for number in range(5):
            asked = commit_event(group_id=f"g{number}", offsets=rows(number + 1, "text"))
            await broker.commit(asked)
        beaten = await broker.beat(beat_ask("m", group_id="k"))
        await broker.beat(beat_ask("n", group_id="k"))
        await broker.beat(beat_ask("m", beaten.epoch, group_id="k", owned=()))
        assert limits(broker)["bytes", "held"] == counted(broker)
        await broker.beat(beat_ask("n", -1, group_id="k"))
        await broker.call(lambda: broker.coordinator.leave("g", [(answer.member_id, None)]))
        await broker.call(lambda: broker.coordinator.submit(DeleteGroup("g3")))
        assert limits(broker)["bytes", "held"] == counted(broker)
        for replica in broker.replicas:  # as a checkpoint would bring it
            replica.state = replica.state.frozen()
            for callback in replica.on_reload:
                callback()
        assert limits(broker)["bytes", "held"] == counted(broker)

    play(scenario)


def counted(broker: CoordinatorBroker) -> int:
    total = 0
    for table in broker.coordinator.tables():
        for group_id, group in table.groups.items():
            total += group_bytes(group) + sum(map(member_bytes, group.members.values()))
            offsets = table.offsets.get(group_id, {}).values()
            total += sum(OFFSET_BYTES + len(one.metadata) for one in offsets)
    return total


def test_refusals_are_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        await broker.commit(commit_event())
        for number in range(50):
            assert await broker.commit(commit_event(group_id=f"g{number}")) is TOO_MUCH

    with caplog.at_level(logging.WARNING, logger="lakelog.coordinator"):
        play(scenario, options=limited(groups_max=1))
    said = [record for record in caplog.records if record.getMessage() == "group_refused"]
    assert len(said) == 1
    assert said[0].__dict__["fields"]["limit"] == "groups.groups_max=1"


def test_the_defaults_are_limits() -> None:
    assert QUICK.groups_max == 100_000
    assert QUICK.group_bytes_max < QUICK.groups_bytes_max
