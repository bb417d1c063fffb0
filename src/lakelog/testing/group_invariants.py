"""The invariants of groups as checks of states and steps, for unit, simulation and process tests.

Each check takes a group, or an event with the group before and after it, and returns a list of
violations in words; an empty list is good. The letters are those of `docs/invariants.md`. The rules
are written down here a second time on purpose, and do not call the machines. What members heard is
checked by `lakelog.testing.group_history`.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    Expire,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    Join,
    Leave,
    TargetAssignment,
    TimerExpired,
)
from lakelog.groups.state import (
    ClassicGroup,
    ClassicState,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    Member,
    MemberState,
    TimerKind,
)
from lakelog.model.errors import ErrorCode
from lakelog.testing.group_history import Place

Decode = Callable[[bytes], Collection[Place]]
"""What the bytes of a classic assignment give away."""


def held(member: ConsumerMember) -> set[Place]:
    """What a member of a consumer group has, or has not let go of yet."""
    return {
        (topic, partition)
        for shares in (member.assigned, member.revoking)
        for topic, partitions in shares.items()
        for partition in partitions
    }


def check_group(group: Group, decode: Decode) -> list[str]:
    """P1 and P4 of a group as it stands, and that what is counted beside its members is right."""
    bad = _classic(group, decode) if isinstance(group, ClassicGroup) else _consumer(group)
    return [f"{said} (group {group.group_id})" for said in bad]


def _classic(group: ClassicGroup, decode: Decode) -> list[str]:
    bad = []
    members = group.members.values()
    if (group.state is ClassicState.EMPTY) != (not group.members):
        bad.append(f"P4 {group.state.name} with {len(group.members)} members")
    if (group.leader is None) != (not group.members) or (
        group.leader is not None and group.leader not in group.members
    ):
        bad.append(f"P1 the leader {group.leader} is no member")
    if group.joined_count != sum(member.is_joined for member in members):
        bad.append(f"P2 {group.joined_count} are said to have joined")
    instances = {one.instance_id: one.member_id for one in members if one.instance_id is not None}
    if instances != group.instances:
        bad.append(f"P1 instances {group.instances}, of members {instances}")
    if group.state is ClassicState.STABLE:
        bad += _shared({one.member_id: decode(one.assignment) for one in members})
    return bad


def _consumer(group: ConsumerGroup) -> list[str]:
    bad = _shared({name: held(member) for name, member in group.members.items()})
    owners = {
        (topic, partition): name
        for topic, partitions in group.owners.items()
        for partition, name in partitions.items()
    }
    if owners != {place: name for name, one in group.members.items() for place in held(one)}:
        bad.append("P1 the owners are not those who hold")
    shares = {
        name: [(topic, partition) for topic, some in share.items() for partition in some]
        for name, share in group.target.items()
    }
    bad += _shared(shares)
    if not shares.keys() <= group.members.keys():
        bad.append("P2 the target gives to somebody who is no member")
    if group.target_epoch > group.epoch:
        bad.append(f"P4 target epoch {group.target_epoch}, group epoch {group.epoch}")
    if not group.members and group.target_epoch != group.epoch:
        bad.append(f"P4 empty, target epoch {group.target_epoch}, group epoch {group.epoch}")
    for name, member in group.members.items():
        if member.epoch > group.target_epoch:
            bad.append(f"P4 {name} has epoch {member.epoch}, the target {group.target_epoch}")
        if (member.state is MemberState.UNREVOKED) != bool(member.revoking):
            bad.append(f"P2 {name} is {member.state.name} and revokes {member.revoking}")
    return bad


def _shared(shares: Mapping[str, Collection[Place]]) -> list[str]:
    counted = Counter(place for share in shares.values() for place in share)
    return [
        f"P1 {place} belongs to {sorted(name for name, share in shares.items() if place in share)}"
        for place, count in sorted(counted.items())
        if count > 1
    ]


def check_step(
    before: Group | None, event: GroupEvent, after: Group | None, outcome: GroupOutcome
) -> list[str]:
    """P1, P3, P4 and K4 of one event: who may change what, and that numbers only grow."""
    bad = [*_numbers(before, after), *_expelled(before, event, after)]
    if isinstance(event, CommitOffsets):
        bad += _commit(before, event, outcome)
    if isinstance(event, TimerExpired) and after is not before:
        bad += _timed_out(before, event)
    if isinstance(event, TargetAssignment) and after is not before:
        assert isinstance(before, ConsumerGroup), before
        if event.epoch != before.epoch:
            bad.append(f"P4 a target for epoch {event.epoch} was taken in at {before.epoch}")
    if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
        bad += _released(before, event, after)
    return [f"{said} (group {event.group_id}, {type(event).__name__})" for said in bad]


def _numbers(before: Group | None, after: Group | None) -> list[str]:
    if before is None or after is None:
        return []
    if type(before) is not type(after):
        return ["P4 a group with members changed its protocol"] if before.members else []
    old, new = generation_of(before), generation_of(after)
    if new - old not in {0, 1}:
        return [f"P4 from generation {old} to {new}"]
    if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
        if after.target_epoch < before.target_epoch:
            return [f"P4 the target went from {before.target_epoch} to {after.target_epoch}"]
        if new == old and len(after.members) < len(before.members):
            return ["P4 a member went without a new epoch"]
    return []


def generation_of(group: Group) -> int:
    """The number that grows with each rebalance."""
    return group.generation if isinstance(group, ClassicGroup) else group.epoch


def _expelled(before: Group | None, event: GroupEvent, after: Group | None) -> list[str]:
    """Who is in the group no longer must have left, or have been expelled by right (K4)."""
    members = {} if before is None else before.members
    gone = members.keys() - ({} if after is None else after.members).keys()
    wrong: Collection[str] = sorted(gone)
    match event:
        case Expire(member_id=name, holder_epoch=epoch):
            wrong = [one for one in wrong if one != name or members[one].holder_epoch != epoch]
        case TimerExpired():
            wrong = ()  # whether the timer ran is judged for itself
        case Leave():
            named = {name for name, _ in event.members}
            instances = {name for _, name in event.members if name is not None}
            wrong = [
                name
                for name in wrong
                if name not in named and members[name].instance_id not in instances
            ]
        case ConsumerHeartbeat(member_epoch=epoch, member_id=name) if epoch < 0:
            wrong = [one for one in wrong if one != name]
        case Join() | ConsumerHeartbeat():
            wrong = [one for one in wrong if not _is_succeeded(members[one], event)]
        case _:
            pass
    return [f"K4 {list(wrong)} went by {event}"] if wrong else []


def _is_succeeded(member: Member, event: Join | ConsumerHeartbeat) -> bool:
    """Whether a static member goes on under another id, or a member itself found no room."""
    if event.instance_id is not None and member.instance_id == event.instance_id:
        return True
    return isinstance(event, Join) and member.member_id == event.member_id


def _timed_out(before: Group | None, event: TimerExpired) -> list[str]:
    """K2: only the timer that runs counts."""
    is_due = False
    if isinstance(before, ClassicGroup):
        number = before.join_number if event.kind == TimerKind.JOIN else before.generation
        waits = (before.state is ClassicState.PREPARING) == (event.kind == TimerKind.JOIN)
        is_due = waits and number == event.number
    elif isinstance(before, ConsumerGroup):
        member = before.members.get(event.subject)
        is_due = (
            member is not None
            and member.state is MemberState.UNREVOKED
            and member.revoke_number == event.number
        )
    return [] if is_due else [f"K2 a timer that does not run had an effect: {event}"]


def _released(before: ConsumerGroup, event: GroupEvent, after: ConsumerGroup) -> list[str]:
    """P1: a member lets go of a partition only by saying what it has, and that is not in it."""
    bad = []
    for name, member in before.members.items():
        left = after.members.get(name)
        if left is None or left is member:
            continue
        lost = held(member) - held(left)
        if not lost:
            continue
        own = isinstance(event, ConsumerHeartbeat) and event.member_id == name
        away = own and isinstance(event, ConsumerHeartbeat) and event.member_epoch < 0
        said = isinstance(event, ConsumerHeartbeat) and event.owned is not None
        kept = {
            (topic, partition)
            for topic, partitions in (isinstance(event, ConsumerHeartbeat) and event.owned) or ()
            for partition in partitions
        }
        if not away and not (own and said and not lost & kept):
            bad.append(f"P1 {name} lost {sorted(lost)} without letting go of it")
    return bad


def _commit(before: Group | None, event: CommitOffsets, outcome: GroupOutcome) -> list[str]:
    is_taken = outcome == GroupEventResult(ErrorCode.NONE)
    if is_taken == _may_commit(before, event):
        return []
    word = "taken" if is_taken else "refused"
    return [f"P3 a commit of {event.member_id} in generation {event.generation} was {word}"]


def _may_commit(group: Group | None, event: CommitOffsets) -> bool:
    if event.generation < 0 and (group is None or not group.members):
        return True
    if isinstance(group, ClassicGroup):
        instance = event.instance_id
        return (
            event.member_id in group.members
            and (instance is None or group.instances.get(instance) == event.member_id)
            and event.generation == group.generation
            and group.state is not ClassicState.COMPLETING
        )
    member = None if group is None else group.members.get(event.member_id)
    if member is None or event.api_version < 9:
        return False
    if event.generation >= member.epoch:
        return event.generation == member.epoch
    since = {
        (topic, partition): epoch
        for shares in (member.revoking, member.assigned)
        for topic, partitions in shares.items()
        for partition, epoch in partitions.items()
    }
    return all(
        since.get((topic, partition), event.generation + 1) <= event.generation
        for topic, partition, *_ in event.offsets
    )


def check_offsets(
    before: Mapping[Place, CommittedOffset],
    event: GroupEvent,
    outcome: GroupOutcome,
    after: Mapping[Place, CommittedOffset],
) -> list[str]:
    """P6: an offset changes by a commit, a deletion or an expiry, and by nothing else."""
    changed = {place for place in {**before, **after} if before.get(place) != after.get(place)}
    allowed: set[Place] = set()
    match event:
        case CommitOffsets() if outcome == GroupEventResult(ErrorCode.NONE):
            allowed = {(topic, partition) for topic, partition, *_ in event.offsets}
        case DeleteOffsets():
            allowed = {(topic, partition) for topic, _, partition in event.partitions}
        case ExpireOffsets():
            allowed = {
                (topic, partition)
                for topic, _, partition in event.partitions
                if (topic, partition) in before
                and before[topic, partition].position <= event.position
            }
        case DeleteGroup():
            allowed = set(before)
        case _:
            pass
    return [
        f"P6 {event.group_id} {place}: from {before.get(place)} to {after.get(place)}"
        f" by {type(event).__name__}"
        for place in sorted(changed - allowed)
    ]
