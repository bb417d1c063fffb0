"""The members of a consumer group, what they hold, and how each gets from that to its target. Pure.

Partitions. Whoever is assigned a partition, or has not let go of it yet, owns it; `owners` says so
for the whole group, and is kept in step with every change of a member (P1).

Members. `put` and `remove` return a new group whose owners, target and patterns fit its members
again. A member that goes or reads something else, as all do that come to read, raises the group's
epoch by one (P4); whatever else a member tells about itself does not.

Reconciliation, heartbeat by heartbeat. Revoke first: a member that has to let go of partitions
keeps its epoch, and owns them, until it says what it has and they are not in it; a heartbeat that
says nothing is not enough. Then it moves to the target's epoch with whatever is free, and the rest
follows at the same epoch as other members let go of it (row 91). So no partition is in two hands at
any time (P1).
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from lakelog.groups.events import Owned
from lakelog.groups.state import ConsumerGroup, ConsumerMember, MemberState, Shares

Owners: TypeAlias = dict[bytes, dict[int, str]]
"""By topic id: partition -> the member that has it."""


def is_held(shares: Shares, owned: Owned | None) -> bool:
    """Whether a member that says it has `owned` has any of these; silence means that it has."""
    if owned is None:
        return True
    return any(
        partition in shares[topic]
        for topic, partitions in owned
        if topic in shares
        for partition in partitions
    )


def is_within(owned: Owned | None, shares: Shares) -> bool:
    """Whether a member says that it has some or all of these and nothing else."""
    if owned is None:
        return False
    return all(
        topic in shares and all(partition in shares[topic] for partition in partitions)
        for topic, partitions in owned
    )


def listed(shares: Shares) -> Owned:
    """The partitions by topic id, both ascending, as an answer carries them."""
    return tuple((topic, tuple(sorted(shares[topic]))) for topic in sorted(shares))


def reowned(
    owners: Owners, *, before: ConsumerMember | None, after: ConsumerMember | None
) -> Owners:
    """The owners after a member has become another value, came (before is None) or went.

    The same object if they stay; only the topics that change are copied.
    """
    if before is not None and after is not None and before.member_id == after.member_id:
        if before.assigned is after.assigned and before.revoking is after.revoking:
            return owners
        return _moved(owners, before, after, after.member_id)
    if before is not None:
        owners = _moved(owners, before, None, before.member_id)
    if after is not None:
        owners = _moved(owners, None, after, after.member_id)
    return owners


def _moved(
    owners: Owners, before: ConsumerMember | None, after: ConsumerMember | None, member_id: str
) -> Owners:
    had = _held(before)
    has = _held(after)
    result = owners
    # Sorted, so that every replica writes the same bytes into its checkpoint (rule 13).
    for topic in sorted(had.keys() | has.keys()):
        old, new = had.get(topic, _NOTHING), has.get(topic, _NOTHING)
        if old == new:
            continue
        if result is owners:
            result = dict(owners)
        places = dict(owners.get(topic, ()))
        for partition in sorted(old - new):
            assert places.pop(partition) == member_id, (topic, partition, member_id)
        for partition in sorted(new - old):
            assert partition not in places, (topic, partition, places[partition])  # P1
            places[partition] = member_id
        if places:
            result[topic] = places
        else:
            result.pop(topic, None)
    return result


def _held(member: ConsumerMember | None) -> dict[bytes, frozenset[int]]:
    if member is None:
        return {}
    held = {topic: frozenset(partitions) for topic, partitions in member.assigned.items()}
    for topic, partitions in member.revoking.items():
        held[topic] = held.get(topic, _NOTHING) | partitions.keys()
    return held


_NOTHING: frozenset[int] = frozenset()


def find_instance(
    group: ConsumerGroup, *, instance_id: str, member_id: str
) -> ConsumerMember | None:
    """The member of this instance id, which at most one member has."""
    likely = group.members.get(member_id)
    if likely is not None and likely.instance_id == instance_id:
        return likely
    for member in group.members.values():
        if member.instance_id == instance_id:
            return member
    return None


def reads(group: ConsumerGroup, member: ConsumerMember) -> frozenset[str] | None:
    """The topics that a member reads; None while its pattern is not resolved."""
    if not member.pattern:
        return frozenset(member.names)
    matched = group.resolved.get(member.pattern)
    return None if matched is None else frozenset((*member.names, *matched))


def put(
    group: ConsumerGroup,
    *,
    before: ConsumerMember | None,
    after: ConsumerMember,
    is_rebalanced: bool = False,
) -> ConsumerGroup:
    """The group with a member in the place of its former value, or with a new one.

    A successor under another id inherits its predecessor's target.
    """
    if after is before and not is_rebalanced:
        return group
    members = dict(group.members)
    target = group.target
    if before is not None and before.member_id != after.member_id:
        del members[before.member_id]
        target = dict(target)
        if before.member_id in target:
            target[after.member_id] = target.pop(before.member_id)
    members[after.member_id] = after
    return replace(
        group,
        epoch=group.epoch + is_rebalanced,
        members=members,
        target=target,
        resolved=_in_use(group, members, [before] if before is not None else []),
        owners=reowned(group.owners, before=before, after=after),
    )


def remove(group: ConsumerGroup, gone: Iterable[ConsumerMember]) -> ConsumerGroup:
    """The group without these members: one rebalance, however many they are.

    A group without members keeps its epoch for whoever comes next (row 81); its target is the
    empty one, and of the same epoch (P4).
    """
    members = dict(group.members)
    target = dict(group.target)
    owners = group.owners
    leaving = list(gone)
    for member in leaving:
        del members[member.member_id]
        target.pop(member.member_id, None)
        owners = reowned(owners, before=member, after=None)
    epoch = group.epoch + 1
    left = replace(
        group,
        epoch=epoch,
        members=members,
        target=target,
        resolved=_in_use(group, members, leaving),
        owners=owners,
    )
    if members:
        return left
    return replace(left, target_epoch=epoch, fingerprint=0, topic_names={})


def _in_use(
    group: ConsumerGroup, members: dict[str, ConsumerMember], changed: list[ConsumerMember]
) -> dict[str, tuple[str, ...]]:
    """What patterns match, without those that nobody has any more."""
    if not any(member.pattern in group.resolved for member in changed):
        return group.resolved
    patterns = {member.pattern for member in members.values()}
    if group.resolved.keys() <= patterns:
        return group.resolved
    return {pattern: names for pattern, names in group.resolved.items() if pattern in patterns}


Wanted: TypeAlias = dict[bytes, tuple[int, ...]]
"""By topic id: the partitions that a member shall have."""


def reconcile(
    group: ConsumerGroup, member: ConsumerMember, owned: Owned | None, *, is_changed: bool
) -> ConsumerMember:
    """The member one step nearer to its target, or the same object where no step can be made.

    `is_changed` says that it reads other topics since this heartbeat: what it reads no longer is
    taken from it now, without waiting for a new target, as Kafka does since its targets wait.
    """
    if is_reconciled(group, member) and not is_changed:
        return member
    if member.state is MemberState.UNREVOKED and is_held(member.revoking, owned):
        return _revoking_more(group, member) if is_changed else member
    return _advanced(group, member, owned)


def is_reconciled(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether the member has all of its target, and nothing else."""
    return member.state is MemberState.STABLE and member.epoch == group.target_epoch


def _advanced(group: ConsumerGroup, member: ConsumerMember, owned: Owned | None) -> ConsumerMember:
    wanted = _wanted(group, member)
    kept, dropped = _split(member.assigned, wanted)
    if dropped and is_held(dropped, owned):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=dropped,
            revoke_number=max(member.revoke_number + 1, group.epoch),
        )
    assigned, is_complete = _granted(group, member, wanted)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    is_same_epoch = member.epoch == group.target_epoch
    if is_same_epoch and state is member.state and assigned == member.assigned:
        return member
    return replace(
        member,
        epoch=group.target_epoch,
        previous_epoch=member.previous_epoch if is_same_epoch else member.epoch,
        state=state,
        assigned=assigned,
        revoking={},
    )


def _revoking_more(group: ConsumerGroup, member: ConsumerMember) -> ConsumerMember:
    """A member that is still to let go of partitions, and reads even fewer topics now."""
    unread = _unread(group, member, member.assigned)
    if not unread:
        return member
    revoking = dict(member.revoking)
    for topic in unread:
        revoking[topic] = {**revoking.get(topic, {}), **member.assigned[topic]}
    kept = {topic: held for topic, held in member.assigned.items() if topic not in unread}
    return replace(member, assigned=kept, revoking=revoking)


def _wanted(group: ConsumerGroup, member: ConsumerMember) -> Wanted:
    """The member's target, without the topics that it stopped reading since that was made."""
    target = group.target.get(member.member_id, {})
    unread = _unread(group, member, target)
    if not unread:
        return target
    return {topic: partitions for topic, partitions in target.items() if topic not in unread}


def _unread(
    group: ConsumerGroup, member: ConsumerMember, topics: Iterable[bytes]
) -> tuple[bytes, ...]:
    """Those of the topics that the member does not read, as far as anybody can tell."""
    names = reads(group, member)
    if names is None:
        return ()
    known = group.topic_names
    return tuple(topic for topic in topics if topic in known and known[topic] not in names)


def _split(assigned: Shares, wanted: Wanted) -> tuple[Shares, Shares]:
    """What of the assigned partitions is wanted, and what is not."""
    kept: Shares = {}
    dropped: Shares = {}
    for topic, held in assigned.items():
        here = frozenset(wanted.get(topic, ()))
        for partition, epoch in held.items():
            into = kept if partition in here else dropped
            into.setdefault(topic, {})[partition] = epoch
    return kept, dropped


def _granted(group: ConsumerGroup, member: ConsumerMember, wanted: Wanted) -> tuple[Shares, bool]:
    """What the member has of its target or gets now, and whether that is all of it.

    A partition remembers the epoch at which the member got it: commits of that epoch and later are
    good for as long as it keeps it (KIP-1251).
    """
    granted: Shares = {}
    is_complete = True
    for topic, partitions in wanted.items():
        had = member.assigned.get(topic, {})
        owners = group.owners.get(topic, {})
        here: dict[int, int] = {}
        for partition in partitions:
            if partition in had:
                here[partition] = had[partition]
            elif owners.get(partition, member.member_id) == member.member_id:
                here[partition] = group.target_epoch
            else:
                is_complete = False
        if here:
            granted[topic] = here
    return granted, is_complete
