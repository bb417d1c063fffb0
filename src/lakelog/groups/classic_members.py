"""The members of a classic group: who is in it, who leads, which protocols all of them support.

Every function returns a new group whose counts fit its members again, and never touches the group
it was given. What a change of members means for the group's state is decided elsewhere. Pure.

Which topics a member reads is in its opaque metadata (`topics_of`). That begins with a version
(INT16) and the array of topic names in all versions there are; the rest is of no interest here.
Bytes of another shape tell nothing, and that is no error: groups of other programs carry what they
like.
"""

import struct
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from lakelog.groups.state import ClassicGroup, ClassicMember
from lakelog.model.errors import ErrorCode

_VERSION: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
PROTOCOL_TYPE: Final = "consumer"
"""The protocol type whose metadata is a subscription."""


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The names of the topics; None when the bytes are no subscription."""
    try:
        return _topics_of(metadata)
    except (struct.error, UnicodeDecodeError):
        return None


def _topics_of(metadata: bytes) -> frozenset[str] | None:
    if _VERSION.unpack_from(metadata)[0] < 0:
        return None
    (count,) = _COUNT.unpack_from(metadata, _VERSION.size)
    place = _VERSION.size + _COUNT.size
    if not 0 <= count <= (len(metadata) - place) // _LENGTH.size:
        return None
    names = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, place)
        place += _LENGTH.size
        if not 0 <= length <= len(metadata) - place:
            return None
        names.append(metadata[place : place + length].decode())
        place += length
    return frozenset(names)


_TABLE_SLOTS: Final = 16
"""What Kafka's table of votes begins with; a group has no more common protocols than fit."""


def judge_member(group: ClassicGroup, *, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether this is a member, under the id that its instance has now."""
    if instance_id is not None:
        known = group.instances.get(instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def with_added(group: ClassicGroup, member: ClassicMember) -> ClassicGroup:
    """The group with a member that it did not have; the first one leads."""
    assert member.member_id not in group.members, member.member_id
    members = {**group.members, member.member_id: member}
    return replace(
        group,
        members=members,
        leader=group.leader if group.leader is not None else member.member_id,
        instances=_with_instance(group, member),
        support=_counted(group.support, added=member),
        joined_count=group.joined_count + member.is_joined,
    )


def with_updated(group: ClassicGroup, member: ClassicMember) -> ClassicGroup:
    """The group with another value of a member that it has; the same group if it is the same."""
    before = group.members[member.member_id]
    if member == before:
        return group
    members = dict(group.members)
    members[member.member_id] = member
    support = group.support
    if member.protocols != before.protocols:
        support = _counted(support, removed=before, added=member)
    return replace(
        group,
        members=members,
        support=support,
        joined_count=group.joined_count + member.is_joined - before.is_joined,
        unsynced_count=group.unsynced_count + before.is_synced - member.is_synced,
    )


def with_successor(
    group: ClassicGroup, before: ClassicMember, member: ClassicMember
) -> ClassicGroup:
    """The group in which a static member goes on under a new id, as the leader if it led."""
    assert before.instance_id == member.instance_id, (before.instance_id, member.instance_id)
    members = dict(group.members)
    del members[before.member_id]
    members[member.member_id] = member
    return replace(
        group,
        members=members,
        leader=member.member_id if group.leader == before.member_id else group.leader,
        instances=_with_instance(group, member),
        support=_counted(group.support, removed=before, added=member),
        joined_count=group.joined_count + member.is_joined - before.is_joined,
    )


def without(group: ClassicGroup, member_ids: Iterable[str]) -> ClassicGroup:
    """The group without these members; if the leader goes, the oldest of the others leads."""
    members = dict(group.members)
    instances = dict(group.instances)
    support = group.support
    joined_count = group.joined_count
    for member_id in member_ids:
        member = members.pop(member_id)
        if member.instance_id is not None:
            del instances[member.instance_id]
        support = _counted(support, removed=member)
        joined_count -= member.is_joined
    return replace(
        group,
        members=members,
        leader=group.leader if group.leader in members else next(iter(members), None),
        instances=instances,
        support=support,
        joined_count=joined_count,
    )


def is_common(group: ClassicGroup, protocols: Iterable[tuple[str, bytes]]) -> bool:
    """Whether all members support one of these protocols."""
    count = len(group.members)
    return any(group.support.get(name, 0) == count for name, _ in protocols)


def chosen_protocol(group: ClassicGroup) -> str:
    """The protocol with the most votes, each member's for the first that all support.

    A tie is broken as in Kafka, by the place that a name has in Java's hash table: members and
    their order have no part in it.
    """
    count = len(group.members)
    votes: dict[str, int] = {}
    for member in group.members.values():
        for name, _ in member.protocols:
            if group.support[name] == count:
                votes[name] = votes.get(name, 0) + 1
                break
    return min(votes, key=lambda name: (-votes[name], _slot(name), name))


def rebalance_timeout_ms(group: ClassicGroup) -> int:
    """The greatest time that a member asked to be given for joining again."""
    return max((0, *(member.rebalance_timeout_ms for member in group.members.values())))


def metadata_of(member: ClassicMember, protocol_name: str | None) -> bytes:
    """What the member says under this protocol, nothing if it does not support it."""
    for name, metadata in member.protocols:
        if name == protocol_name:
            return metadata
    return b""


def _with_instance(group: ClassicGroup, member: ClassicMember) -> dict[str, str]:
    if member.instance_id is None:
        return group.instances
    return {**group.instances, member.instance_id: member.member_id}


def _counted(
    support: dict[str, int],
    *,
    removed: ClassicMember | None = None,
    added: ClassicMember | None = None,
) -> dict[str, int]:
    """The counts after a change; a name that a member lists twice counts once."""
    counts = dict(support)
    for name in _names(removed):
        counts[name] -= 1
    for name in _names(added):
        counts[name] = counts.get(name, 0) + 1
    for name in _names(removed):
        if counts[name] == 0:
            del counts[name]
    return counts


def _names(member: ClassicMember | None) -> dict[str, None]:
    return dict.fromkeys(name for name, _ in member.protocols) if member is not None else {}


def _slot(name: str) -> int:
    """Where Java puts a string into a small hash table."""
    units = name.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for place in range(0, len(units), 2):
        hashed = (31 * hashed + (units[place] << 8 | units[place + 1])) & 0xFFFF_FFFF
    return (hashed ^ hashed >> 16) % _TABLE_SLOTS
