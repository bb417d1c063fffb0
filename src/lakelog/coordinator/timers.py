"""The timers of groups that run on this broker. Pure.

A timer runs from the moment that this broker first saw it (K2), on every broker. The first in the
group's order of brokers acts when it runs out, the next one two seconds later, and so on: the group
gets on although brokers are gone, and usually hears of it once. Late ticks of our own are excused
once for each timer, and an outage restarts it once, as with sessions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lakelog.coordinator.deadlines import Deadlines
from lakelog.coordinator.metronome import Metronome
from lakelog.groups.state import Timer

RANK_DELAY_S: Final = 2.0
"""How much longer each next broker waits for the one before it."""

_Name = tuple[str, int, str, int]
"""The group, and what makes a timer this one: its kind, subject and number."""


@dataclass(frozen=True, slots=True)
class RanOut:
    """A timer of a group that ran out."""

    group_id: str
    timer: Timer


@dataclass(slots=True)
class _Running:
    timer: Timer
    since_late_s: float
    is_delayed: bool = False
    is_excused: bool = False
    is_restarted: bool = False


class Timers:
    """All timers of one domain's groups, on this broker's monotonic clock."""

    def __init__(self, metronome: Metronome) -> None:
        self._metronome = metronome
        self._running: dict[str, dict[_Name, _Running]] = {}
        self._deadlines: Deadlines[_Name] = Deadlines()

    def __len__(self) -> int:
        return len(self._deadlines)

    def see(self, group_id: str, timers: Iterable[Timer], now_s: float) -> None:
        """The group has these timers now: new ones start, those it no longer has end."""
        before = self._running.pop(group_id, {})
        after: dict[_Name, _Running] = {}
        for timer in timers:
            name = (group_id, int(timer.kind), timer.subject, timer.number)
            running = before.pop(name, None)
            if running is None or running.timer != timer:
                running = _Running(timer, self._metronome.late_s)
                self._deadlines.set(name, now_s + timer.duration_ms / 1000)
            after[name] = running
        for name in before:
            self._deadlines.drop(name)
        if after:
            self._running[group_id] = after

    def restart(self, now_s: float) -> None:
        """Every timer begins anew, in full, unless it did so before."""
        for timers in self._running.values():
            for name, running in timers.items():
                if not running.is_restarted:
                    running.is_restarted = True
                    running.is_delayed = False
                    self._deadlines.set(name, now_s + running.timer.duration_ms / 1000)

    def ran_out(self, now_s: float) -> list[RanOut]:
        """The timers that ran out. Each runs once more, should nobody act on it."""
        found = []
        for name in self._deadlines.take_due(now_s):
            running = self._running[name[0]][name]
            excused_s = self._metronome.excused_s(since_late_s=running.since_late_s)
            if excused_s > 0 and not running.is_excused:
                running.is_excused = True
                self._deadlines.set(name, now_s + excused_s)
                continue
            duration_s = running.timer.duration_ms / 1000
            self._deadlines.set(name, now_s + max(duration_s, RANK_DELAY_S))
            found.append(RanOut(name[0], running.timer))
        return found

    def hold_back(self, ran_out: RanOut, *, rank: int, now_s: float) -> bool:
        """Whether brokers before us are given time to act first; once for each run of a timer."""
        timer = ran_out.timer
        name = (ran_out.group_id, int(timer.kind), timer.subject, timer.number)
        running = self._running[ran_out.group_id][name]
        if rank == 0 or running.is_delayed:
            running.is_delayed = False
            return False
        running.is_delayed = True
        self._deadlines.set(name, now_s + rank * RANK_DELAY_S)
        return True
