"""Which machine an event goes to, and what absent groups and groups of the other protocol answer.

A group changes its protocol only while it has no members (rows 38 and 39): the answers on a live
group are Kafka's with its migration policy disabled. A group is made by a first member, or by a
commit without one; whatever is refused makes none. Pure.
"""

from collections.abc import Callable
from typing import Final

from lakelog.groups import classic, consumer
from lakelog.groups.classic_members import PROTOCOL_TYPE
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    DeleteGroup,
    DeleteOffsets,
    Expire,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    OffsetsDeleted,
    Resolved,
    Sync,
    TargetAssignment,
    TimerExpired,
    TopicsChanged,
)
from lakelog.groups.state import ClassicGroup, ConsumerGroup, Group
from lakelog.model.errors import ErrorCode

COMMIT_KNOWS_GROUPS: Final = 9
"""From this version of OffsetCommit on a client knows "there is no such group" (row 36)."""


def judge(group: Group | None, event: GroupEvent) -> tuple[Group | None, GroupOutcome]:
    """The group after the event, the same object if nothing changed, and what is answered.

    Offsets are the table's business: of their events only the right to make them is judged here.
    """
    return _ROUTES[type(event)](group, event)


def subscribed(group: Group) -> frozenset[str] | None:
    """The topics that live members read; None when that cannot be told."""
    if isinstance(group, ConsumerGroup):
        return consumer.subscribed(group)
    return classic.subscribed(group)


def _join(group: Group | None, event: Join) -> tuple[Group | None, GroupOutcome]:
    if isinstance(group, ConsumerGroup) and group.members:
        return group, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group is None and not event.is_new:
        return None, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID)
    before = group if isinstance(group, ClassicGroup) else ClassicGroup(event.group_id)
    after, outcome = classic.step(before, event)
    return (group if after is before else after), outcome


def _beat(group: Group | None, event: ConsumerHeartbeat) -> tuple[Group | None, GroupOutcome]:
    if isinstance(group, ConsumerGroup):
        return consumer.step(group, event)
    if event.member_epoch != 0:
        return group, ConsumerHeartbeatResult(
            ErrorCode.GROUP_ID_NOT_FOUND, f"There is no group {event.group_id}."
        )
    if group is not None and group.members:
        reason = f"Group {event.group_id} is not a consumer group."
        return group, ConsumerHeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, reason)
    before = ConsumerGroup(event.group_id)
    after, outcome = consumer.step(before, event)
    return (group if after is before else after), outcome


def _commit(group: Group | None, event: CommitOffsets) -> tuple[Group | None, GroupOutcome]:
    if group is None:
        if event.generation < 0:
            return ClassicGroup(event.group_id), GroupEventResult(ErrorCode.NONE)
        is_new_client = event.api_version >= COMMIT_KNOWS_GROUPS
        code = ErrorCode.GROUP_ID_NOT_FOUND if is_new_client else ErrorCode.ILLEGAL_GENERATION
        return None, GroupEventResult(code)
    if isinstance(group, ConsumerGroup):
        return group, GroupEventResult(consumer.judge_commit(group, event))
    return group, GroupEventResult(classic.judge_commit(group, event))


def _membership(
    group: Group | None, event: Sync | Leave | Expire | Adopt | TimerExpired
) -> tuple[Group | None, GroupOutcome]:
    if isinstance(group, ClassicGroup):
        return classic.step(group, event)
    if isinstance(group, ConsumerGroup) and not isinstance(event, Sync):
        return consumer.step(group, event)
    if isinstance(event, Leave):
        return group, LeaveResult((ErrorCode.UNKNOWN_MEMBER_ID,) * len(event.members))
    return group, GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)


def _delete(group: Group | None, _: DeleteGroup) -> tuple[Group | None, GroupOutcome]:
    if group is None:
        return None, GroupEventResult(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.members:
        return group, GroupEventResult(ErrorCode.NON_EMPTY_GROUP)
    return None, GroupEventResult(ErrorCode.NONE)


def _modern(
    group: Group | None, event: TargetAssignment | Resolved | TopicsChanged
) -> tuple[Group | None, GroupOutcome]:
    if not isinstance(group, ConsumerGroup):
        return group, GroupEventResult(ErrorCode.GROUP_ID_NOT_FOUND)
    return consumer.step(group, event)


def _offsets(
    group: Group | None, event: DeleteOffsets | ExpireOffsets
) -> tuple[Group | None, GroupOutcome]:
    if group is None:
        return None, OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(event, DeleteOffsets) and _is_foreign(group):
        return group, OffsetsDeleted(ErrorCode.NON_EMPTY_GROUP)
    return group, OffsetsDeleted(ErrorCode.NONE)


def _is_foreign(group: Group) -> bool:
    """Whether the group has members of whom nobody knows what they read (row 95)."""
    if isinstance(group, ConsumerGroup) or not group.members:
        return False
    return group.protocol_type != PROTOCOL_TYPE


_ROUTES: Final[dict[type[GroupEvent], Callable[..., tuple[Group | None, GroupOutcome]]]] = {
    Adopt: _membership,
    ConsumerHeartbeat: _beat,
    CommitOffsets: _commit,
    DeleteGroup: _delete,
    DeleteOffsets: _offsets,
    Expire: _membership,
    ExpireOffsets: _offsets,
    Join: _join,
    Leave: _membership,
    Resolved: _modern,
    Sync: _membership,
    TargetAssignment: _modern,
    TimerExpired: _membership,
    TopicsChanged: _modern,
}
