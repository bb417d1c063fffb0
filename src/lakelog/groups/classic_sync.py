"""Members of a classic group ask for their assignments, and the leader brings them. Pure.

The leader's word counts as a whole: the group is stable with its last part, and members that it
did not name have nothing. Until then nobody can see a part. Parts belong to an attempt; a first
part starts over, and one that does not follow on is refused, so what a leader said half before it
was cut off is never mixed with what it says next (P1).
"""

from msgspec.structs import replace

from lakelog.groups.classic_members import judge_member, with_updated
from lakelog.groups.events import Sync
from lakelog.groups.outcomes import Judged
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState
from lakelog.model.errors import ErrorCode


def sync(group: ClassicGroup, event: Sync) -> tuple[ClassicGroup, Judged]:
    """The group after the Sync; what the member gets is read from the group (K1)."""
    code = _judge(group, event)
    if code is not ErrorCode.NONE:
        return group, Judged(code)
    if group.state is ClassicState.STABLE or event.member_id != group.leader:
        return _with_synced(group, event.member_id), Judged(ErrorCode.NONE)
    if event.attempt == group.attempt and event.part < group.parts and not event.is_last:
        return group, Judged(ErrorCode.NONE)  # The same part once more.
    is_next = event.attempt == group.attempt and event.part == group.parts
    if event.part > 0 and not is_next:
        return group, Judged(ErrorCode.REBALANCE_IN_PROGRESS)
    return _with_part(group, event), Judged(ErrorCode.NONE)


def _judge(group: ClassicGroup, event: Sync) -> ErrorCode:
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
