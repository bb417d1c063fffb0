"""Sessions of the embedded metadata store, and the thread that keeps them alive.

Rules: whoever has a session renews it from the event loop; while the loop is held up by something
that computes, the writing thread renews it in its place, so that being busy costs nobody a session.
It does so for a limited time after the loop's last renewal: a loop that is dead for good must lose
its sessions, so that others take over. What has ended stays so, whoever asks.
"""

import math
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lakelog.clock import Clock
from lakelog.meta.sqlite_statements import EndSession, RenewSession
from lakelog.meta.sqlite_write import Outcome, Write
from lakelog.model.failures import Conflict, Failure

RENEW_SHARE: Final = 0.5
"""The thread renews when this share of the time to live is over: it is the second in line."""

RETRY_SHARE: Final = 0.125
"""… and tries again after this share of it when the file could not be written."""


class SqliteSession:
    """A session of a `SqliteMetadataStore`; times are the store's monotonic seconds."""

    def __init__(
        self,
        session: str,
        clock: Clock,
        write: Callable[[Write], Awaitable[object]],
        *,
        ttl_s: float,
        keep_s: float,
        began_s: float,
    ) -> None:
        self._id = session
        self._clock = clock
        self._write = write
        self._ttl_s = ttl_s
        self._keep_s = keep_s
        self._asked_s = began_s  # when the loop renewed it last
        self._renewed_s = began_s  # when that, or the thread, last succeeded
        self._tried_s = -math.inf  # when the thread tried last
        self._kept_alive_s = -math.inf
        self.over = False
        """Nobody renews it any more."""

    @property
    def id(self) -> str:
        """A name for this session, unique for ever."""
        return self._id

    @property
    def kept_alive_s(self) -> float:
        """When the store last renewed it by itself, on the monotonic clock; -inf for never."""
        return self._kept_alive_s

    async def renew(self) -> None:
        """Live for another time to live; `Conflict` when the session has ended already."""
        self._asked_s = self._clock.monotonic_s()
        renewal = self._renewal()
        await self._write(renewal)
        self._renewed_s = max(self._renewed_s, self._asked_s)

    async def close(self) -> None:
        """End the session and delete its keys."""
        self.over = True
        await self._write(EndSession(self._id))

    def due_s(self, now_s: float) -> float:
        """When the thread has to renew it; infinity while it need not or must not."""
        if self.over or now_s >= self._asked_s + self._keep_s:
            return math.inf
        renew_s = self._renewed_s + self._ttl_s * RENEW_SHARE
        return max(renew_s, self._tried_s + self._ttl_s * RETRY_SHARE)

    def keep_alive(self, commit: Callable[[Sequence[Write]], Sequence[Outcome]]) -> None:
        """Renew it in the loop's place; for the writing thread."""
        # Before the clock that the file has is read: what we are certain of ends first.
        self._tried_s = self._clock.monotonic_s()
        (outcome,) = commit([self._renewal()])
        if isinstance(outcome, Conflict):
            self.over = True  # the loop will hear of it when it asks
        elif not isinstance(outcome, Failure):
            self._renewed_s = self._kept_alive_s = self._tried_s

    def _renewal(self) -> RenewSession:
        return RenewSession(self._id, round(self._ttl_s * 1000), self._clock.now_ms())


class Wake:
    """A write that changes nothing: the writing thread looks at its sessions after it."""

    def run(self, connection: sqlite3.Connection) -> None:
        """Do nothing, within a transaction that is empty."""


class KeptSessions:
    """The sessions that the writing thread keeps alive; the loop adds them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: tuple[SqliteSession, ...] = ()

    def add(self, session: SqliteSession) -> None:
        """Keep this one, too; those that are over are forgotten."""
        self._sessions = (*(kept for kept in self._sessions if not kept.over), session)

    def pause_s(self) -> float | None:
        """How long the thread may wait before one is due; None: for ever."""
        now_s = self._clock.monotonic_s()
        due_s = min((session.due_s(now_s) for session in self._sessions), default=math.inf)
        return None if due_s == math.inf else max(due_s - now_s, 0.0)

    def keep_alive(self, commit: Callable[[Sequence[Write]], Sequence[Outcome]]) -> None:
        """Renew those that are due."""
        now_s = self._clock.monotonic_s()
        for session in self._sessions:
            if session.due_s(now_s) <= now_s:
                session.keep_alive(commit)
