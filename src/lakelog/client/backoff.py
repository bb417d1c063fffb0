"""How long to wait before the next attempt. Pure: chance is an argument.

The delay doubles from attempt to attempt up to a maximum; a fifth of it is chance, so that clients
that lost their broker at one moment do not return at one moment (KIP-580).
"""

from dataclasses import dataclass
from typing import Final

from lakelog.clock import Entropy

JITTER_PER_MILLE: Final = 200
DOUBLINGS_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays of one kind of attempt."""

    first_ms: int
    max_ms: int

    def delay_s(self, failures: int, entropy: Entropy) -> float:
        """Seconds to wait after so many failures in a row; none after none."""
        if failures <= 0 or self.first_ms <= 0:
            return 0.0
        grown_ms = min(self.first_ms << min(failures - 1, DOUBLINGS_MAX), self.max_ms)
        per_mille = 1000 - JITTER_PER_MILLE + entropy.below(2 * JITTER_PER_MILLE + 1)
        return grown_ms * per_mille / 1_000_000
