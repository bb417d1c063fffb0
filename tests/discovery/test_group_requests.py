"""Every errand ends in an event, from a real coordinator and from nobody."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.discovery.nodes import configured
from tests.discovery.stands import Stand

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.discovery.config import ASSIGNOR_NAME
from lakelog.discovery.group_requests import Beat, Errand, Errands, GroupCalls, GroupWaits
from lakelog.discovery.member import make_member
from lakelog.discovery.membership_events import (
    CoordinatorLost,
    CountsRead,
    Describe,
    Described,
    HeartbeatAnswered,
    Join,
    Joined,
    Leave,
    LeaveAnswered,
    ReadCounts,
    Sync,
    Synced,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode

WAITS = GroupWaits(
    session_timeout_ms=2000,
    rebalance_timeout_ms=2000,
    answer_timeout_s=5.0,
    find_timeout_s=1.0,
)


def with_errands(
    stand: Stand,
    work: Callable[[Errands, KafkaCluster], Awaitable[None]],
    waits: GroupWaits = WAITS,
) -> None:
    async def run() -> None:
        settings = ClientSettings.parse({"bootstrap.servers": stand.bootstrap})
        cluster = KafkaCluster(settings, clock=SystemClock(), entropy=SystemEntropy())
        await cluster.start()
        calls = GroupCalls(cluster, group_id="errands", instance_id="a", waits=waits)
        try:
            await work(Errands(cluster, calls, ASSIGNOR_NAME), cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


def test_a_whole_membership_errand_by_errand(ours: Stand) -> None:
    ours.create(errands=3)
    metadata = make_member(configured(ours, "a", "errands", ["errands"])).subscription()

    async def work(errands: Errands, cluster: KafkaCluster) -> None:
        joined = await errands.run(Join("", metadata, reason="a test"))
        assert isinstance(joined, Joined)
        assert (joined.code, joined.leader) == (0, joined.member_id)
        (me,) = joined.members
        assert (me.instance_id, me.metadata) == ("a", metadata)
        counted = await errands.run(ReadCounts(("errands", "there-is-none")))
        assert counted == CountsRead({"errands": 3})
        assert await errands.run(ReadCounts(())) == CountsRead({})
        mine = joined.member_id
        synced = await errands.run(Sync(mine, joined.generation, ((mine, b"given"),)))
        assert synced == Synced(0, b"given")
        described = await errands.run(Describe())
        assert isinstance(described, Described)
        assert described.group_state == "Stable"
        assert [each.assignment for each in described.members] == [b"given"]
        beat = Beat(mine, joined.generation)
        assert await errands.run(beat) == HeartbeatAnswered(0)
        assert await errands.beat_aside(beat) == 0
        assert await errands.run(Leave(mine)) == LeaveAnswered()
        assert await errands.run(beat) == HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID)
        assert await errands.run(Leave(mine)) == LeaveAnswered(), "whatever comes of it"
        await cluster.close()
        assert await errands.beat_aside(beat) is None

    with_errands(ours, work)


def test_a_refusal_is_the_answer_with_its_code(ours: Stand) -> None:
    async def work(errands: Errands, _: KafkaCluster) -> None:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
        assert await errands.run(Join("", b"")) == Joined(code)
        synced = await errands.run(Sync("nobody", 1))
        assert synced == Synced(ErrorCode.UNKNOWN_MEMBER_ID)

    with_errands(ours, work, GroupWaits(1, 1000, 5.0, 1.0))


def test_when_nobody_answers_the_coordinator_is_lost(ours: Stand) -> None:
    async def work(errands: Errands, cluster: KafkaCluster) -> None:
        await cluster.close()
        asked: list[Errand] = [Join("", b""), Sync("m", 1), Describe(), Beat("m", 1)]
        for errand in (*asked, ReadCounts(("errands",))):
            assert isinstance(await errands.run(errand), CoordinatorLost), errand
        assert await errands.run(Leave("m")) == LeaveAnswered()

    with_errands(ours, work)


def test_giving_up_a_parked_join_frees_the_way_for_leaving(ours: Stand) -> None:
    ours.create(errands=3)
    metadata = make_member(configured(ours, "a", "errands", ["errands"])).subscription()

    async def work(errands: Errands, _: KafkaCluster) -> None:
        joined = await errands.run(Join("", metadata))
        assert isinstance(joined, Joined)
        parked = asyncio.ensure_future(errands.run(Sync("another", 99)))
        await asyncio.sleep(0)
        parked.cancel()
        await asyncio.wait([parked])
        assert parked.cancelled()
        assert await errands.run(Leave(joined.member_id)) == LeaveAnswered()
        gone = await errands.run(Beat(joined.member_id, joined.generation))
        assert gone == HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID)

    with_errands(ours, work)
