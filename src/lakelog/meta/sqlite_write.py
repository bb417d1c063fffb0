"""Groups of writes to the metadata file, one transaction each, and what their errors mean.

Rules: `Unavailable` is said only where certainly nothing was written (the lock was not had, the
transaction was rolled back); an error while committing is `OutcomeUnknown` (A8). After a failed
write or sync of the file nobody knows what the disk holds, so the store is broken for good. So it
is when the file was removed or replaced: SQLite goes on writing to what has no name any more, and
nobody would ever find it. That is looked at after each commit, before anybody hears of it.
"""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar, cast

from lakelog.meta.sqlite_file import OpenedFile, primary_code
from lakelog.meta.sqlite_statements import Append
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown, Unavailable

PAUSE_FIRST_S: Final = 0.0002
PAUSE_MAX_S: Final = 0.001
"""Pauses between tries for the write lock. SQLite's own grow to 100 ms, but a commit takes 0.2 ms:
with long pauses one of two busy writers starves (75 ms seen, 20 ms with these)."""


class Write(Protocol):
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


class Writer:
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

    def commit(self, writes: Sequence[Write]) -> list[Outcome]:
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

    def _commit(self, writes: Sequence[Write]) -> list[Outcome]:
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
        paused_s, pause_s = 0.0, PAUSE_FIRST_S
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
            self._pause.wait(pause_s)
            paused_s += pause_s
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _commit_group(self, writes: Sequence[Write]) -> list[Outcome]:
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

    def _run(self, write: Write) -> Outcome:
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
