"""Which members are watched, and whose session has run out. Pure.

A session runs from the member's last sign of life. What runs out after late ticks of our own is
excused once, and an outage restarts it once; both are to be had again only after another sign of
life, so a member that is gone is noticed however busy we are (rule 23). Running out is a suspicion,
not a verdict: whoever takes the suspects looks again before it says so (`is_silent`), because time
passes in between.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lakelog.coordinator.timers import Deadlines, TickLateness

MemberKey = tuple[str, str]
"""A group's id and a member's."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A member that was silent for its session; it is watched on, from `until_s` back."""

    key: MemberKey
    holder_epoch: int
    until_s: float


@dataclass(slots=True)
class _Watched:
    timeout_s: float
    holder_epoch: int
    since_late_s: float
    """How late ticks were in all at the last sign of life."""
    is_excused: bool = False
    is_restarted: bool = False

    def heard(self, late_s: float) -> None:
        self.since_late_s = late_s
        self.is_excused = self.is_restarted = False


class Sessions:
    """The sessions of the members that one broker watches, on its monotonic clock."""

    def __init__(self, lateness: TickLateness) -> None:
        self._lateness = lateness
        self._watched: dict[MemberKey, _Watched] = {}
        self._deadlines: Deadlines[MemberKey] = Deadlines()

    def __len__(self) -> int:
        return len(self._watched)

    def __contains__(self, key: MemberKey) -> bool:
        return key in self._watched

    def begin(self, key: MemberKey, *, timeout_s: float, holder_epoch: int, now_s: float) -> None:
        """Watch the member from now on, or start its session anew."""
        self._watched[key] = _Watched(timeout_s, holder_epoch, self._lateness.late_s)
        self._deadlines.set(key, now_s + timeout_s)

    def renew(self, key: MemberKey, now_s: float) -> None:
        """The member said something; one that others watch is none of our business."""
        watched = self._watched.get(key)
        if watched is not None:
            watched.heard(self._lateness.late_s)
            self._deadlines.set(key, now_s + watched.timeout_s)

    def end(self, key: MemberKey) -> None:
        """Watch the member no longer."""
        if self._watched.pop(key, None) is not None:
            self._deadlines.drop(key)

    def restart(self, now_s: float) -> None:
        """Every session begins anew, in full, unless it did so since its member was heard of."""
        for key, watched in self._watched.items():
            if not watched.is_restarted:
                watched.heard(self._lateness.late_s)
                watched.is_restarted = True
                self._deadlines.set(key, now_s + watched.timeout_s)

    def suspects(self, now_s: float) -> list[Suspect]:
        """The members whose sessions ran out; each gets another one, should nobody act on it."""
        found = []
        for key in self._deadlines.take_due(now_s):
            watched = self._watched[key]
            excused_s = self._lateness.excused_s(since_late_s=watched.since_late_s)
            if excused_s > 0 and not watched.is_excused:
                watched.is_excused = True
                self._deadlines.set(key, now_s + excused_s)
                continue
            until_s = now_s + watched.timeout_s
            self._deadlines.set(key, until_s)
            found.append(Suspect(key, watched.holder_epoch, until_s))
        return found

    def suspect_again(self, suspects: Iterable[Suspect], now_s: float) -> None:
        """Nobody could look whether these are gone: they run out again at once, if still silent."""
        for suspect in suspects:
            if self.is_silent(suspect):
                self._deadlines.set(suspect.key, now_s)

    def is_silent(self, suspect: Suspect) -> bool:
        """Whether nothing was heard of the suspect since, and we still watch it."""
        watched = self._watched.get(suspect.key)
        if watched is None or watched.holder_epoch != suspect.holder_epoch:
            return False
        return self._deadlines.due_s(suspect.key) == suspect.until_s
