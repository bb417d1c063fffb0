"""The timers of groups that run on this broker, and deadlines as sessions have them, too. Pure.

A timer runs from the moment that this broker first saw it (K2), on every broker. The first in the
group's order of brokers acts when it runs out, the next one two seconds later, and so on: the group
gets on although brokers are gone, and usually hears of it once. Late ticks of our own are excused
once for each timer, and an outage restarts it once, as with sessions.

`Deadlines` are keys that fall due, the earliest first. A deadline is moved far more often than it
is reached: each heartbeat moves one. So moving it later changes a number and leaves the heap alone;
what the heap says too early is put right when it comes up.

`TickLateness` says how late our own ticks came, and how much of it a deadline is excused. After a
stall (a stopped process, a busy loop) deadlines are overdue although the heartbeats that came
meanwhile are only unread. So what runs out after late ticks is excused (rule 23): once, by what the
ticks were late in all, and by no more than a few seconds. A member that lives said something within
its session, so its word waits in our sockets and is read in that time. Without the limit a busy
machine would stretch every session for as long as it is busy, and nobody would notice who died.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from lakelog.groups.state import Timer

KeyT = TypeVar("KeyT", bound=Hashable)
SLACK: Final = 64
"""A heap with so many more entries than keys, and twice as many, is made anew."""


class Deadlines(Generic[KeyT]):
    """A time for each key."""

    def __init__(self) -> None:
        self._entries: dict[KeyT, list[float]] = {}
        """By key: when it is due, and the time at which the heap has it, which is not later."""
        self._heap: list[tuple[float, int, KeyT]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._entries)

    def due_s(self, key: KeyT) -> float | None:
        """When the key is due; None for one that is not here."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def set(self, key: KeyT, due_s: float) -> None:
        """Have the key fall due then, and not when it was to before."""
        entry = self._entries.get(key)
        if entry is not None and entry[1] <= due_s:
            entry[0] = due_s
            return
        self._entries[key] = [due_s, due_s]
        self._push(key, due_s)

    def drop(self, key: KeyT) -> None:
        """Forget the key."""
        self._entries.pop(key, None)
        if not self._entries:
            self._heap.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._heap.clear()

    def take_due(self, now_s: float) -> list[KeyT]:
        """Take out the keys that are due, in the order of their times."""
        taken: list[KeyT] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            at_s, _, key = heappop(heap)
            entry = self._entries.get(key)
            if entry is None or entry[1] != at_s:
                continue  # dropped, or in the heap once more at another time
            if entry[0] > at_s:  # it was moved, and comes up again in its place
                entry[1] = entry[0]
                self._push(key, entry[0])
            else:
                del self._entries[key]
                taken.append(key)
        return taken

    def _push(self, key: KeyT, at_s: float) -> None:
        self._pushed += 1  # so that keys at one time need no order of their own
        heappush(self._heap, (at_s, self._pushed, key))
        if len(self._heap) > 2 * len(self._entries) + SLACK:
            self._tidy()

    def _tidy(self) -> None:
        """Let go of what was dropped long before its time."""
        entries = self._entries
        for number, (key, entry) in enumerate(entries.items()):
            entry[1] = entry[0]
            self._heap[number] = (entry[0], number, key)
        del self._heap[len(entries) :]
        heapify(self._heap)


LATE_EXCUSED_S_MAX: Final = 5.0
"""By how much late ticks put off one deadline at most: to read what waits takes less."""


class TickLateness:
    """The delays of our own ticks, added up."""

    __slots__ = ("late_s",)

    def __init__(self) -> None:
        self.late_s = 0.0
        """How late all ticks so far came, together."""

    def ticked(self, *, expected_s: float, now_s: float) -> float:
        """A tick that was expected then comes now; returns how late it is."""
        late_s = max(0.0, now_s - expected_s)
        self.late_s += late_s
        return late_s

    def excused_s(self, *, since_late_s: float) -> float:
        """What a deadline is excused that was set when `late_s` was this."""
        return min(self.late_s - since_late_s, LATE_EXCUSED_S_MAX)


RANK_DELAY_S: Final = 2.0
"""How much longer each next broker waits for the one before it."""

_Name = tuple[str, int, str, int]
"""The group, and what makes a timer this one: its kind, subject and number."""


@dataclass(frozen=True, slots=True)
class DueTimer:
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

    def __init__(self, lateness: TickLateness) -> None:
        self._lateness = lateness
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
                running = _Running(timer, self._lateness.late_s)
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

    def take_due(self, now_s: float) -> list[DueTimer]:
        """The timers that ran out. Each runs once more, should nobody act on it."""
        found = []
        for name in self._deadlines.take_due(now_s):
            running = self._running[name[0]][name]
            excused_s = self._lateness.excused_s(since_late_s=running.since_late_s)
            if excused_s > 0 and not running.is_excused:
                running.is_excused = True
                self._deadlines.set(name, now_s + excused_s)
                continue
            duration_s = running.timer.duration_ms / 1000
            self._deadlines.set(name, now_s + max(duration_s, RANK_DELAY_S))
            found.append(DueTimer(name[0], running.timer))
        return found

    def hold_back(self, due: DueTimer, *, rank: int, now_s: float) -> bool:
        """Whether brokers before us are given time to act first; once for each run of a timer."""
        timer = due.timer
        name = (due.group_id, int(timer.kind), timer.subject, timer.number)
        running = self._running[due.group_id][name]
        if rank == 0 or running.is_delayed:
            running.is_delayed = False
            return False
        running.is_delayed = True
        self._deadlines.set(name, now_s + rank * RANK_DELAY_S)
        return True
