"""What the tables of the built-in catalog say of themselves, read without PyIceberg.

A table's metadata.json is kept until its pointer names another one. One that cannot be read says
why, and the others are read all the same. The tables of another catalog are not known here.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from lakelog.catalog.definition import Locations
from lakelog.catalog.offset_vector import parse_vector
from lakelog.catalog.pointers import Pointers, TablePointer
from lakelog.catalog.port import OFFSETS_PROPERTY, SnapshotView, TableName
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Failure
from lakelog.objects.port import ObjectStore

READS_AT_ONCE: Final = 16


class Snapshot(msgspec.Struct, frozen=True, rename="kebab"):
    """What is read of a snapshot."""

    snapshot_id: int
    timestamp_ms: int
    summary: dict[str, str] = {}
    sequence_number: int = 0

    def view(self) -> SnapshotView:
        """The snapshot as catalogs show it; `Corrupt` when its vector is none."""
        text = self.summary.get(OFFSETS_PROPERTY)
        return SnapshotView(
            snapshot_id=self.snapshot_id,
            sequence_number=self.sequence_number,
            timestamp_ms=self.timestamp_ms,
            operation=self.summary.get("operation", ""),
            vector=None if text is None else parse_vector(text),
        )


class Metadata(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of a metadata.json that is read."""

    table_uuid: str
    location: str
    current_snapshot_id: int | None = None
    snapshots: list[Snapshot] = []
    properties: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table at one metadata.json, or why it cannot be read; nothing of one that is not there."""

    metadata_location: str | None = None
    metadata: Metadata | None = None
    vector: Mapping[int, int] | None = None
    error: str | None = None

    def current(self) -> Snapshot | None:
        """The snapshot that readers see."""
        if self.metadata is None:
            return None
        wanted = self.metadata.current_snapshot_id
        found = (one for one in self.metadata.snapshots if one.snapshot_id == wanted)
        return next(found, None)


class TableReads:
    """The tables of one namespace."""

    def __init__(
        self, store: MetadataStore, objects: ObjectStore, *, namespace: str, is_builtin: bool
    ) -> None:
        self.namespace = namespace
        self.is_builtin = is_builtin
        self._pointers = Pointers(store)
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._known: dict[str, TableFacts] = {}
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def all(self) -> dict[str, TableFacts]:
        """Every table there is, by its topic's name."""
        if not self.is_builtin:
            return {}
        pointers = await self._pointers.tables(self.namespace)
        tables = await asyncio.gather(*(self._read(pointer) for pointer in pointers))
        names = [pointer.name.table for pointer in pointers]
        self._known = dict(zip(names, tables, strict=True))
        return dict(self._known)

    async def of(self, topic: str) -> TableFacts:
        """The table of a topic as it is now."""
        if not self.is_builtin:
            return TableFacts()
        pointer = await self._pointers.get(TableName(self.namespace, topic))
        return TableFacts() if pointer is None else await self._read(pointer)

    async def _read(self, pointer: TablePointer) -> TableFacts:
        place = pointer.metadata_location
        known = self._known.get(pointer.name.table)
        if known is not None and known.metadata_location == place and known.error is None:
            return known
        async with self._reads:
            try:
                content = await self._objects.get(self._locations.key(place))
                return _parsed(place, content)
            except Failure as reason:
                return TableFacts(place, error=str(reason))


def _parsed(place: str, content: memoryview) -> TableFacts:
    try:
        metadata = msgspec.json.decode(content, type=Metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError) as reason:
        raise Corrupt(f"{place} is not the metadata of a table: {reason}") from reason
    vector = parse_vector(metadata.properties.get(OFFSETS_PROPERTY, "{}"))
    return TableFacts(place, metadata, vector)
