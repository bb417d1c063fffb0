"""Every request ends in an event, from a real coordinator and from nobody."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.discovery.nodes import configured
from tests.discovery.stands import Stand

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.discovery.config import ASSIGNOR_NAME
from lakelog.discovery.group_requests import (
    GroupCalls,
    GroupRequest,
    GroupRequests,
    GroupTimeouts,
    SendHeartbeat,
)
from lakelog.discovery.member import make_member
from lakelog.discovery.membership_events import (
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    ReadCounts,
    SendDescribe,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswered,
)
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.settings import ClientSettings
from lakelog.model.errors import ErrorCode

WAITS = GroupTimeouts(
    session_timeout_ms=2000,
    rebalance_timeout_ms=2000,
    answer_timeout_s=5.0,
    find_timeout_s=1.0,
)


def with_requests(
    stand: Stand,
    work: Callable[[GroupRequests, KafkaCluster], Awaitable[None]],
    waits: GroupTimeouts = WAITS,
) -> None:
    async def run() -> None:
        settings = ClientSettings.parse({"bootstrap.servers": stand.bootstrap})
        cluster = KafkaCluster(settings, clock=SystemClock(), entropy=SystemEntropy())
        await cluster.start()
        calls = GroupCalls(cluster, group_id="requests", instance_id="a", waits=waits)
        try:
            await work(GroupRequests(cluster, calls, ASSIGNOR_NAME), cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


def test_a_whole_membership_request_by_request(ours: Stand) -> None:
    ours.create(requests=3)
    metadata = make_member(configured(ours, "a", "requests", ["requests"])).subscription()

    async def work(requests: GroupRequests, cluster: KafkaCluster) -> None:
        joined = await requests.run(SendJoin("", metadata, reason="a test"))
        assert isinstance(joined, JoinAnswered)
        assert (joined.code, joined.leader) == (0, joined.member_id)
        (me,) = joined.members
        assert (me.instance_id, me.metadata) == ("a", metadata)
        counted = await requests.run(ReadCounts(("requests", "there-is-none")))
        assert counted == CountsRead({"requests": 3})
        assert await requests.run(ReadCounts(())) == CountsRead({})
        mine = joined.member_id
        synced = await requests.run(SendSync(mine, joined.generation, ((mine, b"given"),)))
        assert synced == SyncAnswered(0, b"given")
        described = await requests.run(SendDescribe())
        assert isinstance(described, DescribeAnswered)
        assert described.group_state == "Stable"
        assert [each.assignment for each in described.members] == [b"given"]
        beat = SendHeartbeat(mine, joined.generation)
        assert await requests.run(beat) == HeartbeatAnswered(0)
        assert await requests.beat_aside(beat) == 0
        assert await requests.run(SendLeave(mine)) == LeaveAnswered()
        assert await requests.run(beat) == HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID)
        assert await requests.run(SendLeave(mine)) == LeaveAnswered(), "whatever comes of it"
        await cluster.close()
        assert await requests.beat_aside(beat) is None

    with_requests(ours, work)


def test_a_refusal_is_the_answer_with_its_code(ours: Stand) -> None:
    async def work(requests: GroupRequests, _: KafkaCluster) -> None:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
        assert await requests.run(SendJoin("", b"")) == JoinAnswered(code)
        synced = await requests.run(SendSync("nobody", 1))
        assert synced == SyncAnswered(ErrorCode.UNKNOWN_MEMBER_ID)

    with_requests(ours, work, GroupTimeouts(1, 1000, 5.0, 1.0))


def test_when_nobody_answers_the_coordinator_is_lost(ours: Stand) -> None:
    async def work(requests: GroupRequests, cluster: KafkaCluster) -> None:
        await cluster.close()
        asked: list[GroupRequest] = [
            SendJoin("", b""),
            SendSync("m", 1),
            SendDescribe(),
            SendHeartbeat("m", 1),
        ]
        for request in (*asked, ReadCounts(("requests",))):
            assert isinstance(await requests.run(request), CoordinatorLost), request
        assert await requests.run(SendLeave("m")) == LeaveAnswered()

    with_requests(ours, work)


def test_giving_up_a_parked_join_frees_the_way_for_leaving(ours: Stand) -> None:
    ours.create(requests=3)
    metadata = make_member(configured(ours, "a", "requests", ["requests"])).subscription()

    async def work(requests: GroupRequests, _: KafkaCluster) -> None:
        joined = await requests.run(SendJoin("", metadata))
        assert isinstance(joined, JoinAnswered)
        parked = asyncio.ensure_future(requests.run(SendSync("another", 99)))
        await asyncio.sleep(0)
        parked.cancel()
        await asyncio.wait([parked])
        assert parked.cancelled()
        assert await requests.run(SendLeave(joined.member_id)) == LeaveAnswered()
        gone = await requests.run(SendHeartbeat(joined.member_id, joined.generation))
        assert gone == HeartbeatAnswered(ErrorCode.UNKNOWN_MEMBER_ID)

    with_requests(ours, work)
