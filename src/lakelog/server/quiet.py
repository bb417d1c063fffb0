"""Events that a client can cause at will, logged at a bounded rate."""

import logging
from typing import Final

from lakelog.clock import Clock
from lakelog.telemetry import event

WINDOW_S: Final = 10.0
EVENTS_PER_WINDOW: Final = 5


class QuietLog:
    """Says the first few events of each name in a window, and how many it left out before."""

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def say(self, name: str, /, level: int = logging.WARNING, **fields: object) -> bool:
        """Log the event unless there were too many of its name; tells whether it did."""
        now_s = self._clock.monotonic_s()
        began_s, count = self._windows.get(name, (now_s, 0))
        left_out = 0
        if now_s - began_s >= WINDOW_S:
            left_out = max(0, count - EVENTS_PER_WINDOW)
            began_s, count = now_s, 0
        self._windows[name] = (began_s, count + 1)
        if count >= EVENTS_PER_WINDOW:
            return False
        if left_out:
            fields["left_out"] = left_out
        event(self._log, name, level, **fields)
        return True
