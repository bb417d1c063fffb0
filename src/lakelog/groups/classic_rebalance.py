"""How a classic group goes from one generation to the next: prepare, wait, complete, sync. Pure.

A rebalance begins by waiting for all members to join (again). It is complete in the step in which
the last of them has, or when its timer ran out: then dynamic members that did not come are out, and
static ones stay (row 85). A group that had no members waits a while for more of them to come first
(row 87). A generation is counted when a rebalance is complete, not before (P4).

Timers are names and durations, fixed when they begin; whoever measures one reports it by its
number, and only the present number counts (K2).

Then members ask for their assignments, and the leader brings them (`sync`). The leader's word
counts as a whole: the group is stable with its last part, and members that it did not name have
nothing. Until then nobody can see a part. Parts belong to an attempt; a first part starts over, and
one that does not follow on is refused, so what a leader said half before it was cut off is never
mixed with what it says next (P1).
"""

from msgspec.structs import replace

from lakelog.groups.classic_members import (
    chosen_protocol,
    judge_member,
    rebalance_timeout_ms,
    with_updated,
    without,
)
from lakelog.groups.events import GroupEventResult, Sync
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState
from lakelog.model.errors import ErrorCode


def prepared(group: ClassicGroup, *, initial_delay_ms: int = 0) -> ClassicGroup:
    """The group in a rebalance that begins now; it may be complete at once.

    The delay is for a group that had no members: how long it may be extended in all is decided by
    the first one, as in Kafka.
    """
    timeout_ms = rebalance_timeout_ms(group)
    is_initial = initial_delay_ms > 0
    waiting = replace(
        group,
        state=ClassicState.PREPARING,
        join_number=group.join_number + 1,
        timeout_ms=initial_delay_ms if is_initial else timeout_ms,
        initial_delay_ms=initial_delay_ms,
        initial_left_ms=max(timeout_ms - initial_delay_ms, 0) if is_initial else -1,
        has_grown=False,
        unsynced_count=0,
        attempt=0,
        parts=0,
    )
    return settled(waiting)


def settled(group: ClassicGroup) -> ClassicGroup:
    """The group with its rebalance complete if nobody is waited for any more.

    The initial delay waits for nobody known. It ends early only for a group whose members have all
    gone: nobody is left who would measure it.
    """
    if group.state is not ClassicState.PREPARING:
        return group
    if group.members and (group.initial_left_ms >= 0 or not _is_everybody_here(group)):
        return group
    return _completed(group)


def join_timed_out(group: ClassicGroup) -> ClassicGroup:
    """The group after its time to join is over: complete, or waiting once more."""
    if group.has_grown and group.initial_left_ms > 0:
        delay_ms = min(group.initial_delay_ms, group.initial_left_ms)
        return replace(
            group,
            join_number=group.join_number + 1,
            timeout_ms=delay_ms,
            initial_left_ms=group.initial_left_ms - delay_ms,
            has_grown=False,
        )
    gone = [
        member.member_id
        for member in group.members.values()
        if not member.is_joined and member.instance_id is None
    ]
    return _completed(without(group, gone) if gone else group)


def sync_timed_out(group: ClassicGroup) -> ClassicGroup:
    """The group without the members that never asked for their assignment (row 88)."""
    gone = [member.member_id for member in group.members.values() if not member.is_synced]
    return prepared(without(group, gone))


def _is_everybody_here(group: ClassicGroup) -> bool:
    return group.joined_count == len(group.members)


def _completed(group: ClassicGroup) -> ClassicGroup:
    if not group.members:
        return _emptied(group)
    if group.joined_count == 0:
        # Only static members are left and none came: their sessions decide, nobody could lead.
        return replace(
            group, join_number=group.join_number + 1, timeout_ms=rebalance_timeout_ms(group)
        )
    return _next_generation(group)


def _next_generation(group: ClassicGroup) -> ClassicGroup:
    assert group.leader is not None, group.group_id
    leader = group.members[group.leader]
    if not leader.is_joined:
        leader = next(member for member in group.members.values() if member.is_joined)
    return replace(
        group,
        state=ClassicState.COMPLETING,
        generation=group.generation + 1,
        protocol_name=chosen_protocol(group),
        leader=leader.member_id,
        members={member_id: _taken_in(member) for member_id, member in group.members.items()},
        initial_delay_ms=0,
        initial_left_ms=-1,
        has_grown=False,
        timeout_ms=rebalance_timeout_ms(group),
        joined_count=0,
        unsynced_count=len(group.members),
    )


def _taken_in(member: ClassicMember) -> ClassicMember:
    """The member as a new generation begins with it: an older assignment means nothing (P1)."""
    return replace(member, assignment=b"", is_joined=False, is_synced=False, is_new=False)


def _emptied(group: ClassicGroup) -> ClassicGroup:
    """The group that nobody is in; that, too, is a generation (row 33)."""
    return replace(
        group,
        state=ClassicState.EMPTY,
        generation=group.generation + 1,
        protocol_name=None,
        leader=None,
        initial_delay_ms=0,
        initial_left_ms=-1,
        has_grown=False,
        timeout_ms=0,
    )


def sync(group: ClassicGroup, event: Sync) -> tuple[ClassicGroup, GroupEventResult]:
    """The group after the Sync; what the member gets is read from the group (K1)."""
    code = _judge_sync(group, event)
    if code is not ErrorCode.NONE:
        return group, GroupEventResult(code)
    if group.state is ClassicState.STABLE or event.member_id != group.leader:
        return _with_synced(group, event.member_id), GroupEventResult(ErrorCode.NONE)
    if event.attempt == group.attempt and event.part < group.parts and not event.is_last:
        return group, GroupEventResult(ErrorCode.NONE)  # The same part once more.
    is_next = event.attempt == group.attempt and event.part == group.parts
    if event.part > 0 and not is_next:
        return group, GroupEventResult(ErrorCode.REBALANCE_IN_PROGRESS)
    return _with_part(group, event), GroupEventResult(ErrorCode.NONE)


def _judge_sync(group: ClassicGroup, event: Sync) -> ErrorCode:
    code = judge_member(group, member_id=event.member_id, instance_id=event.instance_id)
    if code is not ErrorCode.NONE:
        return code
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(event.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differs(event.protocol_name, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(given: str | None, known: str | None) -> bool:
    """Whether a newer client names something else; older ones name nothing."""
    return given is not None and known is not None and given != known


def _with_synced(group: ClassicGroup, member_id: str) -> ClassicGroup:
    return with_updated(group, replace(group.members[member_id], is_synced=True))


def _with_part(group: ClassicGroup, event: Sync) -> ClassicGroup:
    given = dict(event.assignments)
    if event.part == 0:
        members = {
            member_id: _assigned(member, given.get(member_id, b""))
            for member_id, member in group.members.items()
        }
    else:
        members = dict(group.members)
        for member_id, assignment in given.items():
            if member_id in members:
                members[member_id] = _assigned(members[member_id], assignment)
    taken = replace(group, members=members, attempt=event.attempt, parts=event.part + 1)
    if not event.is_last:
        return taken
    stable = replace(taken, state=ClassicState.STABLE, attempt=0, parts=0)
    return _with_synced(stable, event.member_id)


def _assigned(member: ClassicMember, assignment: bytes) -> ClassicMember:
    if member.assignment == assignment:
        return member
    return replace(member, assignment=assignment)
