"""What members of groups heard, and what was true: for `lakelog.testing.group_invariants`.

A `GroupHistory` is written by the clients themselves, whichever they are. A `GroupTruth` is written
by whoever folds the domain log: who was a member of which generation from when to when, what the
leader of a generation said, and which value a committed offset had. Values are unique: the metadata
of a commit is a token that no other commit has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lakelog.groups.state import ClassicGroup, ClassicState, CommittedOffset, Group
from lakelog.model.errors import ErrorCode

Place: TypeAlias = tuple[bytes, int]
"""A topic's id and a partition."""


@dataclass(frozen=True, slots=True)
class Told:
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
class Given:
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
class Beaten:
    """What a heartbeat of a member that said this generation (or epoch) was answered with."""

    client: str
    group: str
    member: str
    generation: int
    code: ErrorCode
    invoked_s: float
    returned_s: float


@dataclass(frozen=True, slots=True)
class Committed:
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

    told: list[Told] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)
    beaten: list[Beaten] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)


@dataclass(slots=True)
class Stay:
    """From when until when a member was in a generation of its group, or had an epoch."""

    generation: int
    start_s: float
    end_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Word:
    """What the leader of a generation said, by member."""

    leader: str
    assignments: Mapping[str, bytes]


@dataclass(slots=True)
class GroupTruth:
    """What the log says."""

    stays: dict[tuple[str, str], list[Stay]] = field(default_factory=dict)
    eras: dict[tuple[str, str], int] = field(default_factory=dict)
    """How often the group had changed its protocol when the member came: as in Kafka, a group of
    the other protocol counts its generations from the beginning."""
    changes: dict[str, int] = field(default_factory=dict)
    leaders: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    words: dict[tuple[str, int], Word] = field(default_factory=dict)
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
                self.stays.setdefault((group_id, member), []).append(Stay(generation, at_s))
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
            self.words[group_id, after.generation] = Word(after.leader or "", {**said, **known})

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
