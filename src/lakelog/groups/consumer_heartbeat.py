"""What a heartbeat of the consumer protocol makes of a group, and what it is answered. Pure.

A heartbeat joins (epoch 0), reports, or leaves (-1, or -2 for a while). One that tells nothing new
and finds nothing to do returns the very group that it was given and is not written (K8), so a
heartbeat may be run on what is known and run again in `apply`. Refusals say why, in a sentence.
"""

from typing import Final

from msgspec.structs import replace

from lakelog.groups.consumer_reconcile import (
    find_instance,
    is_within,
    listed,
    put,
    reconcile,
    remove,
)
from lakelog.groups.events import ConsumerHeartbeat, ConsumerHeartbeatResult
from lakelog.groups.state import ConsumerGroup, ConsumerMember, MemberState, Shares
from lakelog.model.errors import ErrorCode

JOIN: Final = 0
LEAVE_FOR_A_WHILE: Final = -2
_UNCHANGED: Final = -1


def beat(
    group: ConsumerGroup, event: ConsumerHeartbeat
) -> tuple[ConsumerGroup, ConsumerHeartbeatResult]:
    """Take in a heartbeat."""
    if event.member_epoch < LEAVE_FOR_A_WHILE:
        return group, ConsumerHeartbeatResult(
            ErrorCode.INVALID_REQUEST, "The member epoch is invalid."
        )
    if _is_late(group, event):
        reason = "The member has spoken to another broker meanwhile."
        return group, ConsumerHeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
    if event.member_epoch < JOIN:
        return _leave(group, event)
    found = _find(group, event)
    if isinstance(found, ConsumerHeartbeatResult):
        return group, found
    before = found
    if before.member_id != event.member_id:
        before = _successor(before, event)
        group = put(group, before=found, after=before)
    is_new = event.member_id not in group.members
    told = _told(before, event)
    is_changed = told.names != before.names or told.pattern != before.pattern
    group = put(
        group,
        before=None if is_new else before,
        after=told,
        is_rebalanced=is_changed and _is_rebalance(group, before, told),
    )
    after = reconcile(group, told, event.owned, is_changed=is_changed)
    if event.member_epoch == JOIN and after.epoch != told.epoch:
        # Who joins has forgotten its former epochs: if the answer is lost, it joins once more.
        after = replace(after, previous_epoch=JOIN)
    if after is not before:
        # K4: what waits elsewhere was said before this, and must not be taken for newer.
        holder_epoch = max(after.holder_epoch, before.holder_epoch + 1)
        after = replace(after, holder_epoch=holder_epoch)
    group = put(group, before=told, after=after)
    is_shown = _is_full(event) or after.assigned != before.assigned
    assignment = listed(after.assigned) if is_shown else None
    return group, ConsumerHeartbeatResult(
        ErrorCode.NONE, None, after.member_id, after.epoch, assignment
    )


def _is_late(group: ConsumerGroup, event: ConsumerHeartbeat) -> bool:
    """Whether the heartbeat waited while its client gave up and went on elsewhere (K4).

    What it says of its partitions was true then: taken for the member's word it would let go of
    what the member has now (P1). Heartbeats of one broker keep their order.
    """
    member = group.members.get(event.member_id)
    return (
        member is not None
        and member.holder != event.holder
        and member.holder_epoch != event.holder_epoch
    )


def _is_rebalance(group: ConsumerGroup, before: ConsumerMember, told: ConsumerMember) -> bool:
    """Whether another subscription changes who shall have what, as far as is known by now.

    What a first pattern matches is known when it is resolved, and that is the rebalance then. A
    member that comes and reads nothing costs none.
    """
    is_resolved = before.pattern != "" or told.pattern in group.resolved
    return told.names != before.names or (told.pattern != before.pattern and is_resolved)


def _is_full(event: ConsumerHeartbeat) -> bool:
    """Whether the client told everything, as it does when it joins or may have missed an answer."""
    return event.member_epoch == JOIN or (
        event.rebalance_timeout_ms != _UNCHANGED
        and (event.names is not None or event.pattern is not None)
        and event.owned is not None
    )


def _find(
    group: ConsumerGroup, event: ConsumerHeartbeat
) -> ConsumerMember | ConsumerHeartbeatResult:
    """The member that the heartbeat is from: itself, its predecessor, or a new one."""
    member = group.members.get(event.member_id)
    holder = member
    if event.instance_id is not None:
        holder = find_instance(group, instance_id=event.instance_id, member_id=event.member_id)
    if event.member_epoch != JOIN:
        return _judged_member(holder, event)
    if holder is not None and holder is not member:
        return _judged_successor(holder, member, event)
    if member is not None:
        return member
    if len(group.members) >= event.members_max:
        reason = f"The group has its maximum of {event.members_max} members."
        return ConsumerHeartbeatResult(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)
    return _newcomer(group, event)


def _judged_member(
    holder: ConsumerMember | None, event: ConsumerHeartbeat
) -> ConsumerMember | ConsumerHeartbeatResult:
    """The member, if the heartbeat is from it and not from one that it has replaced."""
    if holder is None:
        reason = f"Member {event.member_id} is not a member of group {event.group_id}."
        return ConsumerHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, reason)
    if holder.member_id != event.member_id:
        reason = (
            f"Member {event.member_id} with instance id {event.instance_id} was fenced by "
            f"member {holder.member_id}."
        )
        return ConsumerHeartbeatResult(ErrorCode.FENCED_INSTANCE_ID, reason)
    return holder if event.member_epoch < JOIN else _judged_epoch(holder, event)


def _judged_successor(
    holder: ConsumerMember, member: ConsumerMember | None, event: ConsumerHeartbeat
) -> ConsumerMember | ConsumerHeartbeatResult:
    """The predecessor, if it went away for a while and its successor is nobody yet (row 93)."""
    if holder.is_away and member is None:
        return holder
    reason = (
        f"Member {event.member_id} with instance id {event.instance_id} cannot join: "
        f"the instance id belongs to member {holder.member_id}."
    )
    return ConsumerHeartbeatResult(ErrorCode.UNRELEASED_INSTANCE_ID, reason)


def _judged_epoch(
    member: ConsumerMember, event: ConsumerHeartbeat
) -> ConsumerMember | ConsumerHeartbeatResult:
    """The member, if the heartbeat is of its epoch, or of the one before and the answer was lost.

    The latter is believed only if it says what it has, and that is nothing but what it shall have.
    """
    if event.member_epoch == member.epoch:
        return member
    is_behind = event.member_epoch == member.previous_epoch and not member.is_away
    if is_behind and is_within(event.owned, member.assigned):
        return member
    word = "greater" if event.member_epoch > member.epoch else "smaller"
    reason = (
        f"The member epoch {event.member_epoch} is {word} than {member.epoch}, the one that is "
        "known. The member must abandon all its partitions and join again."
    )
    return ConsumerHeartbeatResult(ErrorCode.FENCED_MEMBER_EPOCH, reason)


def _newcomer(group: ConsumerGroup, event: ConsumerHeartbeat) -> ConsumerMember:
    return ConsumerMember(
        member_id=event.member_id,
        instance_id=event.instance_id,
        rack_id=event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        names=(),
        pattern="",
        assignor=event.assignor,
        holder=event.holder,
        # An id may be used again: what its former holder says must not hit the new member (K4).
        holder_epoch=group.epoch + 1,
    )


def _successor(member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member that takes over from a static one that is away, under its own id."""
    return replace(member, member_id=event.member_id, epoch=JOIN, previous_epoch=JOIN)


def _told(member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what the heartbeat tells about it; the same object if it is nothing new.

    A join is always something new, even if it tells nothing else: its client has no partitions, and
    gets some with the answer. What it said before is then void (K4).
    """
    is_join = event.member_epoch == JOIN
    timeout_ms = event.rebalance_timeout_ms
    told = replace(
        member,
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=member.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if timeout_ms == _UNCHANGED
        else timeout_ms,
        names=_names(member, event),
        pattern=member.pattern if event.pattern is None else event.pattern,
        assignor=member.assignor if event.assignor is None else event.assignor,
        holder=event.holder,
        holder_epoch=member.holder_epoch + (event.holder != member.holder or is_join),
        is_away=False,
    )
    return member if told == member else told


def _names(member: ConsumerMember, event: ConsumerHeartbeat) -> tuple[str, ...]:
    """The names that the member reads, sorted: their order says nothing."""
    if event.names is None or event.names == member.names:
        return member.names
    return tuple(sorted(set(event.names)))


def _leave(
    group: ConsumerGroup, event: ConsumerHeartbeat
) -> tuple[ConsumerGroup, ConsumerHeartbeatResult]:
    member = _find(group, event)
    if isinstance(member, ConsumerHeartbeatResult):
        return group, member
    is_away = event.instance_id is not None and event.member_epoch == LEAVE_FOR_A_WHILE
    left = _away(group, member, event) if is_away else remove(group, [member])
    return left, ConsumerHeartbeatResult(ErrorCode.NONE, None, event.member_id, event.member_epoch)


def _away(group: ConsumerGroup, member: ConsumerMember, event: ConsumerHeartbeat) -> ConsumerGroup:
    """The group while a static member is away: it keeps what it shall have, for its successor.

    The epochs of its partitions are forgotten: its successor may commit from its first epoch on.
    """
    if member.is_away:
        return group
    assigned: Shares = {
        topic: dict.fromkeys(partitions, 0) for topic, partitions in member.assigned.items()
    }
    after = replace(
        member,
        epoch=LEAVE_FOR_A_WHILE,
        state=MemberState.STABLE,
        assigned=assigned,
        revoking={},
        holder=event.holder,
        holder_epoch=member.holder_epoch + 1,
        is_away=True,
    )
    return put(group, before=member, after=after)
