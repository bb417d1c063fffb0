"""The group APIs on the real coordinator and the real log: one broker, or two on one store."""

from dataclasses import dataclass
from typing import TypeVar

from msgspec import Struct
from tests.broker import consumer_members
from tests.broker.classic_members import join_request
from tests.broker.offset_requests import commit_request, fetch_request, offset, offsets_of
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker.api import dispatch
from lakelog.broker.call import Answer, Broker, Later
from lakelog.wire.apis import APIS
from lakelog.wire.codec import decode, encode
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from lakelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.join_group import JoinGroupResponse
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lakelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from lakelog.wire.messages.offset_commit import OffsetCommitResponse
from lakelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from lakelog.wire.messages.offset_fetch import OffsetFetchResponse
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

Response = TypeVar("Response", bound=Struct)


@dataclass(frozen=True, slots=True)
class Client:
    """A client of one broker."""

    broker: Broker

    async def begin(self, request: Struct, version: int) -> Answer | Later:
        (api,) = (api for api in APIS.values() if api.request is type(request))
        body = memoryview(b"".join(encode(request, version)))
        return await dispatch(self.broker, api.key, call(self.broker, version), body)

    async def ask(self, request: Struct, kind: type[Response], version: int) -> Response:
        answer = await finish(await self.begin(request, version))
        assert isinstance(answer, kind)
        found, _ = decode(kind, version, memoryview(b"".join(encode(answer, version))))
        return found

    async def stable(self, group_id: str = "g") -> JoinGroupResponse:
        """Join alone and take everything."""
        needed = await self.ask(join_request(group_id=group_id), JoinGroupResponse, 9)
        assert needed.error_code == 79
        joining = join_request(needed.member_id, group_id=group_id)
        joined = await self.ask(joining, JoinGroupResponse, 9)
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        request = SyncGroupRequest(
            group_id,
            joined.generation_id,
            joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(SyncGroupRequestAssignment(joined.member_id, b"all"),),
        )
        synced = await self.ask(request, SyncGroupResponse, 5)
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return joined


async def made(broker: Broker, name: str, partitions: int = 1) -> None:
    await broker.topics.create(name, partitions=partitions, replication_factor=1, configs={})


def test_a_member_lives_commits_and_leaves_and_its_group_is_deleted() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t", 2)
            client = Client(broker)
            member = await client.stable()
            beat = HeartbeatRequest("g", member.generation_id, member.member_id)
            assert (await client.ask(beat, HeartbeatResponse, 4)).error_code == 0
            commit = commit_request(
                offset(0, 5, "note"), generation=member.generation_id, member_id=member.member_id
            )
            committed = await client.ask(commit, OffsetCommitResponse, 9)
            assert committed.topics[0].partitions[0].error_code == 0
            forget = OffsetDeleteRequest(
                "g", (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),)
            )
            kept = await client.ask(forget, OffsetDeleteResponse, 0)
            assert kept.topics[0].partitions[0].error_code == 86
            described = await client.ask(DescribeGroupsRequest(("g",)), DescribeGroupsResponse, 6)
            assert described.groups[0].group_state == "Stable"
            assert described.groups[0].members[0].member_assignment == b"all"
            delete = DeleteGroupsRequest(("g",))
            refused = await client.ask(delete, DeleteGroupsResponse, 2)
            assert refused.results[0].error_code == 68
            leave = LeaveGroupRequest("g", (MemberIdentity(member.member_id),))
            left = await client.ask(leave, LeaveGroupResponse, 5)
            assert left.members[0].error_code == 0
            fetched = await client.ask(fetch_request(), OffsetFetchResponse, 9)
            assert offsets_of(fetched.groups[0]) == {("t", 0): (5, "note")}
            deleted = await client.ask(delete, DeleteGroupsResponse, 2)
            assert deleted.results[0].error_code == 0
            fetched = await client.ask(fetch_request(), OffsetFetchResponse, 9)
            assert offsets_of(fetched.groups[0]) == {}

    run(scenario)


def test_what_one_broker_answered_every_other_knows() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with (
            whole_broker(cluster, 1, domains=2) as one,
            whole_broker(cluster, 2, domains=2) as two,
        ):
            await one.cluster.refresh()
            await made(one, "t")
            first, second = Client(one), Client(two)
            for number in range(6):
                request = commit_request(offset(0, number), group_id=f"group-{number}")
                await (first if number % 2 else second).ask(request, OffsetCommitResponse, 9)
            for number in range(6):
                asked = fetch_request(f"group-{number}", t=(0,))
                found = await (second if number % 2 else first).ask(asked, OffsetFetchResponse, 9)
                assert offsets_of(found.groups[0]) == {("t", 0): (number, "")}
            listed = [
                group.group_id
                for client in (first, second)
                for group in (await client.ask(ListGroupsRequest(), ListGroupsResponse, 5)).groups
            ]
            assert sorted(listed) == [f"group-{number}" for number in range(6)]
            member = await first.stable("group-0")
            beat = HeartbeatRequest("group-0", member.generation_id, member.member_id)
            described = await second.ask(
                DescribeGroupsRequest(("group-0",)), DescribeGroupsResponse, 6
            )
            assert described.groups[0].group_state == "Stable"
            assert (await second.ask(beat, HeartbeatResponse, 4)).error_code == 0

    run(scenario)


def test_a_fetch_behind_a_commit_on_one_connection_sees_it() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t")
            client = Client(broker)
            for number in range(20):
                begun = await client.begin(commit_request(offset(0, number)), 9)
                found = await client.ask(fetch_request(t=(0,)), OffsetFetchResponse, 9)
                assert offsets_of(found.groups[0]) == {("t", 0): (number, "")}
                await finish(begun)

    run(scenario)


def test_a_commit_before_a_leave_on_one_connection_is_kept() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t")
            client = Client(broker)
            member = await client.stable()
            commit = commit_request(
                offset(0, 5), generation=member.generation_id, member_id=member.member_id
            )
            leave = LeaveGroupRequest("g", (MemberIdentity(member.member_id),))
            begun = [await client.begin(commit, 9), await client.begin(leave, 5)]
            committed, left = [await finish(one) for one in begun]
            assert isinstance(committed, OffsetCommitResponse)
            assert committed.topics[0].partitions[0].error_code == 0
            assert isinstance(left, LeaveGroupResponse)
            assert left.members[0].error_code == 0

    run(scenario)


def test_a_member_of_a_consumer_group_gets_its_partitions_and_is_described() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await made(broker, "t", 3)
            client = Client(broker)
            topic = broker.topics.cached("t")
            assert topic is not None
            request = consumer_members.join_request("m", "t")
            joined = await client.ask(request, ConsumerGroupHeartbeatResponse, 1)
            assert joined.error_code == 0
            owned = {topic.id: (0, 1, 2)}
            assert consumer_members.assigned(joined) == owned
            beat = consumer_members.beat_request("m", joined.member_epoch, owned)
            assert (await client.ask(beat, ConsumerGroupHeartbeatResponse, 1)).error_code == 0
            described = await client.ask(
                ConsumerGroupDescribeRequest(("k",)), ConsumerGroupDescribeResponse, 1
            )
            (group,) = described.groups
            assert (group.error_code, group.group_state) == (0, "Stable")
            (share,) = group.members[0].assignment.topic_partitions
            assert (share.topic_name, share.partitions) == ("t", (0, 1, 2))
            commit = commit_request(
                offset(0, 5), group_id="k", generation=joined.member_epoch, member_id="m"
            )
            committed = await client.ask(commit, OffsetCommitResponse, 9)
            assert committed.topics[0].partitions[0].error_code == 0
            fetch = fetch_request("k", member_id="m", epoch=joined.member_epoch, t=(0,))
            fetched = await client.ask(fetch, OffsetFetchResponse, 9)
            assert offsets_of(fetched.groups[0]) == {("t", 0): (5, "")}

    run(scenario)


def test_what_is_set_for_a_group_holds_at_every_broker() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as one, whole_broker(cluster, 2) as two:
            await one.group_configs.alter(
                "k",
                lambda _: {
                    "consumer.session.timeout.ms": "50000",
                    "consumer.heartbeat.interval.ms": "6000",
                },
            )
            await two.group_configs.current()
            request = consumer_members.join_request("m", "nosuch")
            joined = await Client(two).ask(request, ConsumerGroupHeartbeatResponse, 1)
            assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 6_000)
            group = two.groups.table("k").groups["k"]
            assert group.members["m"].session_timeout_ms == 50_000

    run(scenario)
