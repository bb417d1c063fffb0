"""The partitions of members of consumer groups: what is held, listed, owned. Pure.

Whoever is assigned a partition, or has not let go of it yet, owns it; `owners` says so for the
whole group, and is kept in step with every change of a member (P1).
"""

from typing import TypeAlias

from lakelog.groups.events import Owned
from lakelog.groups.state import ConsumerMember, Shares

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
