"""Commit: a WAL object is durable, and these batches are in it; its columns and their bytes. Pure.

The columns stand in a record one after another, so that ten thousand batches decode without a loop.
They are packed and checked by kernels (native/commit.c), whose twins are here.
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
    packed: bytes | None = field(default=None, repr=False, compare=False)

    @classmethod
    def unpacked(cls, wal_id: WalId, zone: str, size_bytes: int, count: int, packed: bytes) -> Self:
        """The Commit of so many batches with these columns."""
        view = memoryview(packed)
        columns = _unpacked(view, count, has_producers=len(view) == count * COMMIT_BATCH_BYTES)
        return cls(wal_id, zone, size_bytes, **columns, packed=packed)

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
    event = Commit(WalId(wal_id), zone, size_bytes, **columns, packed=None)
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


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
