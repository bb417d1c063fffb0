"""The time limit of one call, and how often it has failed so far."""

from lakelog.clock import Clock


class Deadline:
    """A moment until which something is tried."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._end_s = clock.monotonic_s() + timeout_s
        self._failures = 0

    def left_s(self) -> float:
        """Seconds until then; never less than 0."""
        return max(0.0, self._end_s - self._clock.monotonic_s())

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.left_s() <= 0

    def failed(self) -> int:
        """Count one failure more; returns how many there are."""
        self._failures += 1
        return self._failures
