"""How late our own ticks came, and how much of it a deadline is excused. Pure.

After a stall (a stopped process, a busy loop) deadlines are overdue although the heartbeats that
came meanwhile are only unread. So what runs out after late ticks is excused (rule 23): once, by
what the ticks were late in all, and by no more than a few seconds. A member that lives said
something within its session, so its word waits in our sockets and is read in that time. Without the
limit a busy machine would stretch every session for as long as it is busy, and nobody would notice
who died.
"""

from typing import Final

LATE_EXCUSED_S_MAX: Final = 5.0
"""By how much late ticks put off one deadline at most: to read what waits takes less."""


class Metronome:
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
