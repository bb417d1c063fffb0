"""A member of the group that is no node: it speaks the protocol, and its metadata is anything."""

import asyncio
import threading
from types import TracebackType
from typing import Self

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.model.errors import ErrorCode
from lakelog.server.options import Address
from lakelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lakelog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lakelog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

SESSION_MS = 10_000
REBALANCE_MS = 10_000
BEAT_S = 0.05
ENDED_S_MAX = 20.0


class Foreign:
    """Joins, takes part in every rebalance, and leaves at the end."""

    def __init__(self, bootstrap: str, group: str, metadata: bytes) -> None:
        self._address = Address.parse(bootstrap.split(",", maxsplit=1)[0])
        self._group = group
        self._metadata = metadata
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))
        self.assignments: list[bytes] = []
        """What it was given, generation by generation."""
        self.was_leader = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(ENDED_S_MAX)
        assert not self._thread.is_alive()

    async def _live(self) -> None:
        async with await dial(str(self._address)) as client:
            member_id = ""
            while not self._stop.is_set():
                joined = await self._join(client, member_id)
                member_id = joined.member_id
                if joined.error_code == ErrorCode.NONE:
                    await self._stay(client, joined)
            leave = LeaveGroupRequest(self._group, (MemberIdentity(member_id),))
            await client.call(leave, LeaveGroupResponse)

    async def _join(self, client: BrokerConnection, member_id: str) -> JoinGroupResponse:
        request = JoinGroupRequest(
            self._group,
            SESSION_MS,
            REBALANCE_MS,
            member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol("laminar-range", self._metadata),),
        )
        return await client.call(request, JoinGroupResponse)

    async def _stay(self, client: BrokerConnection, joined: JoinGroupResponse) -> None:
        """Until the next rebalance, or the end."""
        self.was_leader |= joined.leader == joined.member_id
        at = (self._group, joined.generation_id, joined.member_id)
        request = SyncGroupRequest(*at, protocol_type="consumer", protocol_name="laminar-range")
        synced = await client.call(request, SyncGroupResponse)
        if synced.error_code:
            return
        self.assignments.append(synced.assignment)
        while not self._stop.is_set():
            beat = await client.call(HeartbeatRequest(*at), HeartbeatResponse)
            if beat.error_code:
                return
            await asyncio.sleep(BEAT_S)
