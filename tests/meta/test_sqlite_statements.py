"""Ranges by prefix, and what a session's end decides."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.meta import sqlite_statements as statements
from lakelog.meta.sqlite_file import connect_file, open_file
from lakelog.model.failures import Conflict

TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab/%_é\ud7ff\ue000\U0010ffff"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=4,
)


@given(TEXTS, TEXTS)
def test_a_prefix_is_a_half_open_range_of_texts(prefix: str, text: str) -> None:
    end = statements.prefix_end(prefix)
    for key in (text, prefix + text):
        assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))
    if end is not None:
        end.encode()  # it can be handed to SQLite


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connections = open_file(tmp_path / "meta.db", connect_file)
    yield connections.writer
    connections.close()


def test_a_session_whose_end_decided_something_stays_ended_when_the_clock_goes_back(
    connection: sqlite3.Connection,
) -> None:
    session = statements.BeginSession(ttl_ms=100, now_ms=1000).run(connection)
    statements.Put("owner", b"old", 0, session, 1000).run(connection)
    statements.Put("other", b"old", 0, session, 1000).run(connection)
    # At 1100 it has ended, and somebody acts on that.
    statements.Put("owner", b"new", 0, None, 1100).run(connection)
    # The clock is set back: the old owner must not come back to life.
    with pytest.raises(Conflict):
        statements.RenewSession(session, 100, 1050).run(connection)
    assert statements.get_key(connection, "other", 1050) is None
    found = statements.get_key(connection, "owner", 1050)
    assert found is not None
    assert found.value == b"new"


def test_a_trim_takes_a_slice_at_a_time_from_the_oldest(connection: sqlite3.Connection) -> None:
    for _ in range(statements.TRIM_RECORDS + 10):
        statements.Append("l", b"x").run(connection)
    assert statements.TrimLog("l", 1000).run(connection)
    assert statements.read_log(connection, "l", 0).start == statements.TRIM_RECORDS + 1
    assert not statements.TrimLog("l", 1000).run(connection)
    assert statements.read_log(connection, "l", 0).start == statements.TRIM_RECORDS + 10


def test_a_half_read_page_leaves_no_snapshot_open(connection: sqlite3.Connection) -> None:
    for _ in range(20):
        statements.Append("l", b"x" * (1 << 20)).run(connection)
    reader = connect_file(connection.execute("PRAGMA database_list").fetchone()[2], 0.0)
    assert len(statements.read_log(reader, "l", 0).records) < 20
    # A checkpoint that truncates the WAL needs every reader to be gone.
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    reader.close()
