"""The machine of groups of the consumer protocol (KIP-848). Pure.

`step` folds one event into a group and returns the very group that it was given where nothing
changed (K8). Nothing in here knows topics or a clock: targets, resolved patterns and changes of
topics come as events that say which epoch they were made for (K7), and so do timers (K2). Members
never hold a partition together (P1), and members' epochs <= target epoch <= group epoch (P4).
"""

from typing import Final, TypeAlias

from msgspec.structs import replace

from lakelog.groups.consumer_heartbeat import beat
from lakelog.groups.consumer_reconcile import find_instance, is_reconciled, put, remove
from lakelog.groups.consumer_target import (
    fingerprint,
    needs_target,
    preferred_assignor,
    take_target,
    target_event,
)
from lakelog.groups.events import (
    Adopt,
    CommitOffsets,
    ConsumerHeartbeat,
    Expire,
    GroupEventResult,
    GroupOutcome,
    Leave,
    LeaveResult,
    Resolved,
    TargetAssignment,
    TimerExpired,
    TopicsChanged,
)
from lakelog.groups.state import ConsumerGroup, ConsumerMember, MemberState, Timer, TimerKind
from lakelog.model.errors import ErrorCode

__all__ = [
    "ConsumerEvent",
    "fingerprint",
    "judge_commit",
    "judge_fetch",
    "needs_target",
    "preferred_assignor",
    "state_name",
    "step",
    "subscribed",
    "target_event",
    "timers",
    "unresolved",
]

ConsumerEvent: TypeAlias = (
    ConsumerHeartbeat
    | Leave
    | Expire
    | Adopt
    | TimerExpired
    | TargetAssignment
    | Resolved
    | TopicsChanged
)
"""What happens to a consumer group, offsets apart."""

COMMIT_KNOWS_EPOCHS: Final = 9
"""From this version of OffsetCommit on a client knows member epochs (row 38)."""

_DONE: Final = GroupEventResult(ErrorCode.NONE)
_NO_MEMBER: Final = GroupEventResult(ErrorCode.UNKNOWN_MEMBER_ID)
_STALE: Final = GroupEventResult(ErrorCode.ILLEGAL_GENERATION)


def step(group: ConsumerGroup, event: ConsumerEvent) -> tuple[ConsumerGroup, GroupOutcome]:
    """The group after the event, the same object if nothing changed, and what is answered."""
    result: tuple[ConsumerGroup, GroupOutcome]
    match event:
        case ConsumerHeartbeat():
            result = beat(group, event)
        case Leave():
            result = _leave(group, event)
        case Expire():
            result = _expire(group, event)
        case Adopt():
            result = _adopt(group, event)
        case TimerExpired():
            result = _time_out(group, event)
        case TargetAssignment():
            result = take_target(group, event)
        case Resolved():
            result = _resolve(group, event)
        case TopicsChanged():
            result = _change_topics(group, event)
    return result


def judge_commit(group: ConsumerGroup, event: CommitOffsets) -> ErrorCode:
    """Whether these offsets may be committed by whom the commit names (row 38, P3).

    An older epoch is good for partitions that the member has had since then (KIP-1251). One that is
    refused refuses all.
    """
    if event.generation < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(event.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.api_version < COMMIT_KNOWS_EPOCHS:
        return ErrorCode.UNSUPPORTED_VERSION
    is_good = event.generation == member.epoch or (
        event.generation < member.epoch
        and all(
            _is_held_since(member, topic, partition, epoch=event.generation)
            for topic, partition, *_ in event.offsets
        )
    )
    return ErrorCode.NONE if is_good else ErrorCode.STALE_MEMBER_EPOCH


def _is_held_since(member: ConsumerMember, topic: bytes, partition: int, *, epoch: int) -> bool:
    """Whether the member has, or is still to let go of, a partition that it had at this epoch."""
    since = member.assigned.get(topic, {}).get(partition)
    if since is None:
        since = member.revoking.get(topic, {}).get(partition)
    return since is not None and since <= epoch


def judge_fetch(group: ConsumerGroup, *, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether whom an OffsetFetch names may read the group's offsets; naming nobody is fine."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = None if member_id is None else group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member.epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH


def timers(group: ConsumerGroup) -> tuple[Timer, ...]:
    """One for each member that has to let go of partitions."""
    return tuple(
        Timer(TimerKind.REVOKE, member.member_id, member.revoke_number, member.rebalance_timeout_ms)
        for member in group.members.values()
        if member.state is MemberState.UNREVOKED
    )


def subscribed(group: ConsumerGroup) -> frozenset[str]:
    """The topics that members read, by name or by a pattern as far as it is resolved."""
    subscriptions = {(member.names, member.pattern) for member in group.members.values()}
    return frozenset(
        name
        for names, pattern in subscriptions
        for name in (*names, *group.resolved.get(pattern, ()))
    )


def unresolved(group: ConsumerGroup) -> tuple[str, ...]:
    """The patterns of members that nobody has resolved yet, in the order of the members."""
    patterns = dict.fromkeys(member.pattern for member in group.members.values())
    return tuple(pattern for pattern in patterns if pattern and pattern not in group.resolved)


def state_name(group: ConsumerGroup) -> str:
    """The group's state as Kafka names it (row 76)."""
    if not group.members:
        return "Empty"
    if needs_target(group):
        return "Assigning"
    if all(is_reconciled(group, member) for member in group.members.values()):
        return "Stable"
    return "Reconciling"


def _leave(group: ConsumerGroup, event: Leave) -> tuple[ConsumerGroup, LeaveResult]:
    """Members that an administrator removes; together they cost one rebalance."""
    codes = []
    member_ids = []
    gone: dict[str, ConsumerMember] = {}
    for member_id, instance_id in event.members:
        code, member = _leaver(group, member_id=member_id, instance_id=instance_id)
        codes.append(code)
        member_ids.append(member_id if member is None else member.member_id)
        if member is not None:
            gone[member.member_id] = member
    outcome = LeaveResult(tuple(codes), tuple(member_ids))
    return (remove(group, gone.values()) if gone else group), outcome


def _leaver(
    group: ConsumerGroup, *, member_id: str, instance_id: str | None
) -> tuple[ErrorCode, ConsumerMember | None]:
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = find_instance(group, instance_id=instance_id, member_id=member_id)
        if member is not None and member_id not in ("", member.member_id):
            return ErrorCode.FENCED_INSTANCE_ID, None
    return (ErrorCode.UNKNOWN_MEMBER_ID if member is None else ErrorCode.NONE), member


def _expire(group: ConsumerGroup, event: Expire) -> tuple[ConsumerGroup, GroupEventResult]:
    member = group.members.get(event.member_id)
    if member is None:
        return group, _NO_MEMBER
    if member.holder_epoch != event.holder_epoch:
        return group, _STALE
    return remove(group, [member]), _DONE


def _adopt(group: ConsumerGroup, event: Adopt) -> tuple[ConsumerGroup, GroupEventResult]:
    member = group.members.get(event.member_id)
    if member is None:
        return group, _NO_MEMBER
    if member.holder == event.holder:
        return group, _DONE
    after = replace(member, holder=event.holder, holder_epoch=member.holder_epoch + 1)
    return put(group, before=member, after=after), _DONE


def _time_out(group: ConsumerGroup, event: TimerExpired) -> tuple[ConsumerGroup, GroupEventResult]:
    """A member that did not let go of its partitions in time is fenced (row 91)."""
    member = group.members.get(event.subject)
    if member is None:
        return group, _NO_MEMBER
    is_due = (
        event.kind == TimerKind.REVOKE
        and member.state is MemberState.UNREVOKED
        and member.revoke_number == event.number
    )
    if not is_due:
        return group, _STALE
    return remove(group, [member]), _DONE


def _resolve(group: ConsumerGroup, event: Resolved) -> tuple[ConsumerGroup, GroupEventResult]:
    """A pattern that matches other topics than before means a rebalance."""
    if not any(member.pattern == event.pattern for member in group.members.values()):
        return group, _STALE
    before = group.resolved.get(event.pattern)
    names = tuple(sorted(set(event.names)))
    if before == names:
        return group, _DONE
    resolved = {**group.resolved, event.pattern: names}
    is_rebalanced = names != (before or ())
    return replace(group, resolved=resolved, epoch=group.epoch + is_rebalanced), _DONE


def _change_topics(
    group: ConsumerGroup, event: TopicsChanged
) -> tuple[ConsumerGroup, GroupEventResult]:
    """A target that was made from other topics has to be made again.

    Not while one is to come anyway: two brokers that see different topics would raise the epoch for
    ever. Its fingerprint shows whether it has to be made once more.
    """
    if not group.members or needs_target(group) or event.fingerprint == group.fingerprint:
        return group, _DONE
    return replace(group, epoch=group.epoch + 1), _DONE
