"""How a member of a consumer group gets from what it has to its target, heartbeat by heartbeat.

Revoke first: a member that has to let go of partitions keeps its epoch, and owns them, until it
says what it has and they are not in it; a heartbeat that says nothing is not enough. Then it moves
to the target's epoch with whatever is free, and the rest follows at the same epoch as other members
let go of it (row 91). So no partition is in two hands at any time (P1). Pure.
"""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from lakelog.groups.consumer_members import reads
from lakelog.groups.consumer_shares import is_held
from lakelog.groups.events import Owned
from lakelog.groups.state import ConsumerGroup, ConsumerMember, MemberState, Shares

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
