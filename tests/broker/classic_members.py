"""Members of classic groups, as clients of a stage."""

from dataclasses import dataclass

from tests.broker.group_stage import GroupStage, settled, told

from lakelog.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lakelog.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
"""What a consumer of topic t says in the consumer protocol, version 1."""


def join_request(
    member_id: str = "",
    *,
    group_id: str = "g",
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=(JoinGroupRequestProtocol("range", SUBSCRIPTION),),
    )


@dataclass(frozen=True, slots=True)
class Joined:
    """A member in a generation."""

    member_id: str
    generation: int


async def joined(
    stage: GroupStage,
    group_id: str = "g",
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> Joined:
    """Join as the only member and lead the group's next generation."""
    request = join_request(group_id=group_id, instance_id=instance_id, protocol_type=protocol_type)
    begun = await stage.begin(request, 5 if instance_id is not None else 3)
    stage.groups.run_out(group_id)
    answer = told(await settled(begun), JoinGroupResponse, 3)
    assert answer.error_code == 0
    return Joined(answer.member_id, answer.generation_id)


async def stable(
    stage: GroupStage,
    group_id: str = "g",
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
) -> Joined:
    """Join as the only member and take an assignment."""
    member = await joined(stage, group_id, instance_id=instance_id, protocol_type=protocol_type)
    request = SyncGroupRequest(
        group_id,
        member.generation,
        member.member_id,
        assignments=(SyncGroupRequestAssignment(member.member_id, b"mine"),),
    )
    answer = await stage.ask(request, SyncGroupResponse, 3)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    return member
