"""Commits are judged in the log, share records, and large ones go in parts."""

import asyncio
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.coordinator.coordinator_cluster import (
    TOPIC,
    CoordinatorCluster,
    beat_ask,
    commit_event,
    play,
    stable,
)

from lakelog.coordinator.offsets import commit_parts
from lakelog.groups.events import CommitOffsets, encode_group_event
from lakelog.model.errors import ErrorCode

ID = bytes(TOPIC)


def test_many_commits_share_records() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        before = len(cluster.journal.mutations)
        asked = [broker.commit(commit_event(group_id=f"g{number}")) for number in range(1_000)]
        assert {await one for one in asked} == {ErrorCode.NONE}
        assert len(cluster.journal.mutations) - before < 10
        assert broker.metrics.offset_commits.value == 1_000

    play(scenario)


def test_the_generation_is_checked_and_refusals_count_for_nothing() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        answer = await stable(broker)
        member_id = answer.member_id
        assert await broker.commit(commit_event(member_id, 1)) is ErrorCode.NONE
        assert await broker.commit(commit_event(member_id, 2)) is ErrorCode.ILLEGAL_GENERATION
        assert await broker.commit(commit_event("other", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.metrics.offset_commits.value == 1

    play(scenario)


def test_a_commit_of_many_thousand_partitions_arrives_whole() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        offsets = tuple((ID, number, number, -1, "x" * 20) for number in range(60_000))
        assert await broker.commit(commit_event(offsets=offsets)) is ErrorCode.NONE
        assert len(broker.coordinator.table("g").offsets["g"]) == 60_000
        assert len(cluster.written(CommitOffsets)) > 1
        refused = commit_event("nobody", 3, offsets=offsets)
        assert await broker.commit(refused) is ErrorCode.UNKNOWN_MEMBER_ID

    play(scenario)


@pytest.mark.parametrize("refused_at", [0, 150, 299])
def test_a_commit_in_parts_is_answered_with_the_code_of_the_part_that_is_refused(
    refused_at: int,
) -> None:
    """Whichever part it is: the parts after it are taken in, and that is no success."""

    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, 1)
        broker = await cluster.broker()
        first = (await broker.beat(beat_ask("m"))).epoch
        cluster.book.put("t", TOPIC, 2)
        await asyncio.sleep(2.5)
        assert (await broker.beat(beat_ask("m", first))).epoch > first
        # Of an older epoch: good for partition 0, which the member had then (KIP-1251).
        rows = [(ID, 0, number, -1, "x" * 4_000) for number in range(300)]
        good = commit_event("m", first, offsets=tuple(rows))
        assert await broker.commit(good) is ErrorCode.NONE
        assert len(cluster.written(CommitOffsets)) > 1
        rows[refused_at] = (ID, 1, 7, -1, "")
        bad = commit_event("m", first, offsets=tuple(rows))
        assert await broker.commit(bad) is ErrorCode.STALE_MEMBER_EPOCH
        assert (ID, 1) not in broker.coordinator.table("g").offsets["g"]

    play(scenario)


def test_a_commit_that_the_log_does_not_take_in_hears_15() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        broker.faults.outage_until_s = cluster.loop.time() + 30
        began_s = cluster.loop.time()
        code = await broker.commit(commit_event())
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 4.9 < cluster.loop.time() - began_s < 5.5

    play(scenario)


def test_k6_commits_are_not_taken_in_by_a_broker_that_may_be_held_for_gone() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        broker.brokers.until_s = broker.clock.monotonic_s()
        code = await broker.commit(commit_event())
        assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.brokers.until_s = float("inf")
        await asyncio.sleep(5)
        assert cluster.written(CommitOffsets) == []

    play(scenario)


def test_a_commit_that_was_given_up_while_it_waited_is_not_written_later() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        broker.faults.outage_until_s = cluster.loop.time() + 30
        first = broker.commit(replace(commit_event(), time_ms=1))
        await asyncio.sleep(0)
        second = broker.commit(replace(commit_event(), time_ms=2))
        assert await first is await second is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(60)
        assert [event.time_ms for event in cluster.written(CommitOffsets)] == [1]

    play(scenario)


def test_a_read_sees_what_was_committed_before_it_on_the_same_connection() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        broker = await cluster.broker()
        groups = broker.coordinator

        async def pipelined(offset: int) -> None:
            committing = groups.commit(commit_event(offsets=((ID, 0, offset, -1, ""),)))
            await groups.prove("g", arrived_s=broker.clock.monotonic_s())
            assert groups.table("g").offsets["g"][ID, 0].offset == offset
            assert await committing is ErrorCode.NONE

        for offset in range(30):  # the store may answer a read before it takes an append in
            await broker.call(partial(pipelined, offset))

    play(scenario)


def test_a_read_elsewhere_sees_what_was_acknowledged() -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        one, two = await cluster.broker(1), await cluster.broker(2)
        two.faults.watch_loss = 1.0
        await asyncio.sleep(1.1)
        assert await one.commit(commit_event()) is ErrorCode.NONE
        groups = two.coordinator
        await two.call(lambda: groups.prove(None, arrived_s=two.clock.monotonic_s()))
        assert groups.table("g").offsets["g"][ID, 0].offset == 5

    play(scenario)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(200, 3_000))
def test_parts_are_small_enough_and_leave_nothing_out(count: int, bytes_max: int) -> None:
    offsets = tuple((ID, number, number, -1, "m" * (number % 50)) for number in range(count))
    event = commit_event(offsets=offsets)
    parts = commit_parts(event, bytes_max=bytes_max)
    assert all(len(encode_group_event(part)) <= bytes_max for part in parts)
    assert tuple(one for part in parts for one in part.offsets) == offsets
