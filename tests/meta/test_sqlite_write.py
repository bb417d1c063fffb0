"""What the errors of SQLite mean to the callers of a group, with real locks and planted faults."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakelog.meta.sqlite_file import connect_file, open_file
from lakelog.meta.sqlite_statements import Append, Put, read_log
from lakelog.meta.sqlite_write import FileWriter
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable


class FaultyConnection(sqlite3.Connection):
    """Fails at the statement that begins with `at`, before or after it was done."""

    at: str | None = None
    code: int = 0
    done_first = False

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if self.at is None or not sql.startswith(self.at):
            return super().execute(sql, *arguments)
        if self.done_first:
            super().execute(sql, *arguments)
        error = sqlite3.OperationalError("planted")
        error.sqlite_errorcode = self.code
        raise error


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[FaultyConnection, sqlite3.Connection]]:
    def connect(path: str, busy_s: float) -> sqlite3.Connection:
        return sqlite3.connect(
            path,
            timeout=busy_s,
            isolation_level=None,
            check_same_thread=False,
            factory=FaultyConnection,
        )

    connections = open_file(tmp_path / "meta.db", connect)
    assert isinstance(connections.writer, FaultyConnection)
    FileWriter(connections.writer, busy_s=0).commit([Append("l", b"first")])
    yield connections.writer, connections.reader
    connections.close()


Files = tuple[FaultyConnection, sqlite3.Connection]


def put(key: str, expect: int | None = None) -> Put:
    return Put(key, b"v", expect, None, 0)


def kinds(outcomes: list[object]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


@pytest.mark.parametrize("writes", [[Append("l", b"x")], [Append("l", b"x"), put("k")], [put("k")]])
def test_a_lock_that_is_not_had_means_that_nothing_was_written(
    writes: list[Append | Put], files: Files, tmp_path: Path
) -> None:
    connection, reader = files
    writer = FileWriter(connection, busy_s=0.01)
    other = connect_file(str(tmp_path / "meta.db"), 0)
    other.execute("BEGIN IMMEDIATE")
    assert kinds(writer.commit(writes)) == [Unavailable] * len(writes)
    other.execute("ROLLBACK")
    other.close()
    assert read_log(reader, "l", 0).end == 1
    assert writer.broken is None
    assert Unavailable not in kinds(writer.commit(writes))


def test_one_conflict_does_not_touch_the_rest_of_its_group(files: Files) -> None:
    connection, reader = files
    outcomes = FileWriter(connection, busy_s=0).commit(
        [put("a"), put("b", expect=7), Append("l", b"2"), put("c"), Append("new", b"1")]
    )
    assert kinds(outcomes) == [int, Conflict, int, int, int]
    assert (outcomes[2], outcomes[4]) == (2, 1)
    assert reader.execute("SELECT key FROM keys ORDER BY key").fetchall() == [("a",), ("c",)]


def test_a_full_disk_means_that_nothing_was_written(files: Files) -> None:
    connection, reader = files
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    writer = FileWriter(connection, busy_s=0)
    big = Append("l", b"x" * 100_000)
    groups: list[list[Append | Put]] = [[big], [put("a"), big]]
    for writes in groups:
        outcomes = writer.commit(writes)
        assert kinds(outcomes) == [Unavailable] * len(writes)
        assert "disk is full" in str(outcomes[0])
    assert read_log(reader, "l", 0).end == 1
    connection.execute("PRAGMA max_page_count = 1000000")
    assert writer.commit([big]) == [2]


@pytest.mark.parametrize("done_first", [False, True])
def test_an_error_while_committing_leaves_the_outcome_unknown(
    files: Files, done_first: bool
) -> None:
    connection, _ = files
    connection.at, connection.code = "COMMIT", sqlite3.SQLITE_IOERR
    connection.done_first = done_first
    writer = FileWriter(connection, busy_s=0)
    assert kinds(writer.commit([put("a"), put("b", expect=9)])) == [OutcomeUnknown] * 2
    connection.at = None
    # Whatever happened to the first group, the next one is judged for itself.
    assert kinds(writer.commit([put("c")])) == [int]


def test_an_error_of_a_single_append_leaves_the_outcome_unknown(files: Files) -> None:
    connection, _ = files
    connection.at, connection.code = "INSERT INTO records", sqlite3.SQLITE_IOERR_READ
    writer = FileWriter(connection, busy_s=0)
    assert kinds(writer.commit([Append("l", b"x")])) == [OutcomeUnknown]
    assert writer.broken is None


def test_an_error_before_the_commit_rolls_the_group_back(files: Files) -> None:
    connection, reader = files
    connection.at, connection.code = "INSERT INTO records", sqlite3.SQLITE_IOERR_READ
    writer = FileWriter(connection, busy_s=0)
    assert kinds(writer.commit([put("a"), Append("l", b"x")])) == [Unavailable] * 2
    assert reader.execute("SELECT count(*) FROM keys").fetchone() == (0,)


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_READONLY_DBMOVED,
    ],
)
def test_after_a_failed_sync_nothing_is_ever_written_again(files: Files, code: int) -> None:
    connection, reader = files
    connection.at, connection.code = "COMMIT", code
    writer = FileWriter(connection, busy_s=0)
    first = writer.commit([put("a"), put("b")])
    assert all(isinstance(outcome, OutcomeUnknown | Unavailable) for outcome in first)
    assert writer.broken is not None
    connection.at = None
    assert kinds(writer.commit([Append("l", b"x")])) == [Unavailable]
    assert read_log(reader, "l", 0).end == 1


def test_a_transaction_that_cannot_be_rolled_back_breaks_the_writer(files: Files) -> None:
    connection, _ = files
    connection.at, connection.code = "ROLLBACK", sqlite3.SQLITE_IOERR
    writer = FileWriter(connection, busy_s=0)

    class Failing:
        def run(self, _connection: sqlite3.Connection) -> object:
            raise sqlite3.OperationalError("planted")

    assert kinds(writer.commit([Failing()])) == [Unavailable]
    assert writer.broken is not None
    connection.at = None


def test_a_bug_in_a_write_rolls_the_group_back_and_is_raised(files: Files) -> None:
    connection, reader = files

    class Buggy:
        def run(self, _connection: sqlite3.Connection) -> object:
            raise AssertionError("a bug")

    writer = FileWriter(connection, busy_s=0)
    with pytest.raises(AssertionError):
        writer.commit([put("a"), Buggy()])
    assert reader.execute("SELECT count(*) FROM keys").fetchone() == (0,)
    assert kinds(writer.commit([put("a")])) == [int]
