"""What a member of a classic group says to its coordinator, one method for each request.

Rules: nothing is retried and nothing decided here; an error code is the caller's to judge. Every
wait has an end. A join and a sync are parked by the coordinator until the others are there, for up
to the rebalance time-out, and hold up what is sent on the same connection meanwhile.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec import Struct

from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.connection import Connection
from lakelog.kafka_client.failures import TimedOut, Unreachable
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
class GroupWaits:
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
        self, cluster: KafkaCluster, *, group_id: str, instance_id: str, waits: GroupWaits
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

    async def _coordinator(self) -> Connection:
        return await self._cluster.coordinator(self._group_id, timeout_s=self._waits.find_timeout_s)

    async def _call(
        self,
        connection: Connection,
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
