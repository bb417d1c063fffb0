"""Trying again: how long to wait before the next attempt, and until when there is one.

Rules:

- The wait doubles from attempt to attempt up to a maximum. Whoever retries alone waits exactly so
  long (`grown_s`).
- Where many lose the same server at one moment, a fifth of the wait is chance (`delay_s`), so that
  they do not return at one moment (KIP-580).
- A call is tried again until its deadline, which also counts the failures so far.
- Nobody here sleeps: a caller waits in its own way, on its loop, on its thread or for an event
  that comes before.
"""

from dataclasses import dataclass
from typing import Final

from lakelog.clock import Clock, Entropy

JITTER_PER_MILLE: Final = 200
DOUBLINGS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Backoff:
    """The waits of one kind of attempt, in milliseconds."""

    first_ms: float
    """After the first failure."""
    max_ms: float
    """No wait is longer, chance aside."""

    def grown_ms(self, failures: int) -> float:
        """Milliseconds to wait after so many failures in a row; none after none."""
        if failures <= 0:
            return 0
        return min(self.first_ms * (1 << min(failures - 1, DOUBLINGS_MAX)), self.max_ms)

    def grown_s(self, failures: int) -> float:
        """The same in seconds."""
        return self.grown_ms(failures) / 1000

    def delay_s(self, failures: int, entropy: Entropy) -> float:
        """Seconds to wait after so many failures in a row, with chance in them."""
        grown_ms = self.grown_ms(failures)
        if grown_ms <= 0:
            return 0.0
        per_mille = 1000 - JITTER_PER_MILLE + entropy.below(2 * JITTER_PER_MILLE + 1)
        return grown_ms * per_mille / 1_000_000


class RetryDeadline:
    """A moment until which something is tried, and how often it has failed so far.

    With `failures_max` nothing is tried more often than that, whatever time is left.
    """

    def __init__(self, clock: Clock, timeout_s: float, *, failures_max: int | None = None) -> None:
        self._clock = clock
        self._end_s = clock.monotonic_s() + timeout_s
        self._failures_max = failures_max
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

    def allows(self, delay_s: float) -> bool:
        """Whether there is another attempt after such a wait."""
        if self._failures_max is not None and self._failures >= self._failures_max:
            return False
        return delay_s < self.left_s()
