"""Index entries of one stream, packed: a hundred thousand of them are a few arrays. Pure.

Entries follow each other without a gap, so their offsets are the edges between them. A label is
what names an object: the zone of a WAL object, whose id stands beside it, or the key of a file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakelog.model.ids import DomainId, WalId
from lakelog.streams.objects import FileKind
from lakelog.streams.table import Int64s
from lakelog.wal.ids import object_key

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int32s: TypeAlias = npt.NDArray[np.int32]

WAL_ID_BYTES: Final = 16
UNKNOWN_MS: Final = (1 << 63) - 1
"""The greatest timestamp of an entry of which nothing is known: it may hold any."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: the offsets [start, end) lie in these bytes of that object."""

    start: int
    end: int
    kind: FileKind
    key: str
    byte_start: int
    byte_length: int


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
    """Sixteen bytes each, zeros where the entry is in no WAL object."""
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
        kind = FileKind(int(self.kinds[number]))
        name = self.names[self.labels[number]]
        if kind is FileKind.WAL:
            wal_id = WalId(self.wal_ids[number].tobytes())
            name = object_key(name, DomainId(self.domain), wal_id)
        start, end = self.edges[number : number + 2].tolist()
        return Entry(
            start,
            end,
            kind,
            name,
            int(self.byte_starts[number]),
            int(self.byte_lengths[number]),
        )

    def __iter__(self) -> Iterator[Entry]:
        return map(self.entry, range(len(self)))

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
            tuple(self.names[at] for at in used.tolist()),
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
    full = [one for one in parts if len(one)] or list(parts[:1])
    if len(full) == 1:
        return full[0]
    names: dict[str, int] = {}
    labels = []
    for one in full:
        numbers = [names.setdefault(name, len(names)) for name in one.names]
        labels.append(np.array(numbers, np.int32)[one.labels])

    def column(name: str) -> npt.NDArray[Any]:
        return np.concatenate([getattr(one, name) for one in full])

    return Entries(
        full[0].domain,
        np.concatenate([full[0].edges[:1], *(one.edges[1:] for one in full)]),
        column("kinds"),
        column("byte_starts"),
        column("byte_lengths"),
        column("max_timestamps_ms"),
        column("wal_ids"),
        np.concatenate(labels),
        tuple(names),
    )


def follow(entries: Entries) -> bool:
    """Whether these are entries at all: of one length, in order, with names that they know."""
    count = len(entries.kinds)
    columns = (
        entries.byte_starts,
        entries.byte_lengths,
        entries.max_timestamps_ms,
        entries.wal_ids,
        entries.labels,
    )
    if len(entries.edges) != count + 1 or any(len(one) != count for one in columns):
        return False
    if not count:
        return True
    rising = bool((np.diff(entries.edges) > 0).all()) and int(entries.edges[0]) >= 0
    kinds = bool((entries.kinds <= max(FileKind)).all())
    places = bool((entries.byte_starts >= 0).all() and (entries.byte_lengths > 0).all())
    least, most = int(entries.labels.min()), int(entries.labels.max())
    return rising and kinds and places and least >= 0 and most < len(entries.names)
