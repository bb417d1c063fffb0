"""Commit and Write: WAL objects are durable, and these batches are in them. Pure.

The columns of a Commit stand in a record one after another, so that ten thousand batches decode
without a loop. They are packed and checked by kernels (native/commit.c), whose twins are here.

A Write names an application and a version of it, and holds Commits; they are taken in all or none
(X2), and a version that is not greater than the application's last is not taken in again (X1). Its
batches have no producer ids: the version stands for all of them.
"""

import struct
from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from lakelog.model.ids import WalId
from lakelog.records import kernels

COMMIT_COLUMNS: Final[tuple[tuple[str, npt.DTypeLike], ...]] = (
    ("stream", "<i8"),
    ("byte_start", "<u4"),
    ("byte_length", "<u4"),
    ("offset_count", "<u4"),
    ("max_timestamp", "<i8"),
)
PRODUCER_COLUMNS: Final[tuple[tuple[str, npt.DTypeLike], ...]] = (
    ("producer", "<i8"),
    ("epoch", "<i2"),
    ("sequence", "<i4"),
)
COMMIT_BATCH_BYTES: Final = 28 + 14
"""The most that one batch takes in a Commit; the buffer closes an object by it (B6)."""

_COMMIT = struct.Struct("<16sBIIB")
COMMIT_HEAD_BYTES_MAX: Final = _COMMIT.size + 255
"""The most that a Commit takes before its batches: the longest zone has 255 bytes."""

APPLICATION_BYTES_MAX: Final = 255
"""The longest name of an application, in UTF-8."""

VERSION_END: Final = 1 << 63
WRITES_LEVEL: Final = 2
"""The level of a domain from which on these events mean something (rule 12)."""

_WRITE: Final = struct.Struct("<qIB")
_LENGTH: Final = struct.Struct("<I")
_CUTOFF: Final = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class Commit:
    """A WAL object is durable and holds these batches, sorted by stream.

    The arrays have one element a batch. `byte_start` and `byte_length` enclose the batch and its
    length prefix; `producer` is -1 for none. `packed` are their bytes, where these were first.
    """

    wal_id: WalId
    zone: str
    size_bytes: int
    stream: npt.NDArray[np.int64]
    byte_start: npt.NDArray[np.uint32]
    byte_length: npt.NDArray[np.uint32]
    offset_count: npt.NDArray[np.uint32]
    max_timestamp: npt.NDArray[np.int64]
    producer: npt.NDArray[np.int64]
    epoch: npt.NDArray[np.int16]
    sequence: npt.NDArray[np.int32]
    packed: bytes | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def unpacked(cls, wal_id: WalId, zone: str, size_bytes: int, count: int, packed: bytes) -> Self:
        """The Commit of so many batches with these columns."""
        view = memoryview(packed)
        columns = _unpacked(view, count, has_producers=len(view) == count * COMMIT_BATCH_BYTES)
        made = cls(wal_id, zone, size_bytes, **columns)
        # Set here alone: a copy with other columns must not keep the bytes of these.
        object.__setattr__(made, "packed", packed)
        return made

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """All arrays, in the order in which they are packed."""
        return (
            self.stream,
            self.byte_start,
            self.byte_length,
            self.offset_count,
            self.max_timestamp,
            self.producer,
            self.epoch,
            self.sequence,
        )


@dataclass(frozen=True, slots=True)
class Write:
    """WAL objects that an application put are visible from here on, if its version is new."""

    application: str
    version: int
    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class ExpireWrites:
    """Applications that wrote nothing since the cutoff are forgotten."""

    cutoff_ms: int


def encode_commit(event: Commit) -> bytes:
    """The event's bytes."""
    zone = event.zone.encode()
    assert len(zone) < 256, event.zone
    packed = _packed_columns(event) if event.packed is None else event.packed
    count = len(event.stream)
    has_producers = len(packed) == count * COMMIT_BATCH_BYTES
    head = _COMMIT.pack(event.wal_id, has_producers, event.size_bytes, count, len(zone))
    return b"".join((head, zone, packed))


def _packed_columns(event: Commit) -> bytes:
    has_producers = bool((event.producer >= 0).any())
    columns = COMMIT_COLUMNS + (PRODUCER_COLUMNS if has_producers else ())
    return b"".join(
        getattr(event, name).astype(kind, copy=False).tobytes() for name, kind in columns
    )


def decode_commit(data: memoryview) -> Commit:
    """The event, checked whole; `ValueError` or `struct.error` says what is wrong."""
    wal_id, has_producers, size_bytes, count, zone_length = _COMMIT.unpack_from(data)
    place = _COMMIT.size + zone_length
    zone = str(data[_COMMIT.size : place], "utf-8")
    columns = _unpacked(data[place:], count, has_producers=bool(has_producers))
    event = Commit(WalId(wal_id), zone, size_bytes, **columns)
    native = kernels.native
    if native is None or not native.is_sound_commit(event.columns, size_bytes):
        check_commit(event)  # the twin, which also says what is wrong
    return event


def _unpacked(data: memoryview, count: int, *, has_producers: bool) -> dict[str, npt.NDArray[Any]]:
    columns: dict[str, npt.NDArray[Any]] = {}
    place = 0
    for name, kind in COMMIT_COLUMNS + (PRODUCER_COLUMNS if has_producers else ()):
        columns[name] = np.frombuffer(data, dtype=kind, count=count, offset=place)
        place += columns[name].nbytes
    _require(place == len(data), "bytes after the last column")
    if not has_producers:
        columns["producer"] = np.full(count, -1, dtype=np.int64)
        columns["epoch"] = np.full(count, -1, dtype=np.int16)
        columns["sequence"] = np.full(count, -1, dtype=np.int32)
    return columns


def check_commit(event: Commit) -> None:
    """Raise `ValueError` unless its batches can lie so in an object of its size."""
    _require(len(event.stream) > 0, "no batch")
    _require(bool((event.stream[1:] >= event.stream[:-1]).all()), "streams are not sorted")
    _require(bool((event.offset_count > 0).all()), "a batch without offsets")
    starts = event.byte_start.astype(np.int64)
    ends = starts + event.byte_length
    same = event.stream[1:] == event.stream[:-1]
    adjoin = starts[1:] == ends[:-1]
    _require(bool((adjoin | ~same).all()), "batches of a stream do not adjoin")
    _require(bool((starts[1:] >= ends[:-1]).all()), "batches overlap")
    _require(int(ends[-1]) <= event.size_bytes, "a batch lies beyond the object's end")
    idempotent = event.producer >= 0
    bad = idempotent & ((event.sequence < 0) | (event.epoch < 0))
    _require(not bool(bad.any()), "a producer without epoch or sequence")


def encode_write(event: Write) -> bytes:
    """The bytes of a Write."""
    application = event.application.encode()
    parts = [
        _WRITE.pack(event.version, len(event.commits), len(application)),
        application,
    ]
    for commit in event.commits:
        body = encode_commit(commit)
        parts += (_LENGTH.pack(len(body)), body)
    return b"".join(parts)


def decode_write(data: memoryview) -> Write:
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


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
