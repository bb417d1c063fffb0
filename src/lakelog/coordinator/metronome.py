"""A time that stands still while this process does. Pure.

After a stall (a stopped process, a busy loop) every deadline would be overdue although the
heartbeats that came meanwhile are only unread. So a tick that comes late moves all deadlines by its
delay (rule 23): they are kept on a time of their own from which the delays are taken away.
"""


class Metronome:
    """Own time: the monotonic clock without the delays of our own ticks."""

    def __init__(self) -> None:
        self._stalled_s = 0.0

    def time_s(self, now_s: float) -> float:
        """The own time at this reading of the monotonic clock."""
        return now_s - self._stalled_s

    def ticked(self, *, expected_s: float, now_s: float) -> float:
        """A tick that was expected then comes now; returns how late it is."""
        late_s = max(0.0, now_s - expected_s)
        self._stalled_s += late_s
        return late_s
