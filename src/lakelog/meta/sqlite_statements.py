"""What is read from and written to the metadata file, as functions of a connection.

Rules: a write checks first and changes afterwards, so that a `Conflict` leaves nothing behind and
the rest of its transaction goes on; reads are single statements, so that each is one moment and
none keeps a snapshot open (an open one pins the WAL file).
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from lakelog.meta.port import PAGE_BYTES_MAX, PAGE_RECORDS_MAX, KeyValue, LogPage
from lakelog.meta.sqlite_file import POSITION_MASK
from lakelog.model.failures import Conflict

TRIM_RECORDS: Final = 256
"""A trim deletes this many records in one transaction, so that appends do not wait for it."""

# A record's id is its log's number in the high bits and its position in the low 44 (POSITION_BITS).
_APPEND: Final = (
    "INSERT INTO records (id, record) SELECT (number << 44) + head + 1, ? FROM logs WHERE name = ?"
)
_READ: Final = (
    "SELECT logs.head, records.id, records.record FROM logs LEFT JOIN records"
    " ON records.id > (logs.number << 44) + ? AND records.id < (logs.number + 1) << 44"
    " WHERE logs.name = ? ORDER BY records.id LIMIT ?"
)
_VISIBLE: Final = "(keys.session IS NULL OR sessions.expires_ms > ?)"
_SELECT_KEYS: Final = (
    "SELECT key, value, version FROM keys LEFT JOIN sessions ON sessions.id = keys.session WHERE "
)
_TRIM: Final = (
    "DELETE FROM records WHERE id IN (SELECT records.id FROM logs JOIN records"
    " ON records.id > logs.number << 44"
    " AND records.id < (logs.number << 44) + min(?, logs.head)"
    " WHERE logs.name = ? ORDER BY records.id LIMIT ?)"
)


@dataclass(frozen=True, slots=True)
class Append:
    """Add a record to a log; its result is the position."""

    log: str
    record: bytes

    def run_alone(self, connection: sqlite3.Connection) -> int | None:
        """The whole append as one statement that commits itself; None when the log is new."""
        cursor = connection.execute(_APPEND, (self.record, self.log))
        if cursor.rowcount != 1:
            return None
        assert cursor.lastrowid is not None, "an insert of one row has a row id"
        return cursor.lastrowid & POSITION_MASK

    def run(self, connection: sqlite3.Connection) -> int:
        """Append within a transaction."""
        position = self.run_alone(connection)
        if position is None:
            connection.execute("INSERT INTO logs (name, head) VALUES (?, 0)", (self.log,))
            position = self.run_alone(connection)
        assert position is not None, "the log was just made"
        return position


@dataclass(frozen=True, slots=True)
class TrimLog:
    """Forget some of the records below a position; its result is False when all are gone."""

    log: str
    before: int

    def run(self, connection: sqlite3.Connection) -> bool:
        """Delete a slice, the oldest first; the newest record of the log always stays."""
        return (
            connection.execute(_TRIM, (self.before, self.log, TRIM_RECORDS)).rowcount
            == TRIM_RECORDS
        )


@dataclass(frozen=True, slots=True)
class Put:
    """Set or delete a key; its result is the new version, 0 for a deleted key."""

    key: str
    value: bytes | None
    expect: int | None
    session: str | None
    now_ms: int

    def run(self, connection: sqlite3.Connection) -> int:
        """Check the version and the session, then change the key."""
        version = self._version(connection)
        if self.expect is not None and version != self.expect:
            raise Conflict(f"{self.key} has version {version}, not {self.expect}")
        if self.session is not None and not _lives(connection, self.session, self.now_ms):
            raise Conflict(f"session {self.session} has ended")
        if self.value is None:
            connection.execute("DELETE FROM keys WHERE key = ?", (self.key,))
            return 0
        version = next_number(connection)
        connection.execute(
            "INSERT OR REPLACE INTO keys (key, value, version, session) VALUES (?, ?, ?, ?)",
            (self.key, self.value, version, self.session),
        )
        return version

    def _version(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(
            "SELECT keys.version, keys.session, sessions.expires_ms FROM keys"
            " LEFT JOIN sessions ON sessions.id = keys.session WHERE key = ?",
            (self.key,),
        ).fetchone()
        if row is None:
            return 0
        version, session, expires_ms = row
        if session is None or (expires_ms is not None and expires_ms > self.now_ms):
            return int(version)
        # A decision rests on this session being over: make it so, whatever the clock does next.
        end_session(connection, session)
        return 0


@dataclass(frozen=True, slots=True)
class BeginSession:
    """Begin a session; its result is the session's name."""

    ttl_ms: int
    now_ms: int

    def run(self, connection: sqlite3.Connection) -> str:
        """Clear away the sessions that ran out and add one."""
        over = connection.execute("SELECT id FROM sessions WHERE expires_ms <= ?", (self.now_ms,))
        for (session,) in over.fetchall():
            end_session(connection, session)
        name = f"session-{next_number(connection)}"
        connection.execute(
            "INSERT INTO sessions (id, expires_ms) VALUES (?, ?)", (name, self.now_ms + self.ttl_ms)
        )
        return name


@dataclass(frozen=True, slots=True)
class RenewSession:
    """Let a session live on; `Conflict` when it has ended."""

    session: str
    ttl_ms: int
    now_ms: int

    def run(self, connection: sqlite3.Connection) -> None:
        """Move the session's end, if it lives."""
        changed = connection.execute(
            "UPDATE sessions SET expires_ms = ? WHERE id = ? AND expires_ms > ?",
            (self.now_ms + self.ttl_ms, self.session, self.now_ms),
        ).rowcount
        if changed != 1:
            raise Conflict(f"session {self.session} has ended")


@dataclass(frozen=True, slots=True)
class EndSession:
    """End a session and delete its keys."""

    session: str

    def run(self, connection: sqlite3.Connection) -> None:
        """Delete the session and its keys."""
        end_session(connection, self.session)


def end_session(connection: sqlite3.Connection, session: str) -> None:
    """Delete a session and the keys that were put with it."""
    connection.execute("DELETE FROM keys WHERE session = ?", (session,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def next_number(connection: sqlite3.Connection) -> int:
    """A number that is greater than every one before, for versions and session names."""
    connection.execute("UPDATE counter SET value = value + 1")
    return int(connection.execute("SELECT value FROM counter").fetchone()[0])


def _lives(connection: sqlite3.Connection, session: str, now_ms: int) -> bool:
    row = connection.execute(
        "SELECT 1 FROM sessions WHERE id = ? AND expires_ms > ?", (session, now_ms)
    ).fetchone()
    return row is not None


def get_key(connection: sqlite3.Connection, key: str, now_ms: int) -> KeyValue | None:
    """The key's value, unless its session is over."""
    row = connection.execute(_SELECT_KEYS + "key = ? AND " + _VISIBLE, (key, now_ms)).fetchone()
    return None if row is None else KeyValue(*row)


def get_range(connection: sqlite3.Connection, prefix: str, now_ms: int) -> list[KeyValue]:
    """All keys with the prefix, in the order of their code points."""
    end = prefix_end(prefix)
    where, arguments = "key >= ? AND ", [prefix]
    if end is not None:
        where, arguments = "key >= ? AND key < ? AND ", [prefix, end]
    rows = connection.execute(
        _SELECT_KEYS + where + _VISIBLE + " ORDER BY key", (*arguments, now_ms)
    )
    return [KeyValue(*row) for row in rows.fetchall()]


def prefix_end(prefix: str) -> str | None:
    """The least text after everything that begins with `prefix`; None when there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    after = ord(stem[-1]) + 1
    # Surrogates are no characters and cannot be stored.
    return stem[:-1] + chr(0xE000 if 0xD800 <= after < 0xE000 else after)


def read_log(connection: sqlite3.Connection, log: str, after: int) -> LogPage:
    """A page of a log and its end, at one moment."""
    records: list[bytes] = []
    size = head = 0
    start = after + 1
    cursor = connection.execute(_READ, (after, log, PAGE_RECORDS_MAX))
    try:
        for head, row, record in cursor:  # noqa: B007 - the last head is the page's end
            if row is None or (records and size + len(record) > PAGE_BYTES_MAX):
                break
            if not records:
                start = row & POSITION_MASK
            records.append(record)
            size += len(record)
    finally:
        cursor.close()  # a statement left half-way would keep its snapshot
    return LogPage(start, tuple(records), head)


def heads(connection: sqlite3.Connection) -> dict[str, int]:
    """The newest position of every log."""
    return dict(connection.execute("SELECT name, head FROM logs").fetchall())


def living_sessions(connection: sqlite3.Connection, now_ms: int) -> list[str]:
    """The names of the sessions that have not ended."""
    rows = connection.execute("SELECT id FROM sessions WHERE expires_ms > ?", (now_ms,))
    return [session for (session,) in rows.fetchall()]
