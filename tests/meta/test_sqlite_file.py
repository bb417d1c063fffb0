"""Which files are taken, which are refused, and that a refused one is left alone."""

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from lakelog.meta import sqlite_file
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.meta.sqlite_file import (
    APPLICATION_ID,
    FORMAT,
    POSITION_BITS,
    SCHEMA,
    connect_file,
    filesystem_of,
    open_file,
)
from lakelog.model.failures import Refused
from lakelog.testing.conformance_meta import ManualClock


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def refused(path: Path) -> str:
    with pytest.raises(Refused) as caught:
        open_file(path, connect_file)
    return str(caught.value)


def opens(path: Path) -> bool:
    open_file(path, connect_file).close()
    return True


def test_a_missing_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "missing" / "meta.db")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    assert "is a directory" in refused(tmp_path)


def test_brokers_that_start_at_once_make_the_file_together(tmp_path: Path) -> None:
    together = Barrier(4)

    def start(path: Path) -> bool:
        together.wait()
        return opens(path)

    with ThreadPoolExecutor(4) as pool:
        for attempt in range(25):
            path = tmp_path / f"{attempt}.db"
            assert list(pool.map(start, [path] * 4)) == [True] * 4


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.db").write_bytes(b"these are not the bytes of a database" * 50)
    before = contents(tmp_path)
    assert "is not a SQLite database" in refused(tmp_path / "meta.db")
    assert contents(tmp_path) == before


def test_a_database_of_another_application_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "meta.db") as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = contents(tmp_path)
    assert "another application" in refused(tmp_path / "meta.db")
    assert contents(tmp_path) == before


def test_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    assert opens(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = contents(tmp_path)
    assert f"format {FORMAT + 1}, this one knows {FORMAT}" in refused(path)
    assert contents(tmp_path) == before


def test_a_newer_format_that_is_only_in_the_wal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    assert opens(path)
    newer = sqlite3.connect(path, isolation_level=None)
    newer.execute("PRAGMA wal_autocheckpoint = 0")
    newer.execute(f"PRAGMA user_version = {FORMAT + 1}")
    try:
        assert "newer Lakelog" in refused(path)
    finally:
        newer.close()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    assert opens(path)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xa5" * 3996
    path.write_bytes(content)
    assert "damaged" in refused(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "cannot be written" in refused(tmp_path / "meta.db")
    finally:
        tmp_path.chmod(0o700)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "meta.db").touch()
    assert opens(tmp_path / "meta.db")
    assert opens(tmp_path / "meta.db")


def test_a_creation_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    # What a process leaves that is killed between writing its pages and dropping the journal.
    path, crashed = tmp_path / "meta.db", tmp_path / "crashed"
    crashed.mkdir()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")
    connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}")
    connection.execute("INSERT INTO records VALUES (1, zeroblob(100000))")
    for name, content in contents(tmp_path).items():
        (crashed / name).write_bytes(content)
    connection.close()
    assert (crashed / "meta.db-journal").exists()
    assert opens(crashed / "meta.db")


def test_a_file_is_marked_as_ours_before_there_is_a_wal(tmp_path: Path) -> None:
    connections = open_file(tmp_path / "meta.db", connect_file)
    header = (tmp_path / "meta.db").read_bytes()[:100]
    connections.close()
    assert int.from_bytes(header[60:64], "big") == FORMAT
    assert int.from_bytes(header[68:72], "big") == APPLICATION_ID


def test_commits_are_synchronous_and_journalled_in_a_wal(tmp_path: Path) -> None:
    connections = open_file(tmp_path / "meta.db", connect_file)
    try:
        for connection in (connections.writer, connections.checkpointer):
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connections.reader.execute("DELETE FROM records")
    finally:
        connections.close()


def test_the_sql_uses_as_many_bits_for_positions_as_the_code() -> None:
    assert f"NEW.id >> {POSITION_BITS};" in SCHEMA
    assert f"((1 << {POSITION_BITS}) - 1)" in SCHEMA


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/sda rw
35 22 0:30 / /mnt/share rw,relatime shared:1 - nfs4 server:/export rw
36 22 0:31 / /mnt/share/local rw - xfs /dev/sdb rw
37 22 0:32 / /mnt/with\\040space rw - cifs //server/share rw
38 22 0:33 / /twice rw - ext4 /dev/sdc rw
39 22 0:34 / /twice rw - fuse.sshfs host: rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/data/meta.db", "ext4"),
        ("/mnt/share/meta.db", "nfs4"),
        ("/mnt/shared/meta.db", "ext4"),
        ("/mnt/share/local/meta.db", "xfs"),
        ("/mnt/with space/meta.db", "cifs"),
        ("/twice/meta.db", "fuse.sshfs"),
    ],
)
def test_the_filesystem_is_that_of_the_innermost_mount(path: str, filesystem: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == filesystem


def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = filesystem_of(tmp_path.resolve(), Path("/proc/self/mountinfo").read_text())
    monkeypatch.setattr(sqlite_file, "_NETWORK_FILESYSTEMS", (here,))
    assert "network filesystem" in refused(tmp_path / "meta.db")
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_reaches_who_opens_the_store(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="does not exist"):
        asyncio.run(SqliteMetadataStore.open(tmp_path / "no" / "meta.db", ManualClock()))


def test_a_page_that_another_process_is_copying_just_now_is_no_damage(tmp_path: Path) -> None:
    """What is judged without a lock may be torn; with one, the page comes from the WAL."""
    path = tmp_path / "meta.db"
    opens(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA wal_autocheckpoint = 0")
    other.execute(f"PRAGMA user_version = {FORMAT}")  # writes page 1, which goes to the WAL
    with path.open("r+b") as file:
        file.seek(100)  # the header of the schema's page, behind that of the file
        file.write(b"\xff" * 8)
    assert opens(path)
    other.close()


def test_a_damaged_file_that_nobody_uses_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "meta.db"
    opens(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8)
    before = contents(tmp_path)
    assert "the database is damaged" in refused(path)
    assert contents(tmp_path) == before
