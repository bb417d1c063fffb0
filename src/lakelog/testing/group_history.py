"""What members of groups heard, and what was true: the histories, and their checks.

A `GroupHistory` is written by the clients themselves, whichever they are. A `GroupLogView` is
written by whoever folds the domain log: who was a member of which generation from when to when,
what the leader of a generation said, and which value a committed offset had. Values are unique: the
metadata of a commit is a token that no other commit has.

Each check takes a history of what members heard and the log's view, and returns a list of
violations in words; an empty list is good. The letters are those of `docs/invariants.md`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lakelog.groups.state import ClassicGroup, ClassicState, CommittedOffset, Group
from lakelog.model.errors import ErrorCode

Place: TypeAlias = tuple[bytes, int]
"""A topic's id and a partition."""


@dataclass(frozen=True, slots=True)
class HeardGeneration:
    """A member was told its generation (JoinGroup), or its epoch (ConsumerGroupHeartbeat).

    `roster` are the members that a leader was told to assign to, None for everybody else.
    """

    client: str
    group: str
    member: str
    generation: int
    invoked_s: float
    returned_s: float
    roster: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class HeardAssignment:
    """A member of the classic protocol was given its assignment; `owner` survives its restarts."""

    client: str
    group: str
    member: str
    owner: str
    generation: int
    assignment: bytes
    places: frozenset[Place]
    invoked_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class HeardHeartbeat:
    """What a heartbeat of a member that said this generation (or epoch) was answered with."""

    client: str
    group: str
    member: str
    generation: int
    code: ErrorCode
    invoked_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class HeardCommit:
    """One offset that a member tried to commit; `code` is None where no answer came."""

    client: str
    group: str
    member: str
    generation: int
    place: Place
    token: str
    code: ErrorCode | None
    invoked_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class Read:
    """What an OffsetFetch showed; the token is None where nothing was committed."""

    client: str
    group: str
    place: Place
    token: str | None
    invoked_s: float
    returned_s: float


@dataclass(slots=True)
class GroupHistory:
    """Everything that members heard, in the order in which it returned."""

    told: list[HeardGeneration] = field(default_factory=list)
    given: list[HeardAssignment] = field(default_factory=list)
    beaten: list[HeardHeartbeat] = field(default_factory=list)
    committed: list[HeardCommit] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)


@dataclass(slots=True)
class MembershipSpan:
    """From when until when a member was in a generation of its group, or had an epoch."""

    generation: int
    start_s: float
    end_s: float = math.inf


@dataclass(frozen=True, slots=True)
class LeaderAssignment:
    """What the leader of a generation said, by member."""

    leader: str
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class GroupLogView:
    """The groups as the domain log has them, over time."""

    stays: dict[tuple[str, str], list[MembershipSpan]] = field(default_factory=dict)
    eras: dict[tuple[str, str], int] = field(default_factory=dict)
    """How often the group had changed its protocol when the member came: as in Kafka, a group of
    the other protocol counts its generations from the beginning."""
    changes: dict[str, int] = field(default_factory=dict)
    leaders: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    words: dict[tuple[str, int], LeaderAssignment] = field(default_factory=dict)
    values: dict[tuple[str, Place], list[tuple[str | None, float]]] = field(default_factory=dict)
    """The tokens that an offset had, each with the time since when; None for none."""

    def see_group(
        self, group_id: str, before: Group | None, after: Group | None, at_s: float
    ) -> None:
        """The group has become another value."""
        if type(before) is not type(after):
            self.changes[group_id] = self.changes.get(group_id, 0) + 1
        old, new = _generations(before), _generations(after)
        for member, generation in old.items():
            if new.get(member) != generation:
                self.stays[group_id, member][-1].end_s = at_s
        for member, generation in new.items():
            if old.get(member) != generation:
                self.stays.setdefault((group_id, member), []).append(
                    MembershipSpan(generation, at_s)
                )
                self.eras[group_id, member] = self.changes.get(group_id, 0)
        if not isinstance(after, ClassicGroup):
            return
        if after.leader is not None:
            self.leaders.setdefault((group_id, after.generation), set()).add(after.leader)
        if after.state is ClassicState.STABLE:
            said = {name: member.assignment for name, member in after.members.items()}
            word = self.words.get((group_id, after.generation))
            known = {} if word is None else word.assignments
            # Static members that come back go on with the word that their predecessor was given.
            self.words[group_id, after.generation] = LeaderAssignment(
                after.leader or "", {**said, **known}
            )

    def see_offsets(
        self,
        group_id: str,
        before: Mapping[Place, CommittedOffset],
        after: Mapping[Place, CommittedOffset],
        at_s: float,
    ) -> None:
        """The committed offsets of the group have become others."""
        for place in {**before, **after}:
            old, new = before.get(place), after.get(place)
            if old is not new:
                values = self.values.setdefault((group_id, place), [(None, 0.0)])
                values.append((None if new is None else new.metadata, at_s))


def _generations(group: Group | None) -> dict[str, int]:
    if group is None:
        return {}
    if isinstance(group, ClassicGroup):
        return dict.fromkeys(group.members, group.generation)
    return {name: member.epoch for name, member in group.members.items()}


STALE_S: Final = 3.0
"""How old the state may be that a broker answers heartbeats from (K6, rule 17)."""

DEFINITE: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Codes of commits that certainly had no effect."""


def check_group_history(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """P1, P3 and P6 of what members heard, against what the log says."""
    return [
        *check_single_owner(history.given, log_view),
        *check_words(history, log_view),
        *check_told(history, log_view),
        *check_alive(history, log_view),
        *check_commits(history, log_view),
        *check_reads(history, log_view),
    ]


def check_single_owner(given: Iterable[HeardAssignment], log_view: GroupLogView) -> list[str]:
    """P1: in one generation nobody was given what somebody else was given."""
    owners: dict[tuple[str, int, int, Place], set[str]] = defaultdict(set)
    for one in given:
        era = log_view.eras.get((one.group, one.member), 0)
        for place in one.places:
            owners[one.group, era, one.generation, place].add(one.owner)
    return [
        f"P1 {group} generation {generation}: {place} was given to {sorted(names)}"
        for (group, _, generation, place), names in sorted(owners.items())
        if len(names) > 1
    ]


def check_words(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """P1: a member is given what the leader of that generation said, and only a leader leads."""
    bad = []
    for one in history.given:
        word = log_view.words.get((one.group, one.generation))
        if word is None or word.assignments.get(one.member) != one.assignment:
            bad.append(f"P1 {one.client} was given {one.assignment!r} in {one.generation}: {word}")
    for told in history.told:
        leaders = log_view.leaders.get((told.group, told.generation), set())
        if told.roster is not None and told.member not in leaders:
            bad.append(f"P1 {told.member} leads {told.group} {told.generation}, not {leaders}")
    return bad


def check_told(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """P4: a member that is told a generation or epoch was in it while it asked."""
    return [
        f"P4 {one.client} was told {one.group} {one.generation} at {one.returned_s:.3f}"
        for one in history.told
        if not _was_in(
            log_view, one.group, one.member, one.generation, one.invoked_s, one.returned_s
        )
    ]


def check_alive(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """K6: good news is at most a session of a broker old, and bad news is true."""
    bad = []
    for one in history.beaten:
        where = f"{one.client} as {one.member} in {one.group} {one.generation}"
        when = f"asked at {one.invoked_s:.3f}, answered at {one.returned_s:.3f}"
        start_s, end_s = one.invoked_s, one.returned_s
        stays = log_view.stays.get((one.group, one.member), [])
        if one.code in {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}:
            start_s -= STALE_S
            if not _was_in(log_view, one.group, one.member, one.generation, start_s, end_s):
                bad.append(f"K6 {where} heard {one.code.name} too long after: {when}")
        elif one.code is ErrorCode.UNKNOWN_MEMBER_ID:
            if any(stay.start_s < start_s and stay.end_s > end_s for stay in stays):
                bad.append(f"K6 {where} is said to be unknown: {when}")
        elif one.code is ErrorCode.ILLEGAL_GENERATION and any(
            stay.start_s < start_s and stay.end_s > end_s and stay.generation == one.generation
            for stay in stays
        ):
            bad.append(f"K6 {where} is said to be of another generation: {when}")
    return bad


def _was_in(
    log_view: GroupLogView, group: str, member: str, generation: int, start_s: float, end_s: float
) -> bool:
    def overlaps(stay: MembershipSpan) -> bool:
        return stay.start_s <= end_s and stay.end_s >= start_s

    return any(
        stay.generation == generation and overlaps(stay)
        for stay in log_view.stays.get((group, member), [])
    )


def check_commits(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """P3: what was acknowledged took effect while it was asked for, what was refused never."""
    bad = []
    for one in history.committed:
        values = log_view.values.get((one.group, one.place), [])
        at_s = [at_s for token, at_s in values if token == one.token]
        where = f"{one.client}: {one.token} of {one.group} {one.place}"
        if one.code is ErrorCode.NONE:
            if not any(one.invoked_s <= when_s <= one.returned_s for when_s in at_s):
                bad.append(f"P3 {where} was acknowledged and is not there")
        elif one.code in DEFINITE and at_s:
            bad.append(f"P3 {where} was refused with {one.code.name} and is there")
        if len(at_s) > 1:
            bad.append(f"P3 {where} took effect {len(at_s)} times")
    return bad


def check_reads(history: GroupHistory, log_view: GroupLogView) -> list[str]:
    """P3, P6: a read shows a value that the offset had between question and answer."""
    bad = []
    for one in history.read:
        values = log_view.values.get((one.group, one.place), [(None, 0.0)])
        ends = [*(at_s for _, at_s in values[1:]), float("inf")]
        seen = [
            token
            for (token, start_s), end_s in zip(values, ends, strict=True)
            if start_s <= one.returned_s and end_s >= one.invoked_s
        ]
        if one.token not in seen:
            when = f"{one.invoked_s:.3f} to {one.returned_s:.3f}"
            bad.append(
                f"P3 {one.client} read {one.token} of {one.group} {one.place}, not {seen}: {when}"
            )
    return bad
