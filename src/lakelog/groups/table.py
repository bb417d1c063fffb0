"""All groups of a domain and their committed offsets: the part of its state that is about groups.

Groups are values and are replaced. Offsets are many, so they are changed in place, and a frozen
copy of the table shares them until the first change after it (`_own`). Only `apply` of the domain
changes a table (rule 9). An offset changes by a commit, a deletion or an expiry and by nothing else
(P6). Pure.

Which domain a group lives in (`domain_index`): the number of domains is fixed when a cluster is
made, and the hash is written down here for ever (T2): it must not be Python's own, which differs
from process to process.

What groups and offsets take in memory is estimated, on the high side. The figures are bytes of a
broker's process, where every domain's groups are held whole: a number in a dict costs far more than
its digits. They decide who is let in (`coordinator/budget.py`) and are no part of what `apply`
means, so they may change from version to version.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, TypeAlias

from lakelog.groups.events import (
    CommitOffsets,
    DeleteOffsets,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    OffsetsDeleted,
    TargetAssignment,
)
from lakelog.groups.routing import judge, subscribed
from lakelog.groups.state import (
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    Member,
)
from lakelog.model.errors import ErrorCode


def domain_index(group_id: str, domains: int) -> int:
    """The domain of the group."""
    return group_hash(group_id) % domains


def group_hash(group_id: str) -> int:
    """A number that spreads groups evenly, the same everywhere and for ever."""
    return int.from_bytes(blake2b(group_id.encode(), digest_size=8).digest(), "big")


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


def target_bytes(event: TargetAssignment) -> int:
    """What a target takes that is yet to be taken in."""
    given = sum(len(partitions) for _, share in event.shares for _, partitions in share)
    return PARTITION_BYTES * given


def _held_bytes(member: ConsumerMember) -> int:
    held = sum(map(len, member.assigned.values())) + sum(map(len, member.revoking.values()))
    return HELD_PARTITION_BYTES * held


BUCKETS: Final = 64
"""Pages of a checkpoint that groups are spread over."""

Offsets: TypeAlias = dict[tuple[bytes, int], CommittedOffset]
"""By topic id and partition: a topic made again under its name inherits nothing (K12)."""


def bucket_of(group_id: str) -> int:
    """The page of a checkpoint that the group is in."""
    return group_hash(group_id) % BUCKETS


class GroupTable:
    """The groups of one domain."""

    __slots__ = ("_changed", "_offset_bytes", "_own", "groups", "offset_bytes", "offsets")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, Offsets] = {}
        self._own: set[str] = set()
        """The groups whose offsets no frozen copy shares."""
        self._changed: dict[int, int] = {}
        self._offset_bytes: dict[str, int] = {}
        self.offset_bytes = 0
        """What all committed offsets take in memory, by estimate; `apply` does not look at it."""

    def apply(self, event: GroupEvent, *, position: int) -> GroupOutcome:
        """Take in the event of the record at this position and say what became of it."""
        group_id = event.group_id
        before = self.groups.get(group_id)
        after, outcome = judge(before, event)
        if isinstance(event, CommitOffsets):
            if outcome == _ACCEPTED:
                self._commit(event, position)
        elif isinstance(event, DeleteOffsets | ExpireOffsets):
            if after is None or outcome != _MAY_FORGET:
                return outcome
            return self._forget(after, event, position)
        if after is before:
            return outcome
        if after is None:
            del self.groups[group_id]
            self.offsets.pop(group_id, None)
            self._count_bytes(group_id, -self.offset_bytes_of(group_id))
        else:
            self.groups[group_id] = after
        self._touch(group_id, position)
        return outcome

    def preview(self, event: GroupEvent) -> tuple[Group | None, GroupOutcome, bool]:
        """What `apply` would make of the event: the group, the answer, and whether it changes."""
        before = self.groups.get(event.group_id)
        after, outcome = judge(before, event)
        return after, outcome, after is not before

    def copied(self) -> "GroupTable":
        """A copy that later events do not change."""
        made = GroupTable()
        made.groups = dict(self.groups)
        made.offsets = dict(self.offsets)
        made._changed = dict(self._changed)
        made._offset_bytes = dict(self._offset_bytes)
        made.offset_bytes = self.offset_bytes
        self._own.clear()
        return made

    def restore(self, group: Group, offsets: Offsets) -> None:
        """Put in a group as a checkpoint holds it."""
        self.groups[group.group_id] = group
        if offsets:
            self.offsets[group.group_id] = offsets
            texts = sum(len(committed.metadata) for committed in offsets.values())
            self._count_bytes(group.group_id, OFFSET_BYTES * len(offsets) + texts)

    def offset_bytes_of(self, group_id: str) -> int:
        """What the committed offsets of a group take in memory, by estimate."""
        return self._offset_bytes.get(group_id, 0)

    def buckets(self) -> list[int]:
        """The buckets that hold a group, ascending."""
        return sorted(set(map(bucket_of, self.groups)))

    def changed_buckets(self, *, since: int) -> set[int]:
        """The buckets that a record after this position changed."""
        return {bucket for bucket, position in self._changed.items() if position > since}

    def _commit(self, event: CommitOffsets, position: int) -> None:
        if not event.offsets:
            return
        offsets = self._writable(event.group_id)
        grown = 0
        for topic, partition, offset, leader_epoch, metadata in event.offsets:
            before = offsets.get((topic, partition))
            grown += len(metadata) - (-OFFSET_BYTES if before is None else len(before.metadata))
            offsets[topic, partition] = CommittedOffset(
                offset, leader_epoch, metadata, event.time_ms, position
            )
        self._count_bytes(event.group_id, grown)
        self._touch(event.group_id, position)

    def _forget(
        self, group: Group, event: DeleteOffsets | ExpireOffsets, position: int
    ) -> OffsetsDeleted:
        codes = []
        gone = []
        for topic, name, partition in event.partitions:
            committed = self.offsets.get(group.group_id, {}).get((topic, partition))
            is_newer = (
                isinstance(event, ExpireOffsets)
                and committed is not None
                and committed.position > event.position
            )
            is_read = _is_read(group, name)
            codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE)
            if committed is not None and not is_newer and not is_read:
                gone.append((topic, partition))
        self._remove(group, gone, position)
        if isinstance(event, ExpireOffsets) and not group.members:
            self._clear(group, position)
        return OffsetsDeleted(ErrorCode.NONE, tuple(codes))

    def _remove(self, group: Group, gone: list[tuple[bytes, int]], position: int) -> None:
        if not gone:
            return
        offsets = self._writable(group.group_id)
        for place in gone:
            committed = offsets.pop(place, None)
            if committed is not None:
                self._count_bytes(group.group_id, -OFFSET_BYTES - len(committed.metadata))
        if not offsets:
            del self.offsets[group.group_id]
        self._touch(group.group_id, position)

    def _clear(self, group: Group, position: int) -> None:
        """A group that nobody is in ceases to exist with its last offset (row 81)."""
        if group.group_id not in self.offsets:
            del self.groups[group.group_id]
            self._touch(group.group_id, position)

    def _writable(self, group_id: str) -> Offsets:
        if group_id not in self._own:
            self.offsets[group_id] = dict(self.offsets.get(group_id, ()))
            self._own.add(group_id)
        return self.offsets.setdefault(group_id, {})

    def _count_bytes(self, group_id: str, grown: int) -> None:
        self.offset_bytes += grown
        held = self._offset_bytes.get(group_id, 0) + grown
        if held:
            self._offset_bytes[group_id] = held
        else:
            self._offset_bytes.pop(group_id, None)

    def _touch(self, group_id: str, position: int) -> None:
        self._changed[bucket_of(group_id)] = position


_ACCEPTED: Final = GroupEventResult(ErrorCode.NONE)
_MAY_FORGET: Final = OffsetsDeleted(ErrorCode.NONE)


def _is_read(group: Group, name: str) -> bool:
    """Whether live members read the topic, or may: nobody can tell of all of them."""
    if not group.members or not name:
        return False
    names = subscribed(group)
    return names is None or name in names
