"""Files that survive power loss: what a put, a read, a listing and a deletion do to a directory.

Rules: a file is written under another name, synced, renamed, and then its directory is synced
(A10); a directory is used only after its own name is durable in its parent, up to the root. The
descriptor of such a directory is kept: if somebody removes the directory when it is empty, a
rename into the descriptor fails, and the directory is made and synced again.
"""

import contextlib
import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from lakelog.model.failures import Corrupt, OutcomeUnknown, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, is_key

INCOMING: Final = "~incoming"
"""Where files are written first: no key can name it, because of its first character."""

PARTS_PER_WRITE: Final = 1000
"""`writev` takes at most 1,024 parts."""

DIRECTORIES_OPEN_MAX: Final = 64
RENAMES_MAX: Final = 5
"""How often a put makes its directory anew before it gives up."""


class RootLost(OutcomeUnknown):
    """The directory of the objects was removed or replaced: what it held is out of reach."""


_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS: `fsync` leaves the bytes in the disk's own cache there."""


class LocalFiles:
    """A directory tree of objects; blocking, for several threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._inode = _inode(root)
        self._incoming = os.path.join(root, INCOMING)
        self._lock = threading.Lock()
        self._directories: OrderedDict[str, _Directory] = OrderedDict()

    def put(self, key: str, parts: Sequence[Buffer], temporary: str) -> None:
        """Write the parts as one durable object; `temporary` is a name nobody else uses."""
        path = os.path.join(self._incoming, temporary)
        try:
            _write(path, parts)
            self._place(path, key)
        except OSError as error:
            _remove(path)
            self._check_root()
            raise Unavailable(_said(self._root, key, error)) from error
        # A11: after the put, before anybody hears of it: who opens it next finds the object.
        self._check_root()

    def _check_root(self) -> None:
        if _inode(self._root) != self._inode:
            raise RootLost(
                f"{self._root} was removed or replaced while it was in use: stop all brokers that"
                " use it and put it back from a backup"
            )

    def _place(self, path: str, key: str) -> None:
        folder, _, name = key.rpartition("/")
        for attempt in range(RENAMES_MAX):
            try:
                directory = self._directory(folder)
                with directory as descriptor:
                    os.rename(path, name, dst_dir_fd=descriptor)
                    try:
                        _flush(descriptor)
                    except OSError as error:
                        raise OutcomeUnknown(_said(self._root, key, error)) from error
            except FileNotFoundError:
                # Somebody removed a directory on the way while it was empty.
                self._forget(folder)
                if attempt + 1 == RENAMES_MAX:
                    raise
            else:
                return

    def _directory(self, folder: str) -> "_Directory":
        with self._lock:
            known = self._directories.get(folder)
            if known is not None:
                self._directories.move_to_end(folder)
                return known
        made = _Directory(_make(self._root, folder))
        with self._lock:
            known = self._directories.setdefault(folder, made)
            while len(self._directories) > DIRECTORIES_OPEN_MAX:
                self._directories.popitem(last=False)[1].release()
        if known is not made:
            made.release()
        return known

    def _forget(self, folder: str) -> None:
        with self._lock:
            directory = self._directories.pop(folder, None)
            if directory is not None:
                directory.release()

    def read(self, key: str, ranges: Sequence[ByteRange] | None) -> list[memoryview]:
        """The bytes of each range, or of the whole file."""
        descriptor = os.open(os.path.join(self._root, key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            spans = [ByteRange(0, size)] if ranges is None else ranges
            for span in spans:
                if span.end > size:
                    raise Corrupt(f"{self._root}/{key}: has {size} bytes, {span} was asked for")
            return [_read(descriptor, span, key) for span in spans]
        finally:
            os.close(descriptor)

    def walk(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects under a prefix; what is no object of ours is passed over."""
        folders = [prefix]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(self._root, folder)))
            except (FileNotFoundError, NotADirectoryError):
                continue  # removed meanwhile
            for entry in entries:
                key = folder + entry.name
                if not is_key(key):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(key + "/")
                    continue
                info = _info(key, entry)
                if info is not None:
                    yield info

    def delete(self, keys: Sequence[str]) -> None:
        """Remove the files that are there, and the directories that become empty."""
        for key in keys:
            try:
                os.unlink(os.path.join(self._root, key))
            except (FileNotFoundError, NotADirectoryError):
                continue
            self._remove_empty(key)

    def _remove_empty(self, key: str) -> None:
        folder = key.rpartition("/")[0]
        while folder:
            try:
                os.rmdir(os.path.join(self._root, folder))
            except OSError:
                return  # not empty, or somebody else was faster
            folder = folder.rpartition("/")[0]

    def sweep(self, *, before_s: float) -> int:
        """Remove what unfinished puts left behind before that time; say how many there were."""
        swept = 0
        for entry in list(os.scandir(self._incoming)):
            try:
                if entry.stat(follow_symlinks=False).st_mtime < before_s:
                    os.unlink(entry.path)
                    swept += 1
            except FileNotFoundError:
                continue  # another process sweeps too
        return swept

    def close(self) -> None:
        """Close the directories."""
        with self._lock:
            while self._directories:
                self._directories.popitem()[1].release()


class _Directory:
    """An open directory that is closed when its last user has left."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._users = 1
        self._lock = threading.Lock()

    def __enter__(self) -> int:
        with self._lock:
            if self._users == 0:
                # It left the cache between the look-up and now: as good as removed.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._users += 1
        return self._descriptor

    def __exit__(self, *_error: object) -> None:
        self.release()

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)


def _inode(path: str) -> tuple[int, int] | None:
    """Which file has this name now."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_root(root: str) -> None:
    """Make the directory and its place for incoming files, durably."""
    os.makedirs(os.path.join(root, INCOMING), exist_ok=True)
    _sync(root)
    # Whoever made the directories above may not have synced them.
    parent = os.path.dirname(root)
    while parent != root and os.access(parent, os.R_OK):
        _sync(parent)
        parent, root = os.path.dirname(parent), parent


def _make(root: str, folder: str) -> int:
    """Open a directory below the root and make its whole path durable."""
    paths = [root]
    for segment in folder.split("/") if folder else ():
        paths.append(os.path.join(paths[-1], segment))
        with contextlib.suppress(FileExistsError):
            os.mkdir(paths[-1])
    descriptor = os.open(paths[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Also where it was there before: whoever made it may not have synced it yet. After the
        # opening: as long as the directory lives, so do those above it, and they stay durable.
        for parent in paths[:-1]:
            _sync(parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _flush(descriptor: int) -> None:
    if _FULL_SYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_SYNC)


def _write(path: str, parts: Sequence[Buffer]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        waiting = [view for part in parts if len(view := memoryview(part).cast("B"))]
        start = 0
        while start < len(waiting):
            written = os.writev(descriptor, waiting[start : start + PARTS_PER_WRITE])
            while start < len(waiting) and written >= len(waiting[start]):
                written -= len(waiting[start])
                start += 1
            if written:
                waiting[start] = waiting[start][written:]
        _flush(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int, span: ByteRange, key: str) -> memoryview:
    content = os.pread(descriptor, len(span), span.start)
    if len(content) == len(span):
        return memoryview(content)
    pieces, size = [content], len(content)
    while content and size < len(span):
        # The kernel gives at most 2 GiB at once.
        content = os.pread(descriptor, len(span) - size, span.start + size)
        pieces.append(content)
        size += len(content)
    if size != len(span):
        raise Corrupt(f"{key}: {span} was asked for, {size} bytes came")
    return memoryview(b"".join(pieces))


def _info(key: str, entry: "os.DirEntry[str]") -> ObjectInfo | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # removed meanwhile
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # never made, or renamed already; a leftover is swept at the next start


def _said(root: str, key: str, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{root}/{key}: the disk is full: free some space"
    return f"{root}/{key}: {error.strerror or error}"
