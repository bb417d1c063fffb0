"""The file of the embedded metadata store: how it is opened, and what may be wrong with it.

Rules: a file is judged before anything is written (a newer format, a foreign database and a
network filesystem are refused); the format is `user_version` and is written to the main file
before the journal becomes a WAL, so that it can be read without opening the WAL; commits are
synchronous FULL, the only setting that keeps an acknowledged write through power loss.
"""

import os
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from lakelog.model.failures import Refused, Unavailable

FORMAT: Final = 1
"""The format this code writes; a file of a newer one is refused."""

APPLICATION_ID: Final = 0x4C4B4C47
"""`LKLG`: tells our files from other SQLite databases."""

POSITION_BITS: Final = 44
"""A record's row id is its log's number shifted by this, plus its position (1.7e13 of them)."""

POSITION_MASK: Final = (1 << POSITION_BITS) - 1

READ_BUSY_S: Final = 2.0
"""How long a read waits for a lock; in WAL mode only recovery and clean-up make it wait."""

Connect: TypeAlias = Callable[[str, float], sqlite3.Connection]
"""Opens a connection to a path with a busy timeout in seconds."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS logs (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, head INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS records (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TRIGGER IF NOT EXISTS head_follows AFTER INSERT ON records BEGIN
  UPDATE logs SET head = NEW.id & ((1 << 44) - 1) WHERE number = NEW.id >> 44; END;
CREATE TABLE IF NOT EXISTS keys (
  key TEXT NOT NULL PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL, session TEXT);
CREATE INDEX IF NOT EXISTS keys_of_session ON keys (session) WHERE session IS NOT NULL;
CREATE TABLE IF NOT EXISTS sessions (
  id TEXT NOT NULL PRIMARY KEY, expires_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counter (
  one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO counter (one, value) VALUES (1, 0);
"""

_NETWORK_FILESYSTEMS: Final = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "gfs2"),
    *("beegfs", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph-fuse"),
)


def connect_file(path: str, busy_s: float) -> sqlite3.Connection:
    """Open a connection that begins no transaction by itself and may move between threads."""
    return sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file of the database as its name led to it when it was opened."""

    path: str
    device: int
    inode: int

    @classmethod
    def of(cls, path: str) -> "OpenedFile":
        """The file that has this name now."""
        status = os.stat(path)
        return cls(path, status.st_dev, status.st_ino)

    def is_in_place(self) -> bool:
        """Whether the name still leads to it: who opens it next finds what we write."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return status.st_ino == self.inode and status.st_dev == self.device


@dataclass(frozen=True, slots=True)
class FileConnections:
    """The connections of one process to the file, for one thread each."""

    writer: sqlite3.Connection
    reader: sqlite3.Connection
    checkpointer: sqlite3.Connection
    files: tuple[OpenedFile, ...] = ()
    """The database, its WAL and its shared memory: what is committed counts while all are there."""

    def close(self) -> None:
        """Close all three, the writer last: it tidies the WAL away if nobody else is there."""
        for connection in (self.checkpointer, self.reader, self.writer):
            connection.close()


def open_file(path: Path, connect: Connect) -> FileConnections:
    """Judge the file, create it if it is missing, and connect to it.

    `Refused` says what is wrong and what to do; in that case nothing was written.
    """
    _judge_place(path)
    path = path.absolute()
    opened: list[sqlite3.Connection] = []
    try:
        # A journal beside the file is a creation that goes on or was cut off: SQLite finishes it.
        if path.exists() and not path.with_name(path.name + "-journal").exists():
            _judge_untouched(path)
        for prepare in (_prepare_writer, _prepare_reader, _prepare_checkpointer):
            opened.append(connect(str(path), READ_BUSY_S))
            prepare(opened[-1], path)
        # Only a read makes SQLite open the WAL; both files stay as long as a connection does.
        opened[0].execute("SELECT value FROM counter").fetchone()
        files = tuple(OpenedFile.of(f"{path}{suffix}") for suffix in ("", "-wal", "-shm"))
    except BaseException as error:
        for connection in reversed(opened):
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise refusal(path, error) from error
        if isinstance(error, FileNotFoundError):
            raise Unavailable(f"{error.filename}: was removed while it was opened") from error
        raise
    writer, reader, checkpointer = opened
    return FileConnections(writer, reader, checkpointer, files)


def _prepare_writer(writer: sqlite3.Connection, path: Path) -> None:
    if _judge_format(writer, path) == 0:
        # In one transaction and before the WAL exists: a crash leaves an empty file or a whole one.
        marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        writer.executescript(f"BEGIN IMMEDIATE; {SCHEMA} {marks} COMMIT;")
        # Whoever made the directories above may not have synced them.
        for directory in path.absolute().parents:
            if os.access(directory, os.R_OK):
                _sync_directory(directory)
    _switch_to_wal(writer, path)
    _make_durable(writer)
    # Some builds overwrite deleted pages with zeros, which makes a trim write all it forgets.
    writer.execute("PRAGMA secure_delete = OFF")
    # Checkpoints are made by the store's own thread, so that no append waits for one.
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    # Waiting for the write lock is done by `sqlite_write`, in finer steps than SQLite's own.
    writer.execute("PRAGMA busy_timeout = 0")


def _prepare_reader(reader: sqlite3.Connection, _path: Path) -> None:
    reader.execute("PRAGMA query_only = ON")


def _prepare_checkpointer(checkpointer: sqlite3.Connection, _path: Path) -> None:
    _make_durable(checkpointer)


def _make_durable(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA synchronous = FULL")
    # macOS only: fsync there does not reach the disk by itself.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")


def _switch_to_wal(writer: sqlite3.Connection, path: Path) -> None:
    # SQLite does not wait for the exclusive lock this needs when another process does the same.
    pause = threading.Event()
    for attempt in range(200):
        try:
            mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or attempt == 199:
                raise
            pause.wait(0.01)
        else:
            if mode != "wal":
                raise Refused(
                    f"{path}: this filesystem cannot share memory between processes "
                    f"(SQLite journal mode is {mode}); keep the file on a local disk"
                )
            return


def _judge_place(path: Path) -> None:
    parent = path.parent
    if not parent.is_dir():
        raise Refused(f"{path}: the directory {parent} does not exist; create it, or set another")
    if path.is_dir():
        raise Refused(f"{path}: is a directory; name a file")
    if not os.access(parent, os.W_OK | os.X_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise Refused(f"{path}: cannot be written by this user; change its owner or permissions")
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return  # Not Linux: there is no cheap way to know.
    filesystem = filesystem_of(path.resolve(), mounts)
    if filesystem in _NETWORK_FILESYSTEMS:
        raise Refused(
            f"{path}: is on a network filesystem ({filesystem}), where SQLite's locks and shared "
            "memory do not work; keep it on a local disk, or use a metadata store for clusters"
        )


def filesystem_of(path: Path, mountinfo: str) -> str | None:
    """The filesystem type of an absolute path, by the text of Linux's `mountinfo`."""
    best, found = -1, None
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not tail:
            continue
        mount = parts[4].replace("\\040", " ")
        # The same mount point may come twice: the later one covers the earlier.
        if path.is_relative_to(mount) and len(mount) >= best:
            best, found = len(mount), tail.split()[0]
    return found


def _judge_untouched(path: Path) -> None:
    # `immutable` takes no lock and makes no -wal or -shm file: a refused file is left as it was.
    # It must be SQLite that opens it: closing a descriptor of our own would drop the locks which
    # other connections of this process hold on the file.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        _judge_format(connection, path)
    except sqlite3.DatabaseError as error:
        # Without a lock pages are torn while another process copies its WAL into the file. Where
        # there is a WAL, the connection that takes locks and reads it decides.
        is_in_use = path.with_name(path.name + "-wal").exists()
        if primary_code(error) != sqlite3.SQLITE_CORRUPT or not is_in_use:
            raise
    finally:
        connection.close()


def _judge_format(connection: sqlite3.Connection, path: Path) -> int:
    """The file's format, 0 when it is empty."""
    # In one statement: another process may be making the file between two of them.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if (application, version, tables) == (0, 0, 0):
        return 0
    if application != APPLICATION_ID or version < 1:
        raise Refused(f"{path}: is a SQLite database of another application; name another file")
    if version > FORMAT:
        raise Refused(
            f"{path}: was written by a newer Lakelog (format {version}, this one knows {FORMAT}); "
            "upgrade, or name another file"
        )
    return int(version)


def primary_code(error: sqlite3.Error) -> int:
    """SQLite's result code without its extension, 0 when the error did not come from SQLite."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def refusal(path: Path, error: sqlite3.Error) -> Refused | Unavailable:
    """What an error at the opening means to the one who starts the process."""
    match primary_code(error):
        case sqlite3.SQLITE_NOTADB:
            return Refused(f"{path}: is not a SQLite database; name another file")
        case sqlite3.SQLITE_CORRUPT:
            return Refused(f"{path}: the database is damaged ({error}); restore it from a backup")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return Refused(f"{path}: cannot be opened for writing ({error}); check permissions")
        case sqlite3.SQLITE_FULL:
            return Refused(f"{path}: the disk is full; free some space")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unavailable(f"{path}: another process holds the file's lock")
        case _:
            return Refused(f"{path}: cannot be opened ({error})")


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
