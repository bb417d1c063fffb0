"""Noticing what other processes append, by asking the file whether it changed.

SQLite has no notices between processes; `PRAGMA data_version` tells in microseconds whether any
other connection committed. Rules: nobody asks unless somebody waits; the pace follows what can be
expected: fast while others append, slower while they live but rest, slowest when alone, so that an
idle broker costs next to nothing.
"""

import sqlite3
from typing import Final

from lakelog.clock import Clock
from lakelog.meta.sqlite_statements import heads, living_sessions

FAST_S: Final = 0.002
REST_S: Final = 0.025
ALONE_S: Final = 0.1
"""Pauses between two looks: others append, others live, nobody else is there.

A look costs 3 µs, but waking a thread that slept costs about 0.1 ms of CPU: it is the number of
looks that an idle broker pays for (measured: 2 %, 0.6 %, 0.2 % of a core).
"""

FAST_FOR_S: Final = 10.0
"""How long after the last foreign append the next one is expected at once."""

SESSIONS_EVERY_S: Final = 2.0
"""How often it is asked who lives, because a session ends without a write."""

WATCH_FOR_S: Final = 5.0
"""How long the watch goes on after the last waiter left: the next one is rarely far."""


class Watch:
    """What one reading connection knows of the file's changes; lives on the reader's thread."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._data_version = 0
        self._changed()
        self._heads = heads(connection)
        self._others = False
        self._fast_until_s = 0.0
        self._sessions_at_s = 0.0
        self._wanted_until_s = 0.0
        self.asleep = False
        """The thread waits for a job and will not look by itself: send it one."""
        self.own_heads: dict[str, int] = {}
        self.own_sessions: set[str] = set()
        """What this process appended and began itself; set elsewhere."""

    def want(self, timeout_s: float) -> None:
        """Somebody waits for that long; callable from any thread."""
        until_s = self._clock.monotonic_s() + timeout_s + WATCH_FOR_S
        self._wanted_until_s = max(self._wanted_until_s, until_s)

    def pause_s(self) -> float | None:
        """How long to wait before the next look; None when nobody waits."""
        now_s = self._clock.monotonic_s()
        self.asleep = now_s >= self._wanted_until_s
        if self.asleep:
            # Asked again after saying so: a waiter that came meanwhile has not been told.
            if self._clock.monotonic_s() >= self._wanted_until_s:
                return None
            self.asleep = False
        if now_s < self._fast_until_s:
            return FAST_S
        return REST_S if self._others else ALONE_S

    def look(self) -> dict[str, int]:
        """The logs that grew since the last look, with their newest positions."""
        now_s = self._clock.monotonic_s()
        changed = self._changed()
        if changed or now_s >= self._sessions_at_s:
            living = living_sessions(self._connection, self._clock.now_ms())
            self._others = any(session not in self.own_sessions for session in living)
            self._sessions_at_s = now_s + SESSIONS_EVERY_S
        if not changed:
            return {}
        known, self._heads = self._heads, heads(self._connection)
        grown = {log: head for log, head in self._heads.items() if head > known.get(log, 0)}
        if any(head > self.own_heads.get(log, 0) for log, head in grown.items()):
            self._fast_until_s = now_s + FAST_FOR_S
        return grown

    def _changed(self) -> bool:
        before = self._data_version
        self._data_version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        return before != self._data_version
