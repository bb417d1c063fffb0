"""Groups of writes to the metadata file, one transaction each, and the sessions that they renew.

Rules: `Unavailable` is said only where certainly nothing was written (the lock was not had, the
transaction was rolled back); an error while committing is `OutcomeUnknown` (A8). After a failed
write or sync of the file nobody knows what the disk holds, so the store is broken for good. So it
is when the file was removed or replaced: SQLite goes on writing to what has no name any more, and
nobody would ever find it. That is looked at after each commit, before anybody hears of it.

Rules of sessions: whoever has a session renews it from the event loop; while the loop is held up by
something that computes, the writing thread renews it in its place, so that being busy costs nobody
a session. It does so for a limited time after the loop's last renewal: a loop that is dead for good
must lose its sessions, so that others take over. What has ended stays so, whoever asks.
"""

import math
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from lakelog.clock import Clock
from lakelog.meta.sqlite_file import OpenedFile, primary_code
from lakelog.meta.sqlite_statements import Append, EndSession, RenewSession
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown, Unavailable
from lakelog.retry import Backoff

LOCKED: Final = Backoff(0.2, 1.0)
"""Pauses between tries for the write lock. SQLite's own grow to 100 ms, but a commit takes 0.2 ms:
with long pauses one of two busy writers starves (75 ms seen, 20 ms with these)."""


class SqliteWrite(Protocol):
    """A change of the file that raises `Conflict` before it changes anything."""

    def run(self, connection: sqlite3.Connection) -> object:
        """Make the change within a transaction and return its result."""


ResultT = TypeVar("ResultT")

Outcome: TypeAlias = object | Failure
"""A write's result, or the failure to raise where it is awaited."""

_BROKEN_CODES: Final = frozenset(
    (
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_READONLY_DBMOVED,
    )
)


class FileWriter:
    """The one connection of this process that writes."""

    def __init__(
        self, connection: sqlite3.Connection, files: Sequence[OpenedFile] = (), *, busy_s: float
    ) -> None:
        self._connection = connection
        self._files = files
        self._busy_s = busy_s
        self._pause = threading.Event()
        self.broken: Unavailable | None = None
        """Why nothing will ever be written again through this object."""

    def commit(self, writes: Sequence[SqliteWrite]) -> list[Outcome]:
        """Make all writes durable together; each has its own outcome."""
        if self.broken is not None:
            return [self.broken] * len(writes)
        outcomes = self._commit(writes)
        # A11: the three names cost 9 µs, a commit 200 µs and more (measured on a busy machine).
        lost = next((file.path for file in self._files if not file.is_in_place()), None)
        if lost is None:
            return outcomes
        self.broken = Unavailable(
            f"{lost} was removed or replaced while it was in use: stop all brokers that use it and"
            " put it back from a backup; nothing that was written since has been acknowledged"
        )
        unknown = OutcomeUnknown(str(self.broken))
        return [outcome if isinstance(outcome, Failure) else unknown for outcome in outcomes]

    def _commit(self, writes: Sequence[SqliteWrite]) -> list[Outcome]:
        if len(writes) == 1 and isinstance(writes[0], Append):
            alone = self._append_alone(writes[0])
            if alone is not None:
                return [alone]
        return self._commit_group(writes)

    def _append_alone(self, append: Append) -> Outcome | None:
        # One statement instead of four: each costs a fight for the interpreter lock.
        try:
            return self._locked(lambda: append.run_alone(self._connection))
        except sqlite3.Error as error:
            return self._failed(error, committing=True)

    def _locked(self, statement: Callable[[], ResultT]) -> ResultT | Unavailable:
        paused_s, failures = 0.0, 0
        while True:
            try:
                return statement()
            except sqlite3.Error as error:
                # In WAL mode a statement that is refused the lock has not begun (A8).
                if primary_code(error) != sqlite3.SQLITE_BUSY:
                    raise
            if paused_s >= self._busy_s:
                return Unavailable(
                    f"the metadata store was locked by another process for {self._busy_s:g} s"
                )
            failures += 1
            pause_s = LOCKED.grown_s(failures)
            self._pause.wait(pause_s)
            paused_s += pause_s

    def _commit_group(self, writes: Sequence[SqliteWrite]) -> list[Outcome]:
        failure = self._begin()
        if failure is not None:
            return [failure] * len(writes)
        committing = False
        try:
            outcomes = [self._run(write) for write in writes]
            committing = True
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            return [self._failed(error, committing=committing)] * len(writes)
        except BaseException:
            self._roll_back()
            raise
        return outcomes

    def _run(self, write: SqliteWrite) -> Outcome:
        try:
            return write.run(self._connection)
        except Conflict as conflict:
            return conflict

    def _begin(self) -> Failure | None:
        try:
            begun = self._locked(lambda: self._connection.execute("BEGIN IMMEDIATE"))
        except sqlite3.Error as error:
            return self._failed(error, committing=False)
        return begun if isinstance(begun, Unavailable) else None

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                # The connection is stuck in a transaction that can neither end nor go on.
                self._break(error)

    def _failed(self, error: sqlite3.Error, *, committing: bool) -> Failure:
        code = primary_code(error)
        extended = getattr(error, "sqlite_errorcode", 0)
        if extended in _BROKEN_CODES or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self._break(error)
        if code == sqlite3.SQLITE_FULL:
            # The frames of a commit are either all in the WAL or void, also when this ended them.
            return Unavailable("the metadata store's disk is full: free some space")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return Unavailable(f"the metadata store cannot be written: {error}")
        if committing:
            return OutcomeUnknown(f"the metadata store failed while it committed: {error}")
        return Unavailable(f"the metadata store failed: {error}")

    def _break(self, error: sqlite3.Error) -> None:
        if self.broken is None:
            self.broken = Unavailable(
                f"the metadata store is broken ({error}): stop this process, look at the disk"
            )

    def checkpoint(self) -> int:
        """Copy what the WAL holds to the main file and return how many frames were left over."""
        return checkpoint(self._connection)

    def close(self) -> None:
        """Close the connection; the last one of all processes tidies the WAL away."""
        self._connection.close()


def checkpoint(connection: sqlite3.Connection) -> int:
    """Copy frames of the WAL that no reader needs to the main file; the rest is returned."""
    try:
        row = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.Error:
        # Only tidying: the WAL stays longer, and a commit will say what is wrong with the disk.
        return 0
    _, frames, copied = cast("tuple[int, int, int]", row)
    return max(frames - copied, 0)


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
        write: Callable[[SqliteWrite], Awaitable[object]],
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

    def keep_alive(self, commit: Callable[[Sequence[SqliteWrite]], Sequence[Outcome]]) -> None:
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


class RenewedSessions:
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

    def keep_alive(self, commit: Callable[[Sequence[SqliteWrite]], Sequence[Outcome]]) -> None:
        """Renew those that are due."""
        now_s = self._clock.monotonic_s()
        for session in self._sessions:
            if session.due_s(now_s) <= now_s:
                session.keep_alive(commit)
