"""Members leave a classic group, fall silent, or move to another broker. Pure.

A member that goes costs the others a rebalance; during one it may have been the last that was
waited for. Each member of a Leave has its own answer (row 86).
"""

from lakelog.groups.classic_join import held
from lakelog.groups.classic_members import judge_member, with_updated, without
from lakelog.groups.classic_rebalance import prepared, settled
from lakelog.groups.events import Adopt, Expire, Leave
from lakelog.groups.outcomes import Judged, Left
from lakelog.groups.state import ClassicGroup, ClassicState
from lakelog.model.errors import ErrorCode


def leave(group: ClassicGroup, event: Leave) -> tuple[ClassicGroup, Left]:
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
    return _rebalanced_without(group, gone), Left(tuple(codes), tuple(member_ids))


def expire(group: ClassicGroup, event: Expire) -> tuple[ClassicGroup, Judged]:
    """The group without a member that its holder heard nothing of; an older holder is refused."""
    member = group.members.get(event.member_id)
    if member is None:
        return group, Judged(ErrorCode.UNKNOWN_MEMBER_ID)
    if member.holder_epoch != event.holder_epoch:
        return group, Judged(ErrorCode.ILLEGAL_GENERATION)
    return _rebalanced_without(group, {event.member_id: None}), Judged(ErrorCode.NONE)


def adopt(group: ClassicGroup, event: Adopt) -> tuple[ClassicGroup, Judged]:
    """The group with a member that another broker holds from here on."""
    member = group.members.get(event.member_id)
    if member is None:
        return group, Judged(ErrorCode.UNKNOWN_MEMBER_ID)
    return with_updated(group, held(member, event.holder)), Judged(ErrorCode.NONE)


def _rebalanced_without(group: ClassicGroup, gone: dict[str, None]) -> ClassicGroup:
    if not gone:
        return group
    left = without(group, gone)
    return settled(left) if group.state is ClassicState.PREPARING else prepared(left)
