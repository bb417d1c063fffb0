"""What a member asks of the cluster: the requests of a classic group, and each effect's event.

Rules:
- A call sends one request: nothing is retried and nothing decided there; an error code is the
  caller's to judge. Every wait has an end. A join and a sync are parked by the coordinator until
  the others are there, for up to the rebalance time-out, and hold up what is sent on the same
  connection meanwhile.
- An effect of the membership that asks the cluster always ends in an event, whatever the cluster
  does; nothing is repeated here. Where nobody answers the coordinator is lost; where somebody
  refuses the code says it, also for a refusal that has no code of its own: wrong credentials, or no
  version in common.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from msgspec import Struct

from lakelog.discovery.membership_events import (
    CoordinatorLost,
    CountsRead,
    DescribeAnswered,
    Event,
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
from lakelog.discovery.roster import RawMember
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.failures import (
    AuthenticationFailed,
    BrokerError,
    ClientFailure,
    TimedOut,
    Unreachable,
    Unsupported,
    Untrusted,
)
from lakelog.model.errors import ErrorCode
from lakelog.wire.codec import PROTOCOL_TYPE
from lakelog.wire.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
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

PARKED_MORE_S: Final = 5.0
"""So much later than the rebalance time-out the answer to a parked request may come."""

ResponseT = TypeVar("ResponseT", bound=Struct)


@dataclass(frozen=True, slots=True)
class GroupTimeouts:
    """The times of one member."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    answer_timeout_s: float
    """For everything that the coordinator answers at once."""
    find_timeout_s: float
    """For looking for the coordinator again and again; then the member hears that it is lost."""

    @property
    def parked_timeout_s(self) -> float:
        """For what the coordinator answers when all are there."""
        return self.rebalance_timeout_ms / 1000 + PARKED_MORE_S


class GroupCalls:
    """The requests of one static member, sent to whoever coordinates its group."""

    def __init__(
        self, cluster: KafkaCluster, *, group_id: str, instance_id: str, waits: GroupTimeouts
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._instance_id = instance_id
        self._waits = waits

    async def join(
        self, member_id: str, *, protocol: str, metadata: bytes, reason: str
    ) -> JoinGroupResponse:
        """Join, or join again."""
        request = JoinGroupRequest(
            self._group_id,
            self._waits.session_timeout_ms,
            self._waits.rebalance_timeout_ms,
            member_id,
            self._instance_id,
            PROTOCOL_TYPE,
            (JoinGroupRequestProtocol(protocol, metadata),),
            reason,
        )
        return await self._ask(request, JoinGroupResponse, self._waits.parked_timeout_s)

    async def sync(
        self, member_id: str, generation: int, *, protocol: str, assignments: Mapping[str, bytes]
    ) -> SyncGroupResponse:
        """Ask for what this member was given; the leader says what everyone is given."""
        request = SyncGroupRequest(
            self._group_id,
            generation,
            member_id,
            self._instance_id,
            PROTOCOL_TYPE,
            protocol,
            tuple(SyncGroupRequestAssignment(*pair) for pair in sorted(assignments.items())),
        )
        return await self._ask(request, SyncGroupResponse, self._waits.parked_timeout_s)

    async def heartbeat(self, member_id: str, generation: int) -> int:
        """Say that this member lives; the error code."""
        request = HeartbeatRequest(self._group_id, generation, member_id, self._instance_id)
        return (await self._ask(request, HeartbeatResponse)).error_code

    async def heartbeat_aside(self, member_id: str, generation: int) -> int:
        """The same on another connection to the coordinator, past a request that is parked."""
        main = await self._coordinator()
        node_ids = [at for at, where in self._cluster.brokers.items() if where == main.endpoint]
        if not node_ids:
            raise Unreachable(f"the coordinator at {main.endpoint} is no broker of the cluster")
        connection = await self._cluster.connection(node_ids[0])
        request = HeartbeatRequest(self._group_id, generation, member_id, self._instance_id)
        return (await self._call(connection, request, HeartbeatResponse)).error_code

    async def leave(self, member_id: str, *, reason: str) -> int:
        """Leave for good, also the instance; the error code."""
        identity = MemberIdentity(member_id, self._instance_id, reason)
        answer = await self._ask(
            LeaveGroupRequest(self._group_id, (identity,), member_id), LeaveGroupResponse
        )
        codes = (answer.error_code, *(each.error_code for each in answer.members))
        return next((code for code in codes if code), 0)

    async def describe(self) -> DescribeGroupsDescribedGroup | None:
        """The group as its coordinator knows it; None if that is silent about it."""
        answer = await self._ask(DescribeGroupsRequest((self._group_id,)), DescribeGroupsResponse)
        return answer.groups[0] if answer.groups else None

    def forget_coordinator(self) -> None:
        """Look for it again before the next request."""
        self._cluster.forget_coordinator(self._group_id)

    async def _ask(
        self, request: Struct, answer: type[ResponseT], timeout_s: float | None = None
    ) -> ResponseT:
        return await self._call(await self._coordinator(), request, answer, timeout_s)

    async def _coordinator(self) -> BrokerConnection:
        return await self._cluster.coordinator(self._group_id, timeout_s=self._waits.find_timeout_s)

    async def _call(
        self,
        connection: BrokerConnection,
        request: Struct,
        answer: type[ResponseT],
        timeout_s: float | None = None,
    ) -> ResponseT:
        try:
            return await connection.call(
                request, answer, timeout_s=timeout_s or self._waits.answer_timeout_s
            )
        except (TimedOut, asyncio.CancelledError):
            # What nobody waits for any more would still hold up whatever is asked after it.
            connection.abort(Unreachable(f"{connection.endpoint} was given up"))
            raise


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send Heartbeat."""

    member_id: str
    generation: int


GroupRequest = SendJoin | ReadCounts | SendSync | SendDescribe | SendLeave | SendHeartbeat


class GroupRequests:
    """Does what a member wants of the cluster, one request at a time."""

    def __init__(self, cluster: KafkaCluster, calls: GroupCalls, protocol: str) -> None:
        self._cluster = cluster
        self._calls = calls
        self._protocol = protocol

    async def run(self, request: GroupRequest) -> Event:
        """Do it and say what came of it."""
        try:
            return await self._run(request)
        except (AuthenticationFailed, Untrusted):
            return _refused(request, ErrorCode.SASL_AUTHENTICATION_FAILED)
        except Unsupported:
            return _refused(request, ErrorCode.UNSUPPORTED_VERSION)
        except BrokerError as refusal:
            return _refused(request, refusal.code)
        except ClientFailure as reason:
            return (
                LeaveAnswered() if isinstance(request, SendLeave) else CoordinatorLost(str(reason))
            )

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        """The partition counts of those topics that there are; raises ClientFailure."""
        if not topics:
            return {}
        found = await self._cluster.topics(topics, fresh=True)
        counts = {}
        for topic in found.values():
            if topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                # A count that is not known must not be taken for none.
                raise BrokerError(topic.error, f"topic {topic.name!r}")
            if not topic.error:
                counts[topic.name] = len(topic.partitions)
        return counts

    def forget_coordinator(self) -> None:
        """Look for it again before the next request."""
        self._calls.forget_coordinator()

    async def beat_aside(self, beat: SendHeartbeat) -> int | None:
        """Beat on a connection of its own, past what is parked; None if nobody answers."""
        try:
            return await self._calls.heartbeat_aside(beat.member_id, beat.generation)
        except ClientFailure:
            return None

    async def _run(self, request: GroupRequest) -> Event:
        match request:
            case SendJoin():
                return _joined(
                    await self._calls.join(
                        request.member_id,
                        protocol=self._protocol,
                        metadata=request.metadata,
                        reason=request.reason,
                    )
                )
            case SendSync():
                synced = await self._calls.sync(
                    request.member_id,
                    request.generation,
                    protocol=self._protocol,
                    assignments=dict(request.assignments),
                )
                return SyncAnswered(synced.error_code, bytes(synced.assignment))
            case SendHeartbeat():
                return HeartbeatAnswered(
                    await self._calls.heartbeat(request.member_id, request.generation)
                )
            case SendDescribe():
                return _described(await self._calls.describe())
            case ReadCounts():
                return CountsRead(await self.counts(request.topics))
            case SendLeave():
                await self._calls.leave(request.member_id, reason="this node stops")
                return LeaveAnswered()
            case _:
                assert_never(request)


def _joined(answer: JoinGroupResponse) -> JoinAnswered:
    return JoinAnswered(
        code=answer.error_code,
        member_id=answer.member_id,
        generation=answer.generation_id,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        members=tuple(
            RawMember(each.member_id, each.group_instance_id, bytes(each.metadata))
            for each in answer.members
        ),
    )


def _described(group: DescribeGroupsDescribedGroup | None) -> DescribeAnswered:
    if group is None:
        return DescribeAnswered(ErrorCode.GROUP_ID_NOT_FOUND)
    return DescribeAnswered(
        code=group.error_code,
        group_state=group.group_state,
        members=tuple(
            RawMember(
                each.member_id,
                each.group_instance_id,
                bytes(each.member_metadata),
                bytes(each.member_assignment),
            )
            for each in group.members
        ),
    )


def _refused(request: GroupRequest, code: int) -> Event:
    """The request's answer with that code."""
    match request:
        case SendJoin():
            return JoinAnswered(code)
        case SendSync() | ReadCounts():
            return SyncAnswered(code)
        case SendDescribe():
            return DescribeAnswered(code)
        case SendHeartbeat():
            return HeartbeatAnswered(code)
        case SendLeave():
            return LeaveAnswered()
        case _:
            assert_never(request)
