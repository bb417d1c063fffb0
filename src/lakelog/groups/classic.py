"""The classic group protocol as a machine: what an event makes of a group, what a group answers.

`step` takes events; the other functions read. No clock is asked: a timer is a name and a duration
that brokers measure and report (K2). Requests that wait are answered from the group as it is, by
whoever holds them, whenever it has changed (K1). Pure.

Where a group stands:

    Empty ----- first join -----> Preparing ---- all joined, or timer ----> Completing
      ^                            |     ^                                   |      |
      +---- nobody is left --------+     +---- join, leave, expiry, timer ---+      | leader's
                                         |                                          | sync
                                         +---- the same -------------- Stable <-----+
"""

from typing import assert_never

from lakelog.groups.answers import JoinAnswer, SyncAnswer
from lakelog.groups.classic_join import join
from lakelog.groups.classic_leave import adopt, expire, leave
from lakelog.groups.classic_members import judge_member, metadata_of
from lakelog.groups.classic_rebalance import join_timed_out, sync_timed_out
from lakelog.groups.classic_sync import sync
from lakelog.groups.events import Adopt, CommitOffsets, Expire, Join, Leave, Sync, TimedOut
from lakelog.groups.outcomes import GroupOutcome, Judged
from lakelog.groups.state import ClassicGroup, ClassicState, Group, Timer, TimerKind
from lakelog.groups.subscriptions import PROTOCOL_TYPE, topics_of
from lakelog.model.errors import ErrorCode


def step(
    group: ClassicGroup, event: Join | Sync | Leave | Expire | Adopt | TimedOut
) -> tuple[ClassicGroup, GroupOutcome]:
    """The group after the event, the same object if nothing changed, and what is answered."""
    match event:
        case Join():
            return join(group, event)
        case Sync():
            return sync(group, event)
        case Leave():
            return leave(group, event)
        case Expire():
            return expire(group, event)
        case Adopt():
            return adopt(group, event)
        case TimedOut():
            return _time_out(group, event)
        case _:
            assert_never(event)


def timers(group: ClassicGroup) -> tuple[Timer, ...]:
    """What brokers measure now: the time to join, or the time to ask for assignments."""
    if group.state is ClassicState.PREPARING:
        return (Timer(TimerKind.JOIN, "", group.join_number, group.timeout_ms),)
    if group.unsynced_count > 0:
        return (Timer(TimerKind.SYNC, "", group.generation, group.timeout_ms),)
    return ()


def answer_join(
    group: Group | None, member_id: str, *, instance_id: str | None = None
) -> JoinAnswer | None:
    """What a JoinGroup that was taken in is answered with; None while its rebalance goes on.

    A member that was taken into a generation hears of it even if the next rebalance has begun: its
    Sync will say so.
    """
    if not isinstance(group, ClassicGroup):
        return JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
    code = judge_member(group, member_id=member_id, instance_id=instance_id)
    if code is not ErrorCode.NONE:
        return JoinAnswer(code, member_id)
    if group.members[member_id].is_joined:
        return None
    return JoinAnswer(
        ErrorCode.NONE,
        member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=_roster(group) if member_id == group.leader else (),
    )


def answer_sync(
    group: Group | None, member_id: str, *, generation: int, instance_id: str | None = None
) -> SyncAnswer | None:
    """What a SyncGroup that was taken in is answered with; None while the leader is waited for."""
    if not isinstance(group, ClassicGroup):
        return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
    code = judge_member(group, member_id=member_id, instance_id=instance_id)
    if code is not ErrorCode.NONE:
        return SyncAnswer(code)
    if generation > group.generation:
        return SyncAnswer(ErrorCode.ILLEGAL_GENERATION)
    if generation < group.generation or group.state is ClassicState.PREPARING:
        return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)
    if group.state is ClassicState.COMPLETING:
        return None
    return SyncAnswer(
        ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=group.members[member_id].assignment,
    )


def judge_heartbeat(
    group: Group | None, *, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """What a heartbeat is answered with; it changes nothing (row 35)."""
    if not isinstance(group, ClassicGroup):
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = judge_member(group, member_id=member_id, instance_id=instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def judge_commit(group: ClassicGroup, event: CommitOffsets) -> ErrorCode:
    """Whether these offsets may be committed: by a member of this generation, or to nobody's group.

    A member may commit what it has read until it joins again, so a rebalance that only waits for
    joins is no obstacle; one that waits for assignments is (row 36).
    """
    if event.generation < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    code = judge_member(group, member_id=event.member_id, instance_id=event.instance_id)
    if code is not ErrorCode.NONE:
        return code
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is ClassicState.COMPLETING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def subscribed(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that members read; None when that cannot be told.

    Only consumers say it, and only under the protocol that was chosen for all of them.
    """
    if group.protocol_type != PROTOCOL_TYPE:
        return None
    found: set[str] = set()
    for member in group.members.values():
        topics = topics_of(metadata_of(member, group.protocol_name))
        if topics is None:
            return None
        found |= topics
    return frozenset(found)


def _time_out(group: ClassicGroup, event: TimedOut) -> tuple[ClassicGroup, Judged]:
    is_known = any(
        timer.kind == event.kind and timer.number == event.number for timer in timers(group)
    )
    if not is_known:
        return group, Judged(ErrorCode.ILLEGAL_GENERATION)
    is_join = event.kind == TimerKind.JOIN
    after = join_timed_out(group) if is_join else sync_timed_out(group)
    return after, Judged(ErrorCode.NONE)


def _roster(group: ClassicGroup) -> tuple[tuple[str, str | None, bytes], ...]:
    """Whom the leader assigns to: those whom the generation took in."""
    return tuple(
        (member.member_id, member.instance_id, metadata_of(member, group.protocol_name))
        for member in group.members.values()
        if not member.is_new
    )
