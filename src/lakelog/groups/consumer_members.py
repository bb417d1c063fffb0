"""The members of a consumer group: who is in it, what they read, and who comes or goes. Pure.

Every function returns a new group whose owners, target and patterns fit its members again. A member
that goes or reads something else, as all do that come to read, raises the group's epoch by one
(P4); whatever else a member tells about itself does not.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from lakelog.groups.consumer_shares import reowned
from lakelog.groups.state import ConsumerGroup, ConsumerMember


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
