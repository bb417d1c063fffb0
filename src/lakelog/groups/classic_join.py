"""A member joins a classic group, or joins again. Pure.

New members and changes start a rebalance; a member that lost its answer and asks again as it was
gets the present generation and disturbs nobody (row 83). A static member that comes back under a
new id takes the place of its old one (row 85). What a Join is taken for depends on its member id
alone, so one that is applied twice is a member's second question, not a second member (K3).
"""

from msgspec.structs import replace

from lakelog.groups.classic_members import (
    chosen_protocol,
    is_common,
    judge_member,
    with_added,
    with_successor,
    with_updated,
    without,
)
from lakelog.groups.classic_rebalance import prepared, settled
from lakelog.groups.events import Join
from lakelog.groups.outcomes import Joined
from lakelog.groups.state import ClassicGroup, ClassicMember, ClassicState
from lakelog.model.errors import ErrorCode


def join(group: ClassicGroup, event: Join) -> tuple[ClassicGroup, Joined]:
    """The group after the Join; a refusal names no member id."""
    member = group.members.get(event.member_id)
    if not _has_room(group, member, event.members_max):
        after = settled(without(group, [event.member_id])) if member is not None else group
        return after, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not _fits(group, event):
        return group, Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member is None and event.is_new:
        return _join_new(group, event)
    code = judge_member(group, member_id=event.member_id, instance_id=event.instance_id)
    if code is not ErrorCode.NONE or member is None:
        return group, Joined(code)
    return _join_again(group, member, event), Joined(ErrorCode.NONE, event.member_id)


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


def _join_new(group: ClassicGroup, event: Join) -> tuple[ClassicGroup, Joined]:
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
    return after, Joined(ErrorCode.NONE, event.member_id)


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
) -> tuple[ClassicGroup, Joined]:
    """A static member came back: without a rebalance if the generation can stay as it is."""
    member = replace(
        _member_of(event),
        holder_epoch=before.holder_epoch + 1,
        assignment=before.assignment,
        is_synced=before.is_synced,
        is_new=before.is_new,
    )
    joined = Joined(ErrorCode.NONE, event.member_id)
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
