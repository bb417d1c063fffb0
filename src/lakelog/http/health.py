"""Whether a broker is fit to serve, and which part of it is not.

A part that fails is told at once, but the broker counts as not ready only when a part has failed
without a break for its patience: one slow put must not take a broker out of a load balancer. A
part with no patience (starting, draining) counts at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakelog.clock import Clock

Check: TypeAlias = Callable[[], str | None]
"""What is wrong with a part now, or None."""

PATIENCE_S: Final = 10.0
LOOK_S: Final = 1.0
"""Parts are looked at this often, however often somebody asks."""


@dataclass(slots=True)
class Part:
    """One thing a broker needs."""

    name: str
    check: Check
    patience_s: float
    reason: str | None = None
    failing_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class PartState:
    """How a part is."""

    ok: bool
    reason: str | None
    failing_s: float


class Health:
    """The parts of a broker and how long each has been failing."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parts: list[Part] = []

    def add(self, name: str, check: Check, *, patience_s: float = PATIENCE_S) -> None:
        """One part more."""
        self._parts.append(Part(name, check, patience_s))

    def look(self) -> None:
        """Ask every part how it is."""
        now_s = self._clock.monotonic_s()
        for part in self._parts:
            part.reason = part.check()
            if part.reason is None:
                part.failing_since_s = None
            elif part.failing_since_s is None:
                part.failing_since_s = now_s

    def states(self) -> dict[str, PartState]:
        """How every part is; parts without patience are asked again."""
        now_s = self._clock.monotonic_s()
        found = {}
        for part in self._parts:
            if not part.patience_s:
                part.reason = part.check()
                part.failing_since_s = now_s if part.reason is not None else None
            failing_s = 0.0 if part.failing_since_s is None else now_s - part.failing_since_s
            ok = part.failing_since_s is None or failing_s < part.patience_s
            found[part.name] = PartState(ok, part.reason, failing_s)
        return found

    async def watch(self) -> None:
        """Look again and again, for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
