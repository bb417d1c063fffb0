"""What groups and their committed offsets take in memory, by estimate, on the high side. Pure.

The figures are bytes of a broker's process, where every domain's groups are held whole: a number in
a dict costs far more than its digits. They decide who is let in (`coordinator/budget.py`) and are
no part of what `apply` means, so they may change from version to version.
"""

from collections.abc import Iterable
from typing import Final

from lakelog.groups.events import Target
from lakelog.groups.state import ClassicMember, ConsumerGroup, ConsumerMember, Group, Member

GROUP_BYTES: Final = 1_024
"""A group without members."""

MEMBER_BYTES: Final = 1_536
"""A member with its ids, without what it brings."""

OFFSET_BYTES: Final = 448
"""A committed offset without its text."""

PARTITION_BYTES: Final = 64
"""A partition in a target."""

HELD_PARTITION_BYTES: Final = 192
"""A partition that a member of a consumer group has, and its place among the owners."""

NAME_BYTES: Final = 64
"""A name in a subscription without its characters."""


def member_bytes(member: Member) -> int:
    """What a member takes."""
    if isinstance(member, ClassicMember):
        return MEMBER_BYTES + protocols_bytes(member.protocols) + len(member.assignment)
    return MEMBER_BYTES + names_bytes(member.names) + len(member.pattern) + _held_bytes(member)


def protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """What a classic member brings: a name and bytes for each protocol; also of assignments."""
    return sum(NAME_BYTES + len(name) + len(data) for name, data in protocols)


def names_bytes(names: Iterable[str]) -> int:
    """What a list of topic names takes."""
    return sum(NAME_BYTES + len(name) for name in names)


def group_bytes(group: Group) -> int:
    """What a group takes beside its members and its offsets."""
    if not isinstance(group, ConsumerGroup):
        return GROUP_BYTES
    resolved = sum(len(pattern) + names_bytes(names) for pattern, names in group.resolved.items())
    given = sum(len(places) for share in group.target.values() for places in share.values())
    return GROUP_BYTES + resolved + PARTITION_BYTES * given


def target_bytes(event: Target) -> int:
    """What a target takes that is yet to be taken in."""
    given = sum(len(partitions) for _, share in event.shares for _, partitions in share)
    return PARTITION_BYTES * given


def _held_bytes(member: ConsumerMember) -> int:
    held = sum(map(len, member.assigned.values())) + sum(map(len, member.revoking.values()))
    return HELD_PARTITION_BYTES * held
