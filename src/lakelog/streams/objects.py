"""Which objects the index names: WAL objects packed, other files by key. Pure.

References are derived from the entries, never counted: an object without an entry is dropped when
the tables are packed, and until then `index.referenced` leaves it out.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lakelog.model.ids import WalId
from lakelog.streams.table import Columns, Int64s

_KINDS: Final = {
    "kind": np.int8,
    "high": np.uint64,  # the first half of a WAL id
    "low": np.uint64,
    "zone": np.int32,
    "size_bytes": np.int64,
}


_ROW_BYTES: Final = sum(np.dtype(kind).itemsize for kind in _KINDS.values())
KEY_BYTES: Final = 256
"""What the key of a file takes in memory with its place in the map, about."""


class FileKind(IntEnum):
    """What an index entry points into."""

    WAL = 0
    SEGMENT = 1
    PARQUET = 2


class WalName(Struct, frozen=True, gc=False):
    """A WAL object: its id and the zone of the broker that wrote it."""

    kind: ClassVar[FileKind] = FileKind.WAL
    wal_id: WalId
    zone: str


class FileName(Struct, frozen=True, gc=False):
    """A segment or data file, by its key in the object store."""

    kind: FileKind
    key: str


ObjectName = WalName | FileName


def digest(name: ObjectName) -> bytes:
    """Eight bytes that stand for an object in a Swap: what it was planned from."""
    match name:
        case WalName(wal_id=wal_id):
            return blake2b(wal_id, digest_size=8, person=b"wal").digest()
        case FileName(key=key):
            return blake2b(key.encode(), digest_size=8, person=b"file").digest()


class ObjectTable:
    """Rows of objects, named by number in the index."""

    __slots__ = ("_zone_rows", "columns", "keys", "zones")

    def __init__(self) -> None:
        self.columns = Columns(_KINDS)
        self.zones: list[str] = []
        self.keys: dict[int, str] = {}
        self._zone_rows: dict[str, int] = {}

    def add(self, name: ObjectName, *, size_bytes: int) -> int:
        """A new row for this object."""
        row = self.columns.extend(1)
        arrays = self.columns.arrays
        arrays["size_bytes"][row] = size_bytes
        match name:
            case WalName(wal_id=wal_id, zone=zone):
                arrays["high"][row] = int.from_bytes(wal_id[:8], "big")
                arrays["low"][row] = int.from_bytes(wal_id[8:], "big")
                arrays["zone"][row] = self._zone(zone)
            case FileName(kind=kind, key=key):
                arrays["kind"][row] = kind
                self.keys[row] = key
        return row

    def restore(self, table: Mapping[str, npt.NDArray[Any]], labels: Sequence[str]) -> None:
        """Fill an empty table from a checkpoint; `zone` numbers a label: a zone or a file's key."""
        assert not self.columns.count
        self.columns.extend(len(table["kind"]))
        for name in ("kind", "high", "low", "size_bytes"):
            self.columns[name][:] = table[name]
        is_file = table["kind"] != FileKind.WAL
        zones = np.array([self._zone(labels[at]) for at in np.unique(table["zone"][~is_file])])
        used = np.unique(table["zone"][~is_file], return_inverse=True)[1]
        if len(zones):
            self.columns["zone"][~is_file] = zones[used]
        self.keys = {int(row): labels[table["zone"][row]] for row in np.flatnonzero(is_file)}

    def name(self, row: int) -> ObjectName:
        """The object of that row."""
        arrays = self.columns.arrays
        kind = arrays["kind"].item(row)
        if kind:  # not FileKind.WAL, which is 0
            return FileName(FileKind(kind), self.keys[row])
        high, low = arrays["high"].item(row), arrays["low"].item(row)
        wal_id = WalId(high.to_bytes(8, "big") + low.to_bytes(8, "big"))
        return WalName(wal_id, self.zones[arrays["zone"].item(row)])

    def size_bytes(self, row: int) -> int:
        """How large the object of that row is."""
        return int(self.columns.arrays["size_bytes"].item(row))

    def held_bytes(self) -> int:
        """What the rows and keys take in memory, those that nobody names any more included."""
        return _ROW_BYTES * self.columns.count + KEY_BYTES * len(self.keys)

    def pack(self, kept: Int64s) -> None:
        """Keep just these rows, in this order."""
        self.columns = self.columns.taken(kept.astype(np.intp))
        self.keys = {
            new: self.keys[old] for new, old in enumerate(kept.tolist()) if old in self.keys
        }

    def copied(self) -> "ObjectTable":
        """The same objects in memory of their own."""
        made = ObjectTable()
        made.columns = self.columns.copied()
        made.zones = list(self.zones)
        made.keys = dict(self.keys)
        made._zone_rows = dict(self._zone_rows)
        return made

    def _zone(self, zone: str) -> int:
        if zone not in self._zone_rows:
            self._zone_rows[zone] = len(self.zones)
            self.zones.append(zone)
        return self._zone_rows[zone]
