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

New members and changes start a rebalance; a member that lost its answer and asks again as it was
gets the present generation and disturbs nobody (row 83). A static member that comes back under a
new id takes the place of its old one (row 85). What a Join is taken for depends on its member id
alone, so one that is applied twice is a member's second question, not a second member (K3).

A member that goes costs the others a rebalance; during one it may have been the last that was
waited for. Each member of a Leave has its own answer (row 86).
"""

from typing import assert_never

from msgspec.structs import replace

from lakelog.groups.classic_members import (
    PROTOCOL_TYPE,
    chosen_protocol,
    is_common,
    judge_member,
    metadata_of,
    topics_of,
    with_added,
    with_successor,
    with_updated,
    without,
)
from lakelog.groups.classic_rebalance import join_timed_out, prepared, settled, sync, sync_timed_out
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    Expire,
    GroupEventResult,
    GroupOutcome,
    Join,
    JoinAnswer,
    JoinResult,
    Leave,
    LeaveResult,
    Sync,
    SyncAnswer,
    TimerExpired,
)
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState, Group, Timer, TimerKind
from lakelog.model.errors import ErrorCode


def join(group: ClassicGroup, event: Join) -> tuple[ClassicGroup, JoinResult]:
    """The group after the Join; a refusal names no member id."""
    member = group.members.get(event.member_id)
    if not _has_room(group, member, event.members_max):
        after = settled(without(group, [event.member_id])) if member is not None else group
        return after, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not _fits(group, event):
        return group, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member is None and event.is_new:
        return _join_new(group, event)
    code = judge_member(group, member_id=event.member_id, instance_id=event.instance_id)
    if code is not ErrorCode.NONE or member is None:
        return group, JoinResult(code)
    return _join_again(group, member, event), JoinResult(ErrorCode.NONE, event.member_id)


def held(member: ClassicMember, holder: int) -> ClassicMember:
    """The member as this broker's; the same if it was (K4)."""
    if member.holder == holder:
        return member
    return replace(member, holder=holder, holder_epoch=member.holder_epoch + 1)


def _has_room(group: ClassicGroup, member: ClassicMember | None, members_max: int) -> bool:
    """Whether the member may be (or stay) in the group, counted as in Kafka.

    While members join again, those who did are counted: if the limit was lowered, the last to come
    are turned away.
    """
    match group.state:
        case ClassicState.EMPTY:
            return True
        case ClassicState.PREPARING:
            is_counted = member is not None and member.is_joined
            return is_counted or group.joined_count < members_max
        case ClassicState.COMPLETING | ClassicState.STABLE:
            return member is not None or len(group.members) < members_max


def _fits(group: ClassicGroup, event: Join) -> bool:
    if group.state is ClassicState.EMPTY:
        return bool(event.protocol_type) and bool(event.protocols)
    return group.protocol_type == event.protocol_type and is_common(group, event.protocols)


def _join_new(group: ClassicGroup, event: Join) -> tuple[ClassicGroup, JoinResult]:
    if event.instance_id is not None and event.instance_id in group.instances:
        return _succeed(group, group.members[group.instances[event.instance_id]], event)
    is_first = group.state is ClassicState.EMPTY
    if is_first:
        group = replace(group, protocol_type=event.protocol_type)
    elif group.initial_left_ms >= 0:
        group = replace(group, has_grown=True)
    grown = with_added(group, _member_of(event))
    if group.state is ClassicState.PREPARING:
        after = settled(grown)
    else:
        after = prepared(grown, initial_delay_ms=event.initial_delay_ms if is_first else 0)
    return after, JoinResult(ErrorCode.NONE, event.member_id)


def _join_again(group: ClassicGroup, member: ClassicMember, event: Join) -> ClassicGroup:
    is_unchanged = member.protocols == event.protocols
    match group.state:
        case ClassicState.PREPARING:
            return settled(with_updated(group, _asking(member, event)))
        case ClassicState.COMPLETING if is_unchanged:
            return with_updated(group, held(member, event.holder))
        case ClassicState.STABLE if is_unchanged and group.leader != member.member_id:
            return with_updated(group, held(member, event.holder))
        case _:
            # A leader asks again when something else than its metadata changed: new partitions.
            return prepared(with_updated(group, _asking(member, event)))


def _succeed(
    group: ClassicGroup, before: ClassicMember, event: Join
) -> tuple[ClassicGroup, JoinResult]:
    """A static member came back: without a rebalance if the generation can stay as it is."""
    member = replace(
        _member_of(event),
        holder_epoch=before.holder_epoch + 1,
        assignment=before.assignment,
        is_synced=before.is_synced,
        is_new=before.is_new,
    )
    joined = JoinResult(ErrorCode.NONE, event.member_id)
    after = with_successor(group, before, member)
    if group.state is ClassicState.PREPARING:
        return settled(after), joined
    if group.state is ClassicState.COMPLETING or chosen_protocol(after) != group.protocol_name:
        # In Completing the leader may be assigning to the old id at this moment.
        return prepared(after), joined
    if group.leader == before.member_id:
        joined = replace(joined, leader=before.member_id, skip_assignment=True)
    return with_updated(after, replace(member, is_joined=False)), joined


def _asking(member: ClassicMember, event: Join) -> ClassicMember:
    return replace(
        held(member, event.holder),
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        is_joined=True,
    )


def _member_of(event: Join) -> ClassicMember:
    return ClassicMember(
        member_id=event.member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        holder=event.holder,
        holder_epoch=0,
        is_joined=True,
    )


def leave(group: ClassicGroup, event: Leave) -> tuple[ClassicGroup, LeaveResult]:
    """The group without those who may leave; a second naming of one finds it gone."""
    codes = []
    member_ids = []
    gone: dict[str, None] = {}
    for asked_id, instance_id in event.members:
        member_id = asked_id
        if not asked_id and instance_id is not None:
            member_id = group.instances.get(instance_id, "")
        code = judge_member(group, member_id=member_id, instance_id=instance_id)
        if group.instances.get(instance_id or "", member_id) in gone:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code is ErrorCode.NONE:
            gone[member_id] = None
        codes.append(code)
        member_ids.append(member_id)
    return _rebalanced_without(group, gone), LeaveResult(tuple(codes), tuple(member_ids))


def expire(group: ClassicGroup, event: Expire) -> tuple[ClassicGroup, GroupEventResult]:
    """The group without a member that its holder heard nothing of; an older holder is refused."""
    member = group.members.get(event.member_id)
    if member is None:
        return group, GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.holder_epoch != event.holder_epoch:
        return group, GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
    return _rebalanced_without(group, {event.member_id: None}), GroupEventResult(ErrorCode.NONE)


def adopt(group: ClassicGroup, event: Adopt) -> tuple[ClassicGroup, GroupEventResult]:
    """The group with a member that another broker holds from here on."""
    member = group.members.get(event.member_id)
    if member is None:
        return group, GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)
    return with_updated(group, held(member, event.holder)), GroupEventResult(ErrorCode.NONE)


def _rebalanced_without(group: ClassicGroup, gone: dict[str, None]) -> ClassicGroup:
    if not gone:
        return group
    left = without(group, gone)
    return settled(left) if group.state is ClassicState.PREPARING else prepared(left)


def step(
    group: ClassicGroup, event: Join | Sync | Leave | Expire | Adopt | TimerExpired
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
        case TimerExpired():
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


def _time_out(group: ClassicGroup, event: TimerExpired) -> tuple[ClassicGroup, GroupEventResult]:
    is_known = any(
        timer.kind == event.kind and timer.number == event.number for timer in timers(group)
    )
    if not is_known:
        return group, GroupEventResult(ErrorCode.ILLEGAL_GENERATION)
    is_join = event.kind == TimerKind.JOIN
    after = join_timed_out(group) if is_join else sync_timed_out(group)
    return after, GroupEventResult(ErrorCode.NONE)


def _roster(group: ClassicGroup) -> tuple[tuple[str, str | None, bytes], ...]:
    """Whom the leader assigns to: those whom the generation took in."""
    return tuple(
        (member.member_id, member.instance_id, metadata_of(member, group.protocol_name))
        for member in group.members.values()
        if not member.is_new
    )
