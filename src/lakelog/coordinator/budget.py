"""How much groups may hold, and who is not let in when that is reached (rule 25).

Every broker holds every group in memory, and a client may make as many as it likes by committing
to invented names. So what makes a group, a member or an offset is looked at by the broker that
appends it, before it takes its place in the log; `apply` knows nothing of limits (rule 9). Brokers
that write at the same moment may together exceed a limit by what they have under way. What makes
nothing larger is never refused: members that are in can stay, commit what they committed before,
and leave.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from lakelog.clock import Clock
from lakelog.coordinator.group_domain import GroupDiff
from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    GroupEvent,
    Join,
    Resolved,
    Sync,
    TargetAssignment,
)
from lakelog.groups.state import ClassicMember, ConsumerMember, Group
from lakelog.groups.table import (
    GROUP_BYTES,
    MEMBER_BYTES,
    OFFSET_BYTES,
    GroupTable,
    group_bytes,
    member_bytes,
    names_bytes,
    protocols_bytes,
    target_bytes,
)
from lakelog.model.errors import ErrorCode
from lakelog.telemetry import MetricsRegistry
from lakelog.telemetry import event as log_event

LOG_PAUSE_S: Final = 10.0
"""Refusals are logged at most this often; a counter has all of them."""

_log = logging.getLogger("lakelog.coordinator")


class Budget:
    """What the groups of all domains hold, and whether an event may add to it."""

    def __init__(
        self,
        tables: Callable[[], Sequence[GroupTable]],
        clock: Clock,
        options: GroupOptions,
        metrics: MetricsRegistry,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._options = options
        self._refused = metrics.group_refusals
        self._groups: dict[str, int] = {}
        self._groups_bytes = 0
        self._logged_s = float("-inf")
        self._metrics = metrics
        metrics.group_limits.refresh = self._refresh

    def see(self, change: GroupDiff) -> None:
        """A group is another one now: its size follows."""
        before = self._groups.pop(change.group_id, 0)
        self._groups_bytes -= before
        if change.after is not None:
            size = before + _grown_bytes(change)
            self._groups[change.group_id] = size
            self._groups_bytes += size

    def held_bytes(self) -> int:
        """What all groups and committed offsets take now."""
        return self._groups_bytes + sum(table.offset_bytes for table in self._tables())

    def refusal(self, event: GroupEvent, table: GroupTable) -> ErrorCode | None:
        """The code for an event that would add more than may be held; None for any other."""
        added_bytes = added(table, event)
        if added_bytes <= 0:
            return None
        group_id = event.group_id
        limit = self._reached(group_id, table, added_bytes)
        if limit is None:
            return None
        self._refused.inc()
        self._tell(group_id, limit)
        is_commit = isinstance(event, CommitOffsets)
        return (
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.GROUP_MAX_SIZE_REACHED
        )

    def _reached(self, group_id: str, table: GroupTable, added_bytes: int) -> str | None:
        """The name of the limit that would be exceeded."""
        options = self._options
        if group_id not in table.groups and self._count() >= options.groups_max:
            return "groups_max"
        own_bytes = self._groups.get(group_id, 0) + table.offset_bytes_of(group_id)
        if own_bytes + added_bytes > options.group_bytes_max:
            return "group_bytes_max"
        if self.held_bytes() + added_bytes > options.groups_bytes_max:
            return "groups_bytes_max"
        return None

    def _count(self) -> int:
        return sum(len(table.groups) for table in self._tables())

    def _tell(self, group_id: str, limit: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s >= LOG_PAUSE_S:
            self._logged_s = now_s
            log_event(
                _log,
                "group_refused",
                logging.WARNING,
                group=group_id,
                limit=f"groups.{limit}={getattr(self._options, limit)}",
                held_bytes=self.held_bytes(),
                groups=self._count(),
            )

    def _refresh(self) -> None:
        self._metrics.group_limits.values = {
            ("groups", "held"): self._count(),
            ("groups", "limit"): self._options.groups_max,
            ("bytes", "held"): self.held_bytes(),
            ("bytes", "limit"): self._options.groups_bytes_max,
            ("bytes of the largest group", "held"): max(self._groups.values(), default=0),
            ("bytes of the largest group", "limit"): self._options.group_bytes_max,
        }


def _grown_bytes(change: GroupDiff) -> int:
    """By how much the group grew; looks at no more members than changed."""
    before, after = change.before, change.after
    old = {} if before is None else before.members
    new = {} if after is None else after.members
    grown = sum(member_bytes(new[name]) for name in change.members if name in new)
    grown -= sum(member_bytes(old[name]) for name in change.members if name in old)
    return grown + _own_bytes(after) - _own_bytes(before)


def _own_bytes(group: Group | None) -> int:
    return 0 if group is None else group_bytes(group)


def added(table: GroupTable, event: GroupEvent) -> int:
    """By how much an event would make its group larger, about; 0 for one that cannot."""
    group = table.groups.get(event.group_id)
    grown = 0
    match event:
        case Join():
            grown = _joined_bytes(group, event)
        case ConsumerHeartbeat():
            grown = _beaten_bytes(group, event)
        case Sync():
            grown = _synced_bytes(group, event)
        case CommitOffsets():
            grown = _committed_bytes(table, event)
        case TargetAssignment():
            grown = target_bytes(event) + GROUP_BYTES - _own_bytes(group)
        case Resolved():
            grown = names_bytes(event.names)
        case _:
            pass  # whatever else happens to a group makes it no larger
    return grown + GROUP_BYTES if group is None and grown > 0 else grown


def _synced_bytes(group: Group | None, event: Sync) -> int:
    if group is None or not event.assignments:
        return 0
    members = group.members.values()
    held = sum(len(member.assignment) for member in members if isinstance(member, ClassicMember))
    return protocols_bytes(event.assignments) - held


def _joined_bytes(group: Group | None, event: Join) -> int:
    member = None if group is None else group.members.get(event.member_id)
    brought = protocols_bytes(event.protocols)
    if isinstance(member, ClassicMember):
        return brought - protocols_bytes(member.protocols)
    return MEMBER_BYTES + brought


def _beaten_bytes(group: Group | None, event: ConsumerHeartbeat) -> int:
    member = None if group is None else group.members.get(event.member_id)
    brought = names_bytes(event.names or ()) + len(event.pattern or "")
    if isinstance(member, ConsumerMember):
        is_told = event.names is not None or event.pattern is not None
        return brought - names_bytes(member.names) - len(member.pattern) if is_told else 0
    return MEMBER_BYTES + brought if event.member_epoch == 0 else 0


def _committed_bytes(table: GroupTable, event: CommitOffsets) -> int:
    offsets = table.offsets.get(event.group_id, {})
    grown = 0
    for topic, partition, _, _, metadata in event.offsets:
        before = offsets.get((topic, partition))
        grown += OFFSET_BYTES + len(metadata) if before is None else len(metadata)
        grown -= 0 if before is None else len(before.metadata)
    return grown
