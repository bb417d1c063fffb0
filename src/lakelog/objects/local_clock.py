"""Whether this machine's clock may judge what is old, where the store has no clock of its own.

Rule 20 compares our clock with the object store's. A directory has none, so a clock that jumps a
month ahead for a moment would delete all that is younger than a month. What stands in for it is
how long the machine has been running, which no one can set, and a note in the directory: when a
reading was good, the time, the boot it belongs to, and how long the machine had been running.

- In the same boot the note says what time it is, also after a restart of the process and after a
  suspend. A clock that is further ahead than `jump_max_ms` is not believed until it is right
  again, or until an operator accepts it.
- After another boot nobody knows how long the machine was off, so a clock that moved ahead may be
  right. It is believed when it has stood for `SETTLE_S` of running: time for NTP to correct it.
- A clock that is behind deletes less than it might, which is harmless. It is not noted, so that
  its way back is no jump.
"""

import contextlib
import os
from dataclasses import dataclass
from typing import Final

import msgspec

from lakelog.clock import Clock, Uptime
from lakelog.objects.local_files import INCOMING

JUMP_MAX_MS: Final = 3_600_000
"""How far a clock may move without anybody asking: less than any retention that is worth it."""

SETTLE_S: Final = 600.0
"""How long a clock that is ahead after a boot must stand before it is believed."""

FILE: Final = "~clock"
"""The note's name: no key can have it, because of its first character."""


class TrustedTime(msgspec.Struct, frozen=True):
    """A reading of the clock that was believed."""

    format: int
    time_ms: int
    boot: str
    uptime_s: float


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Since when a clock is ahead of the note of another boot."""

    time_ms: int
    uptime_s: float


class LocalClock:
    """Judges this machine's clock by its uptime and a note in the directory; blocking."""

    def __init__(self, root: str, clock: Clock, uptime: Uptime, *, jump_max_ms: int) -> None:
        self._path = os.path.join(root, FILE)
        self._incoming = os.path.join(root, INCOMING)
        self._clock = clock
        self._uptime = uptime
        self._jump_max_ms = jump_max_ms
        self._ahead: _Ahead | None = None

    def skew_ms(self) -> int:
        """How far the right time is ahead of the clock, 0 when the clock is believed."""
        now = self._now()
        good = self._noted()
        if good is None:
            self._note(now)
            return 0
        ahead_ms = now.time_ms - expected_ms(good, now)
        if ahead_ms > self._jump_max_ms and not self._is_settled(good, now):
            return -ahead_ms
        if ahead_ms >= -self._jump_max_ms:
            self._note(now)
            self._ahead = None
        return 0

    def accept(self) -> None:
        """Believe the clock as it is now: an operator says that it is right."""
        self._note(self._now())

    def _is_settled(self, good: TrustedTime, now: TrustedTime) -> bool:
        """Whether the clock has been this far ahead since long after another boot."""
        if good.boot == now.boot:
            return False
        since = self._ahead
        ran_s = now.uptime_s - since.uptime_s if since else 0.0
        if since is None or abs(now.time_ms - since.time_ms - ran_s * 1000) > self._jump_max_ms:
            self._ahead = _Ahead(now.time_ms, now.uptime_s)
            return False
        return ran_s >= SETTLE_S

    def _now(self) -> TrustedTime:
        return TrustedTime(1, self._clock.now_ms(), self._uptime.boot(), self._uptime.uptime_s())

    def _noted(self) -> TrustedTime | None:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=TrustedTime)
        except (OSError, msgspec.MsgspecError):
            return None  # the first time, or damaged: there is nothing to compare with

    def _note(self, good: TrustedTime) -> None:
        """Write it so that nobody sees half of it, also after a power cut."""
        temporary = os.path.join(self._incoming, f"clock-{os.getpid()}-{good.uptime_s}")
        with contextlib.suppress(OSError):  # the note before still tells most of it
            with open(temporary, "xb") as file:
                file.write(msgspec.json.encode(good))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)


def expected_ms(good: TrustedTime, now: TrustedTime) -> int:
    """The time that it should be now, at least: after another boot no time may have passed."""
    ran_ms = int((now.uptime_s - good.uptime_s) * 1000) if good.boot == now.boot else 0
    return good.time_ms + ran_ms
