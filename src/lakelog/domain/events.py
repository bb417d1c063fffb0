"""The kinds of event of a domain log and their bytes. Pure.

A record carries one or more events; each is checked when it is decoded, whole, before anything
acts on it (rule 10). All integers are little-endian; packed tables are columns, one after another,
so that a table of ten thousand batches decodes without a loop. `docs/formats.md` has the layouts.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakelog.domain.commit_event import (
    WRITES_LEVEL,
    Commit,
    ExpireWrites,
    Write,
    decode_commit,
    decode_expire_writes,
    decode_write,
    encode_commit,
    encode_expire_writes,
    encode_write,
)
from lakelog.groups.events import GroupEvent, decode_group_event, encode_group_event
from lakelog.groups.parts import PARTS_LEVEL, GroupPart, decode_group_part, encode_group_part
from lakelog.model.failures import Corrupt
from lakelog.model.ids import TopicId
from lakelog.streams.objects import FileKind, FileName

Bytes: TypeAlias = bytes | memoryview


class Kind(IntEnum):
    """The number of an event kind, for ever."""

    GENESIS = 1
    HELLO = 2
    CREATE = 3
    COMMIT = 4
    SWAP = 5
    TRIM = 6
    DROP = 7
    HORIZON = 8
    EXPIRE_PRODUCERS = 9
    UPGRADE = 10
    BARRIER = 11
    GROUP = 12
    WRITE = 13
    EXPIRE_WRITES = 14
    GROUP_PART = 15


@dataclass(frozen=True, slots=True)
class Genesis:
    """The first record of a log: whose log this is (rule 15)."""

    cluster_id: str
    domain: int
    level: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A writer's new incarnation begins; everything of its older ones is void from here on."""

    supported_level: int


@dataclass(frozen=True, slots=True)
class Create:
    """Streams begin to exist, before their topic can be seen (rule 21)."""

    topic: TopicId
    first_partition: int
    streams: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Swap:
    """A file takes the place of the entries in [start, end) that name the objects `replaces`."""

    stream: int
    start: int
    end: int
    file: FileName
    size_bytes: int
    max_timestamp_ms: int
    replaces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Trim:
    """The log starts of these streams move forward to these offsets."""

    streams: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Drop:
    """Streams cease to exist, after their topic is gone (rule 21)."""

    streams: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Horizon:
    """Commits of WAL ids older than this are void from here on."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class ExpireProducers:
    """Producers that wrote nothing since the cutoff are forgotten."""

    cutoff_ms: int


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Behaviour of this level holds from here on (rule 12)."""

    level: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """Nothing: an append whose position proves currency."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """Something happened to a group or its committed offsets."""

    event: GroupEvent


Event: TypeAlias = (
    Genesis
    | Hello
    | Create
    | Commit
    | Swap
    | Trim
    | Drop
    | Horizon
    | ExpireProducers
    | Upgrade
    | Barrier
    | GroupChange
    | Write
    | ExpireWrites
    | GroupPart
)

PARTITIONS_END: Final = 1 << 31
"""Partitions are int32 on the wire and in the tables."""

_LEVELS: Final = {
    Kind.WRITE: WRITES_LEVEL,
    Kind.EXPIRE_WRITES: WRITES_LEVEL,
    Kind.GROUP_PART: PARTS_LEVEL,
}

_GENESIS = struct.Struct("<IH")
_CREATE = struct.Struct("<16sII")
_SWAP = struct.Struct("<qqqBqqI")
_INT64 = struct.Struct("<q")
_UINT32 = struct.Struct("<I")
_LEVEL = struct.Struct("<H")


def needed_level(kinds: Iterable[Kind]) -> int:
    """The level that a record of such events asks of its readers.

    It is no more than they need: a newer broker must not stop older ones before the domain was
    upgraded (rule 12).
    """
    return max(_LEVELS.get(kind, 1) for kind in kinds)


def encode_event(event: Event) -> tuple[Kind, bytes]:
    """The event's kind and its bytes."""
    kind, encode = _ENCODERS[type(event)]
    return kind, encode(event)


def decode_event(kind: int, data: memoryview) -> Event:
    """The event, checked whole; anything else is `Corrupt` and stops the domain (rule 11)."""
    try:
        return _DECODERS[Kind(kind)](data)
    except (ValueError, struct.error, KeyError) as error:
        raise Corrupt(f"event of kind {kind} cannot be understood: {error}") from None


def _encode_swap(event: Swap) -> bytes:
    key = event.file.key.encode()
    head = _SWAP.pack(
        event.stream,
        event.start,
        event.end,
        event.file.kind,
        event.size_bytes,
        event.max_timestamp_ms,
        len(event.replaces),
    )
    return b"".join((head, *event.replaces, key))


def _decode_swap(data: memoryview) -> Swap:
    stream, start, end, kind, size_bytes, max_timestamp_ms, count = _SWAP.unpack_from(data)
    place = _SWAP.size + 8 * count
    _require(place < len(data), "no key")
    _require(0 <= start < end and size_bytes > 0, "an empty range or file")
    replaces = tuple(bytes(data[at : at + 8]) for at in range(_SWAP.size, place, 8))
    file = FileName(FileKind(kind), str(data[place:], "utf-8"))
    return Swap(stream, start, end, file, size_bytes, max_timestamp_ms, replaces)


def _decode_genesis(data: memoryview) -> Genesis:
    domain, level = _GENESIS.unpack_from(data)
    return Genesis(str(data[_GENESIS.size :], "utf-8"), domain, level)


def _decode_create(data: memoryview) -> Create:
    topic, first, count = _CREATE.unpack_from(data)
    _require(first + count <= PARTITIONS_END, "a partition beyond the greatest there is")
    return Create(TopicId(topic), first, _int64s(data[_CREATE.size :], count))


def _decode_trim(data: memoryview) -> Trim:
    (count,) = _UINT32.unpack_from(data)
    both = _int64s(data[_UINT32.size :], count * 2)
    _require(bool((both[count:] >= 0).all()), "a negative offset")
    return Trim(both[:count], both[count:])


def _decode_drop(data: memoryview) -> Drop:
    (count,) = _UINT32.unpack_from(data)
    return Drop(_int64s(data[_UINT32.size :], count))


def _int64s(data: memoryview, count: int) -> npt.NDArray[np.int64]:
    _require(len(data) == 8 * count, "a table of another length")
    return np.frombuffer(data, dtype="<i8", count=count)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _decode_barrier(data: memoryview) -> Barrier:
    _require(not len(data), "a barrier has no body")
    return Barrier()


def _packed(values: npt.NDArray[np.int64]) -> bytes:
    return values.astype("<i8", copy=False).tobytes()


_DECODERS: Final[dict[Kind, Callable[[memoryview], Event]]] = {
    Kind.GENESIS: _decode_genesis,
    Kind.HELLO: lambda data: Hello(*_LEVEL.unpack(data)),
    Kind.CREATE: _decode_create,
    Kind.COMMIT: decode_commit,
    Kind.SWAP: _decode_swap,
    Kind.TRIM: _decode_trim,
    Kind.DROP: _decode_drop,
    Kind.HORIZON: lambda data: Horizon(*_INT64.unpack(data)),
    Kind.EXPIRE_PRODUCERS: lambda data: ExpireProducers(*_INT64.unpack(data)),
    Kind.UPGRADE: lambda data: Upgrade(*_LEVEL.unpack(data)),
    Kind.BARRIER: _decode_barrier,
    Kind.GROUP: lambda data: GroupChange(decode_group_event(data)),
    Kind.WRITE: decode_write,
    Kind.EXPIRE_WRITES: decode_expire_writes,
    Kind.GROUP_PART: decode_group_part,
}

_ENCODERS: Final[dict[type[Event], tuple[Kind, Callable[[Any], bytes]]]] = {
    Genesis: (Kind.GENESIS, lambda e: _GENESIS.pack(e.domain, e.level) + e.cluster_id.encode()),
    Hello: (Kind.HELLO, lambda e: _LEVEL.pack(e.supported_level)),
    Create: (
        Kind.CREATE,
        lambda e: _CREATE.pack(e.topic, e.first_partition, len(e.streams)) + _packed(e.streams),
    ),
    Commit: (Kind.COMMIT, encode_commit),
    Swap: (Kind.SWAP, _encode_swap),
    Trim: (
        Kind.TRIM,
        lambda e: _UINT32.pack(len(e.streams)) + _packed(e.streams) + _packed(e.offsets),
    ),
    Drop: (Kind.DROP, lambda e: _UINT32.pack(len(e.streams)) + _packed(e.streams)),
    Horizon: (Kind.HORIZON, lambda e: _INT64.pack(e.time_ms)),
    ExpireProducers: (Kind.EXPIRE_PRODUCERS, lambda e: _INT64.pack(e.cutoff_ms)),
    Upgrade: (Kind.UPGRADE, lambda e: _LEVEL.pack(e.level)),
    Barrier: (Kind.BARRIER, lambda _: b""),
    GroupChange: (Kind.GROUP, lambda e: encode_group_event(e.event)),
    Write: (Kind.WRITE, encode_write),
    ExpireWrites: (Kind.EXPIRE_WRITES, encode_expire_writes),
    GroupPart: (Kind.GROUP_PART, encode_group_part),
}
