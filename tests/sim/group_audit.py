"""The auditor of groups folds every record as it lands, event by event, and knows the truth."""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Protocol

import msgspec
from tests.domain.test_checkpoint_model import checkpoint_of

from lakelog.domain.checkpoint_store import CheckpointPointer
from lakelog.domain.envelope import decode_record
from lakelog.domain.events import GroupChange
from lakelog.domain.machine import apply_record
from lakelog.domain.state import LEVEL_MAX, DomainState, GroupApplied, Ignored
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    Expire,
    ExpireOffsets,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    Join,
    Resolved,
    TopicsChanged,
)
from lakelog.groups.state import ClassicGroup, ConsumerGroup, Group
from lakelog.groups.table import GroupTable, domain_index
from lakelog.meta import keys
from lakelog.model.errors import ErrorCode
from lakelog.testing.faulty import Journal, Mutation
from lakelog.testing.group_history import GroupLogView, Place
from lakelog.testing.group_invariants import (
    check_group,
    check_offsets,
    check_step,
    generation_of,
    held,
)

QUIET = (CommitOffsets,)
"""What may be written while nothing happens: heartbeats and timers must not (K8)."""


def encode_assignment(places: frozenset[Place]) -> bytes:
    """The bytes that simulated leaders give to a member."""
    return b",".join(b"%s:%d" % place for place in sorted(places))


def decode_assignment(data: bytes) -> frozenset[Place]:
    """What they mean; nothing at all is nothing."""
    written = [place.rpartition(b":") for place in data.split(b",") if place]
    return frozenset((topic, int(number)) for topic, _, number in written)


class Believer(Protocol):
    """A member of a consumer group, with what it believes to have."""

    name: str
    group_id: str
    member_id: str
    epoch: int
    owned: frozenset[Place]
    tenure: int


class GroupAuditor:
    """The true state of all domains, and everything wrong that was seen."""

    def __init__(self, journal: Journal, *, domains: int, checkpoint_records: int) -> None:
        self.states = [DomainState() for _ in range(domains)]
        self.log_view = GroupLogView()
        self.violations: list[str] = []
        self.reached: set[str] = set()
        self.believers: list[Believer] = []
        self.on_expired: list[Callable[[Expire, Mutation], None]] = []
        self.on_born: list[Callable[[str, str], None]] = []
        """Who wants to hear of a process that writes under a new incarnation of a name."""
        self.written: Counter[str] = Counter()
        """How many events each group was written, those that a quiet group writes apart."""
        self.causes: Counter[str] = Counter()
        self._shadows = [GroupTable() for _ in range(domains)]
        self._tenures: dict[tuple[str, str], int] = {}
        self._logs = {keys.domain_log(domain): domain for domain in range(domains)}
        self._pointers = {keys.checkpoint(domain): domain for domain in range(domains)}
        self._digests: dict[tuple[int, int], str] = {}
        self._checkpoint_records = checkpoint_records
        self._steps = 0
        journal.listeners.append(self._hear)

    def group(self, group_id: str) -> Group | None:
        return self._state(group_id).groups.groups.get(group_id)

    def offsets(self, group_id: str) -> Mapping[Place, object]:
        return self._state(group_id).groups.offsets.get(group_id, {})

    def tenure(self, group_id: str, member_id: str) -> int:
        """A number that changes whenever the member comes into the group anew."""
        return self._tenures.get((group_id, member_id), 0)

    def believe(self, group_id: str) -> None:
        """P1: what a member believes to have is held for it, unless it was fenced meanwhile."""
        group = self.group(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        for one in self.believers:
            member = group.members.get(one.member_id)
            if one.group_id != group_id or member is None or one.epoch <= 0 or member.is_away:
                continue
            if one.tenure == self.tenure(group_id, one.member_id):
                extra = one.owned - held(member)
                if extra:
                    self.violations.append(
                        f"P1 {one.name} believes at epoch {one.epoch} to have {sorted(extra)}, the"
                        f" log does not (epoch {member.epoch}, group {group_id}"
                        f" {group.epoch}/{group.target_epoch})"
                    )
                    one.tenure = -1  # once is enough

    def _state(self, group_id: str) -> DomainState:
        return self.states[domain_index(group_id, len(self.states))]

    def _hear(self, mutation: Mutation) -> None:
        if mutation.kind == "append":
            self._append(self._logs[mutation.name], mutation)
        elif mutation.kind == "key" and mutation.name in self._pointers:
            self._point(self._pointers[mutation.name], mutation.data)
        elif mutation.kind == "trim":
            self.reached.add("a log was trimmed")

    def _append(self, domain: int, mutation: Mutation) -> None:
        state = self.states[domain]
        if mutation.position != state.position + 1:
            self.violations.append(f"R1 position {mutation.position} after {state.position}")
            return
        record = decode_record(mutation.data, level_max=LEVEL_MAX)
        last = state.writers.get(record.writer)
        if last is not None and record.stamp.incarnation > last.incarnation:
            for hear in self.on_born:
                hear(mutation.process, record.writer)
        applied = apply_record(state, record)
        for event, outcome in zip(record.events, applied.outcomes, strict=True):
            if isinstance(outcome, Ignored):
                self.reached.add("a repeat or a zombie was ignored")
            elif isinstance(event, GroupChange):
                assert isinstance(outcome, GroupApplied), outcome
                self._step(domain, event.event, outcome.outcome, mutation)
        if state.groups.groups != self._shadows[domain].groups:
            self.violations.append(f"R9 groups at {state.position} of domain {domain} differ")
        if state.position % self._checkpoint_records == 0:
            digest = sha256(checkpoint_of(state)[0]).hexdigest()
            self._digests[domain, state.position] = digest

    def _step(
        self, domain: int, event: GroupEvent, outcome: GroupOutcome, mutation: Mutation
    ) -> None:
        table = self._shadows[domain]
        group_id, at_s = event.group_id, mutation.at_s
        before = table.groups.get(group_id)
        offsets = dict(table.offsets.get(group_id, {}))
        same = table.apply(event, position=mutation.position)
        after = table.groups.get(group_id)
        if same != outcome:
            self.violations.append(f"R9 {event} was judged {outcome} and {same}")
        self.violations += check_step(before, event, after, outcome)
        if after is not before:
            self._changed(group_id, before, after, event)
            self.log_view.see_group(group_id, before, after, at_s)
        now = table.offsets.get(group_id, {})
        self.violations += check_offsets(offsets, event, outcome, now)
        self.log_view.see_offsets(group_id, offsets, now, at_s)
        self._watch(event, outcome, offsets, mutation)
        self.believe(group_id)

    def _changed(
        self, group_id: str, before: Group | None, after: Group | None, event: GroupEvent
    ) -> None:
        self._steps += 1
        if after is not None:
            self.violations += check_group(after, decode_assignment)
            for member_id in after.members:
                if before is None or member_id not in before.members:
                    self._tenures[group_id, member_id] = self._steps
        if type(before) is not type(after) and before is not None and after is not None:
            self.reached.add("a group changed its protocol")
        self._count_cause(group_id, before, after, event)
        if isinstance(after, ClassicGroup):
            self.reached.add(f"a classic group was {after.state.name}")

    def _count_cause(
        self, group_id: str, before: Group | None, after: Group | None, event: GroupEvent
    ) -> None:
        """P5: rebalances and what may be the reason of one."""
        if before is None or after is None or type(before) is not type(after):
            return
        self.causes[f"{group_id} rebalances"] += generation_of(after) - generation_of(before)
        changes = len(before.members.keys() ^ after.members.keys())
        if changes or isinstance(event, (Join, Resolved, TopicsChanged)):
            self.causes[f"{group_id} causes"] += max(changes, 1)
        elif isinstance(event, ConsumerHeartbeat) and generation_of(after) > generation_of(before):
            self.causes[f"{group_id} causes"] += 1

    def _watch(
        self,
        event: GroupEvent,
        outcome: GroupOutcome,
        offsets: Mapping[Place, object],
        mutation: Mutation,
    ) -> None:
        if not isinstance(event, QUIET):
            self.written[event.group_id] += 1
        taken = outcome == GroupEventResult(ErrorCode.NONE)
        kind = type(event).__name__
        code = getattr(outcome, "code", ErrorCode.NONE)
        self.reached.add(f"{kind} was {'taken in' if not code else f'refused: {code.name}'}")
        if isinstance(event, Expire) and taken:
            for hear in self.on_expired:
                hear(event, mutation)
        if isinstance(event, ExpireOffsets) and len(self.offsets(event.group_id)) < len(offsets):
            self.violations.append(f"P6 offsets of {event.group_id} expired within minutes")
        if isinstance(event, CommitOffsets) and taken:
            for topic, partition, offset, *_ in event.offsets:
                known = offsets.get((topic, partition))
                if known is not None and getattr(known, "offset", 0) > offset:
                    self.reached.add("a committed offset went back")

    def _point(self, domain: int, data: bytes) -> None:
        """Rule 13: each checkpoint says what the log means at its position."""
        for kept in msgspec.msgpack.decode(data, type=CheckpointPointer).kept:
            if self._digests.get((domain, kept.position)) != kept.digest:
                self.violations.append(f"R13 the checkpoint at {kept.position} says something else")
        self.reached.add("the pointer moved")
