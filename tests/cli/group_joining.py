"""Members of groups that speak the protocol themselves, for the tests of `lakelog groups`.

A member stays in its group for its session after its connection is gone, so nothing has to run
beside the command under test.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lakelog.cli.command import open_cluster
from lakelog.kafka_client.admin import TopicPartition, try_commit
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.wire.codec import (
    ConsumerAssignment,
    ConsumerSubscription,
    ConsumerTopicPartitions,
    encode_assignment,
    encode_subscription,
)
from lakelog.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from lakelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lakelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_MS = 45_000
JOIN_S_MAX = 60.0
MEMBER_ID_REQUIRED = 79

Result = TypeVar("Result")


def join_classic(bootstrap: str, group: str, *, client_id: str, assigned: dict[str, int]) -> str:
    """Join as the only member and take these partitions, topic by topic; returns the member id."""
    subscription = encode_subscription(ConsumerSubscription(tuple(assigned)), 1)
    assignment = ConsumerAssignment(
        tuple(
            ConsumerTopicPartitions(topic, tuple(range(count))) for topic, count in assigned.items()
        )
    )
    request = JoinGroupRequest(
        group,
        SESSION_MS,
        SESSION_MS,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol("range", subscription),),
    )

    async def join(client: BrokerConnection) -> str:
        answer = await client.call(request, JoinGroupResponse)
        assert answer.error_code == MEMBER_ID_REQUIRED
        known = JoinGroupRequest(
            group,
            SESSION_MS,
            SESSION_MS,
            answer.member_id,
            protocol_type="consumer",
            protocols=request.protocols,
        )
        answer = await client.call(known, JoinGroupResponse)
        assert answer.error_code == 0
        given = SyncGroupRequestAssignment(answer.member_id, encode_assignment(assignment, 1))
        sync = SyncGroupRequest(
            group, answer.generation_id, answer.member_id, None, "consumer", "range", (given,)
        )
        synced = await client.call(sync, SyncGroupResponse)
        assert synced.error_code == 0
        return answer.member_id

    return _at_coordinator(bootstrap, group, client_id, join)


def leave_classic(bootstrap: str, group: str, member: str) -> None:
    """Leave."""

    async def leave(client: BrokerConnection) -> None:
        request = LeaveGroupRequest(group, (MemberIdentity(member),))
        answer = await client.call(request, LeaveGroupResponse)
        assert answer.error_code == 0

    _at_coordinator(bootstrap, group, "leaver", leave)


def join_consumer(bootstrap: str, group: str, *, client_id: str, rack: str, topic: str) -> str:
    """Join by the KIP-848 protocol and heartbeat until partitions are assigned and taken."""
    member = f"{group}-member"

    async def join(client: BrokerConnection) -> None:
        first = ConsumerGroupHeartbeatRequest(
            group,
            member,
            rack_id=rack,
            rebalance_timeout_ms=SESSION_MS,
            subscribed_topic_names=(topic,),
        )
        answer = await client.call(first, ConsumerGroupHeartbeatResponse)
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert answer.error_code == 0
            beat = ConsumerGroupHeartbeatRequest(
                group, member, answer.member_epoch, topic_partitions=None
            )
            answer = await client.call(beat, ConsumerGroupHeartbeatResponse)
        taken = tuple(
            ConsumerGroupHeartbeatRequestTopicPartitions(each.topic_id, each.partitions)
            for each in answer.assignment.topic_partitions
        )
        beat = ConsumerGroupHeartbeatRequest(
            group, member, answer.member_epoch, topic_partitions=taken
        )
        answer = await client.call(beat, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0

    _at_coordinator(bootstrap, group, client_id, join)
    return member


def leave_consumer(bootstrap: str, group: str, member: str) -> None:
    """Leave."""

    async def leave(client: BrokerConnection) -> None:
        request = ConsumerGroupHeartbeatRequest(group, member, -1, topic_partitions=None)
        answer = await client.call(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0

    _at_coordinator(bootstrap, group, "leaver", leave)


def commit(bootstrap: str, group: str, at: TopicPartition, offset: int) -> None:
    """Commit any offset for no member, as an administrator may."""

    async def conversation() -> None:
        async with open_cluster({"bootstrap.servers": bootstrap}) as cluster:
            assert not await try_commit(cluster, group, {at: offset}, cluster.deadline())

    asyncio.run(conversation())


def delete_records(bootstrap: str, at: TopicPartition, before: int) -> None:
    """Move the log start of a partition."""
    wanted = DeleteRecordsTopic(at.topic, (DeleteRecordsPartition(at.partition, before),))

    async def conversation() -> None:
        async with await dial(bootstrap) as client:
            answer = await client.call(
                DeleteRecordsRequest((wanted,), 30_000), DeleteRecordsResponse
            )
            assert answer.topics[0].partitions[0].error_code == 0

    asyncio.run(conversation())


def _at_coordinator(
    bootstrap: str,
    group: str,
    client_id: str,
    talk: Callable[[BrokerConnection], Awaitable[Result]],
) -> Result:
    async def conversation() -> Result:
        config = {"bootstrap.servers": bootstrap, "client.id": client_id}
        async with asyncio.timeout(JOIN_S_MAX), open_cluster(config) as cluster:
            return await talk(await cluster.coordinator(group))

    return asyncio.run(conversation())
