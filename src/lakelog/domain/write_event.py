"""Write and ExpireWrites: objects that others put, made visible at once and once. Pure.

A Write names an application and a version of it, and holds Commits; they are taken in all or none
(X2), and a version that is not greater than the application's last is not taken in again (X1). Its
batches have no producer ids: the version stands for all of them.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lakelog.domain.commit_event import Commit

APPLICATION_BYTES_MAX: Final = 255
"""The longest name of an application, in UTF-8."""

VERSION_END: Final = 1 << 63
WRITES_LEVEL: Final = 2
"""The level of a domain from which on these events mean something (rule 12)."""

_WRITE: Final = struct.Struct("<qIB")
_LENGTH: Final = struct.Struct("<I")
_CUTOFF: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Write:
    """WAL objects that an application put are visible from here on, if its version is new."""

    application: str
    version: int
    commits: "tuple[Commit, ...]"


@dataclass(frozen=True, slots=True)
class ExpireWrites:
    """Applications that wrote nothing since the cutoff are forgotten."""

    cutoff_ms: int


def encode_write(event: Write, encode_commit: "Callable[[Commit], bytes]") -> bytes:
    """The bytes of a Write; how a Commit is encoded is handed in."""
    application = event.application.encode()
    parts = [
        _WRITE.pack(event.version, len(event.commits), len(application)),
        application,
    ]
    for commit in event.commits:
        body = encode_commit(commit)
        parts += (_LENGTH.pack(len(body)), body)
    return b"".join(parts)


def decode_write(data: memoryview, decode_commit: "Callable[[memoryview], Commit]") -> Write:
    """The Write, checked whole; raises ValueError or struct.error."""
    version, count, name_length = _WRITE.unpack_from(data)
    place = _WRITE.size + name_length
    application = str(data[_WRITE.size : place], "utf-8")
    commits = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size
        if length > len(data) - place:
            raise ValueError("a commit reaches beyond its write")
        commits.append(decode_commit(data[place : place + length]))
        place += length
    if place != len(data):
        raise ValueError("bytes after the last commit")
    event = Write(application, version, tuple(commits))
    check_write(event)
    return event


def check_write(event: Write) -> None:
    """Raise ValueError for what a Write must not hold, however well its Commits are formed."""
    if not 0 < len(event.application.encode()) <= APPLICATION_BYTES_MAX:
        raise ValueError(f"the name of an application has 1 to {APPLICATION_BYTES_MAX} bytes")
    if not 0 <= event.version < VERSION_END:
        raise ValueError(f"{event.version} is not a version")
    if not event.commits:
        raise ValueError("a write without objects")
    if any(bool((commit.producer >= 0).any()) for commit in event.commits):
        raise ValueError("a batch of a producer: the version stands for all batches of a write")
    if len({commit.wal_id for commit in event.commits}) < len(event.commits):
        raise ValueError("an object stands twice in a write")


def encode_expire_writes(event: ExpireWrites) -> bytes:
    """The bytes of an ExpireWrites."""
    return _CUTOFF.pack(event.cutoff_ms)


def decode_expire_writes(data: memoryview) -> ExpireWrites:
    """The event; raises struct.error."""
    return ExpireWrites(*_CUTOFF.unpack(data))
