"""Entries of the offset index as brokers, readers and the pipeline pass them on. Pure.

An entry says that the offsets [start, end) of a stream lie in one run of bytes of one object. It
has two forms: `Entry` is one of them, to decide and act with; `Entries` are neighbours of one
stream as a few arrays, a hundred thousand at a time. Entries follow each other without a gap (L4),
so their offsets are the edges between them. A label is what names an object: the zone of a WAL
object, whose id stands beside it, or the key of a file. A broker tells of a range as a
`LocatedRange`, which travels as a `PackedRange` and is checked before it is believed.

Three others look alike and are not. `streams.index.EntryRow` names its object by a row of the
domain's tables, `log.plan.Piece` may be a part of an entry, and `StreamColumns` are what a plan
needs of millions of entries: no names, since a file's key is longer than all numbers of its entry.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lakelog.model.ids import DomainId, WalId
from lakelog.objects.port import is_key
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName
from lakelog.streams.table import Int64s
from lakelog.wal.layout import TIME_MS_END, WAL_ID_BYTES, ZONE, object_key

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int32s: TypeAlias = npt.NDArray[np.int32]

UNKNOWN_MS: Final = (1 << 63) - 1
"""The greatest timestamp of an entry of which nothing is known: it may hold any."""

_TIME_BYTES: Final = 6
_PLACES: Final = np.array([1 << 8 * at for at in reversed(range(_TIME_BYTES))], np.int64)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: the offsets [start, end) of a stream lie in these bytes of that object."""

    start: int
    end: int
    name: ObjectName
    byte_start: int
    byte_length: int
    max_timestamp_ms: int
    domain: int
    """That of the stream: the key of a WAL object has it."""

    @property
    def kind(self) -> FileKind:
        """What the entry points into."""
        return self.name.kind

    @property
    def key(self) -> str:
        """Where the object is in the object store."""
        if isinstance(self.name, WalName):
            return object_key(self.name.zone, DomainId(self.domain), self.name.wal_id)
        return self.name.key


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Neighbouring entries of one stream."""

    domain: int
    edges: Int64s
    """One more than there are entries; entry i holds the offsets [edges[i], edges[i + 1])."""
    kinds: Bytes
    byte_starts: Int64s
    byte_lengths: Int64s
    max_timestamps_ms: Int64s
    wal_ids: Bytes
    """Sixteen bytes each, of no meaning where the entry is in no WAL object."""
    labels: Int32s
    """Which of the names is the zone or the key."""
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def start(self) -> int:
        """Where the first entry begins."""
        return int(self.edges[0])

    @property
    def end(self) -> int:
        """Where the last entry ends."""
        return int(self.edges[-1])

    def entry(self, number: int) -> Entry:
        """One entry as a value."""
        (entry,) = self.part(number, number + 1)
        return entry

    def __iter__(self) -> Iterator[Entry]:
        columns = zip(
            pairwise(self.edges.tolist()),
            self._object_names(),
            self.byte_starts.tolist(),
            self.byte_lengths.tolist(),
            self.max_timestamps_ms.tolist(),
            strict=True,
        )
        for (start, end), name, byte_start, byte_length, max_timestamp_ms in columns:
            yield Entry(start, end, name, byte_start, byte_length, max_timestamp_ms, self.domain)

    def _object_names(self) -> Iterator[ObjectName]:
        wal_ids = self.wal_ids.tobytes()
        kinds_and_labels = zip(self.kinds.tolist(), self.labels.tolist(), strict=True)
        for number, (kind, label) in enumerate(kinds_and_labels):
            if kind == FileKind.WAL:
                id_start = number * WAL_ID_BYTES
                wal_id = WalId(wal_ids[id_start : id_start + WAL_ID_BYTES])
                yield WalName(wal_id, self.names[label])
            else:
                yield FileName(FileKind(kind), self.names[label])

    def overlapping(self, *, start: int, end: int) -> "Entries":
        """The entries that hold an offset of [start, end), which is not empty."""
        first = max(0, int(np.searchsorted(self.edges, start, side="right")) - 1)
        stop = int(np.searchsorted(self.edges[:-1], end, side="left"))
        return self.part(first, max(first, stop))

    def part(self, first: int, stop: int) -> "Entries":
        """The entries [first, stop), with the names that they need."""
        if first == 0 and stop == len(self):
            return self
        chosen = slice(first, stop)
        used, labels = np.unique(self.labels[chosen], return_inverse=True)
        return Entries(
            self.domain,
            self.edges[first : stop + 1],
            self.kinds[chosen],
            self.byte_starts[chosen],
            self.byte_lengths[chosen],
            self.max_timestamps_ms[chosen],
            self.wal_ids[chosen],
            labels.astype(np.int32),
            tuple(self.names[label] for label in used.tolist()),
        )

    def weights(self, *, start: int, end: int) -> tuple[Int64s, npt.NDArray[np.float64]]:
        """Offsets that rise from start to end, and the bytes that are read up to each of them."""
        edges = np.clip(self.edges, start, end)
        shares = np.diff(edges) / np.maximum(np.diff(self.edges), 1)
        sums = np.concatenate(([0.0], np.cumsum(shares * self.byte_lengths)))
        return edges, sums


def no_entries(domain: int, offset: int) -> Entries:
    """No entries, at that offset."""
    nothing = np.zeros(0, np.int64)
    return Entries(
        domain,
        np.array([offset], np.int64),
        np.zeros(0, np.uint8),
        nothing,
        nothing,
        nothing,
        np.zeros((0, WAL_ID_BYTES), np.uint8),
        np.zeros(0, np.int32),
        (),
    )


def joined(parts: Sequence[Entries]) -> Entries:
    """Entries that follow each other as one; there is at least one part."""
    full = [part for part in parts if len(part)] or list(parts[:1])
    if len(full) == 1:
        return full[0]
    names: dict[str, int] = {}
    labels = []
    for part in full:
        numbers = [names.setdefault(name, len(names)) for name in part.names]
        labels.append(np.array(numbers, np.int32)[part.labels])

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in full])

    return Entries(
        full[0].domain,
        np.concatenate([full[0].edges[:1], *(part.edges[1:] for part in full)]),
        column("kinds"),
        column("byte_starts"),
        column("byte_lengths"),
        column("max_timestamps_ms"),
        column("wal_ids"),
        np.concatenate(labels),
        tuple(names),
    )


@dataclass(frozen=True, slots=True, eq=False)
class LocatedRange:
    """Where a range of a stream lies now, and what its stream has."""

    log_start: int
    first_start: int
    """Where the first entry of the whole stream begins; the head when there is none."""
    head: int
    entries: Entries
    """Those that hold an offset of the range, or the first of them."""


class PackedRange(Struct, frozen=True, array_like=True):
    """A located range as it travels: each column as its numbers are in memory, little-endian."""

    domain: int
    log_start: int
    first_start: int
    head: int
    edges: bytes
    kinds: bytes
    byte_starts: bytes
    byte_lengths: bytes
    max_timestamps_ms: bytes
    wal_ids: bytes
    labels: bytes
    names: list[str]


def packed_range(located: LocatedRange) -> PackedRange:
    """The range as it travels."""
    entries = located.entries
    return PackedRange(
        domain=entries.domain,
        log_start=located.log_start,
        first_start=located.first_start,
        head=located.head,
        edges=_numbers(entries.edges),
        kinds=entries.kinds.tobytes(),
        byte_starts=_numbers(entries.byte_starts),
        byte_lengths=_numbers(entries.byte_lengths),
        max_timestamps_ms=_numbers(entries.max_timestamps_ms),
        wal_ids=entries.wal_ids.tobytes(),
        labels=entries.labels.astype("<i4", copy=False).tobytes(),
        names=list(entries.names),
    )


def unpacked_range(packed: PackedRange) -> LocatedRange:
    """The range that somebody packed; ValueError when its entries make no sense."""
    entries = Entries(
        packed.domain,
        np.frombuffer(packed.edges, "<i8"),
        np.frombuffer(packed.kinds, np.uint8),
        np.frombuffer(packed.byte_starts, "<i8"),
        np.frombuffer(packed.byte_lengths, "<i8"),
        np.frombuffer(packed.max_timestamps_ms, "<i8"),
        np.frombuffer(packed.wal_ids, np.uint8).reshape(-1, WAL_ID_BYTES),
        np.frombuffer(packed.labels, "<i4"),
        tuple(packed.names),
    )
    if not is_sound(entries):
        raise ValueError("entries that make no sense")
    return LocatedRange(packed.log_start, packed.first_start, packed.head, entries)


def is_sound(entries: Entries) -> bool:
    """Whether these are entries at all: of one length, in order, of objects that can exist."""
    count = len(entries.kinds)
    columns = (
        entries.byte_starts,
        entries.byte_lengths,
        entries.max_timestamps_ms,
        entries.wal_ids,
        entries.labels,
    )
    if len(entries.edges) != count + 1 or any(len(column) != count for column in columns):
        return False
    if not count:
        return True
    rising = bool((np.diff(entries.edges) > 0).all()) and int(entries.edges[0]) >= 0
    kinds = bool((entries.kinds <= max(FileKind)).all())
    places = bool((entries.byte_starts >= 0).all() and (entries.byte_lengths > 0).all())
    least, most = int(entries.labels.min()), int(entries.labels.max())
    labels = least >= 0 and most < len(entries.names)
    return rising and kinds and places and labels and _are_named(entries)


def _are_named(entries: Entries) -> bool:
    """Whether files have keys, and WAL objects ids and zones that keys are made of."""
    is_wal = entries.kinds == FileKind.WAL
    keys = {entries.names[label] for label in set(entries.labels[~is_wal].tolist())}
    zones = {entries.names[label] for label in set(entries.labels[is_wal].tolist())}
    times_ms = entries.wal_ids[is_wal, :_TIME_BYTES].astype(np.int64) @ _PLACES
    timely = bool((times_ms < TIME_MS_END).all()) and entries.domain >= 0
    return timely and all(map(is_key, keys)) and all(map(ZONE.fullmatch, zones))


@dataclass(frozen=True, slots=True, eq=False)
class StreamColumns:
    """All entries of a stream in order, as columns: a plan reads millions of them.

    Which objects they are in is left out, and asked for (`LocatedRange`) once a range is chosen.
    """

    starts: Int64s
    ends: Int64s
    kinds: Int64s
    byte_lengths: Int64s
    object_times_ms: Int64s
    """When each entry's WAL object was closed; of no meaning for other kinds."""


@dataclass(frozen=True, slots=True)
class StreamIndex:
    """A stream's entries: all of them, or those from the last one before the first WAL entry on."""

    log_start: int
    head: int
    columns: StreamColumns


class PackedColumns(Struct, frozen=True, array_like=True):
    """A stream's entries as a plan needs them."""

    log_start: int
    head: int
    starts: bytes
    ends: bytes
    kinds: bytes
    byte_lengths: bytes
    object_times_ms: bytes


def packed_columns(index: StreamIndex) -> PackedColumns:
    """A stream's index as it travels."""
    found = index.columns
    return PackedColumns(
        log_start=index.log_start,
        head=index.head,
        starts=_numbers(found.starts),
        ends=_numbers(found.ends),
        kinds=found.kinds.astype(np.uint8).tobytes(),
        byte_lengths=_numbers(found.byte_lengths),
        object_times_ms=_numbers(found.object_times_ms),
    )


def unpacked_columns(packed: PackedColumns) -> StreamIndex:
    """The stream's index; ValueError when the columns do not fit together."""
    kinds = np.frombuffer(packed.kinds, np.uint8).astype(np.int64)
    columns = [
        np.frombuffer(column, "<i8")
        for column in (packed.starts, packed.ends, packed.byte_lengths, packed.object_times_ms)
    ]
    if any(len(column) != len(kinds) for column in columns):
        raise ValueError("columns of several lengths")
    starts, ends, byte_lengths, times_ms = columns
    found = StreamColumns(starts, ends, kinds, byte_lengths, times_ms)
    return StreamIndex(packed.log_start, packed.head, found)


def _numbers(column: npt.NDArray[Any]) -> bytes:
    return column.astype("<i8", copy=False).tobytes()
