"""What a loaded table holds and names: its vector, its data files, every object it needs.

Works on tables of any PyIceberg catalog and imports nothing of the library itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakelog.catalog.definition import Locations, parse_vector
from lakelog.catalog.port import OFFSETS_PROPERTY, DataFileView, SnapshotView, TableName, TableView
from lakelog.model.failures import Corrupt, NotFound, Unavailable
from lakelog.records.table_schema import FIELD_IDS

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def vector_of(table: "Table") -> dict[int, int]:
    """Up to which offset the table holds each partition.

    The property decides, because it outlives every snapshot. The nearest snapshot of ours must
    agree: when it does not, somebody turned the table back, and an append would leave a hole. A
    table that lost the property is measured by its snapshots, and at last by its files' bounds.
    """
    text = table.properties.get(OFFSETS_PROPERTY)
    chain = ancestors(table.metadata, table.metadata.current_snapshot_id)
    nearest = next((v for one in chain if (v := _summary_vector(one)) is not None), None)
    if text is None:
        return _measured_vector(table) if nearest is None else nearest
    vector = parse_vector(text)
    if nearest is not None and nearest != vector:
        raise Corrupt(
            f"{'/'.join(table.name())}: its property {OFFSETS_PROPERTY} and its newest snapshot "
            "disagree; somebody changed the table from outside"
        )
    return vector


def token_of(table: "Table") -> str:
    """What changes with every snapshot, and when another table takes the name."""
    head = table.metadata.current_snapshot_id
    return f"{table.metadata.table_uuid}:{'' if head is None else head}"


def view_of(table: "Table") -> TableView:
    """The table as a value."""
    namespace, name = table.name()
    current = table.current_snapshot()
    return TableView(
        name=TableName(namespace, name),
        uuid=str(table.metadata.table_uuid),
        token=token_of(table),
        location=table.location(),
        metadata_location=table.metadata_location,
        snapshot_id=None if current is None else current.snapshot_id,
        vector=vector_of(table),
        properties=dict(table.properties),
        snapshots=tuple(snapshot_view(one) for one in table.metadata.snapshots),
        field_ids=_field_ids(table),
    )


def _field_ids(table: "Table") -> dict[str, int]:
    """Also of a table that lacks some: it may be a stranger's, or going."""
    schema = table.schema()
    found = {}
    for path in FIELD_IDS:
        with suppress(ValueError):
            found[path] = schema.find_field(path).field_id
    return found


@contextmanager
def reading(table: "Table") -> Iterator[None]:
    """Where objects of a loaded table are read: one that is gone does not mean that the table is.

    It moved on meanwhile and a collector was fast, or it lost an object; a later look shows which.
    """
    try:
        yield
    except NotFound as error:
        name = "/".join(table.name())
        raise Unavailable(f"{name}: an object that it named is not there: {error}") from error


def ancestors(metadata: "TableMetadata", head: int | None) -> "Iterator[Snapshot]":
    """A snapshot and those before it that are left, the newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while head is not None and head in by_id:
        snapshot = by_id.pop(head)  # popped: a chain that a stranger closed to a ring ends too
        yield snapshot
        head = snapshot.parent_snapshot_id


def files_of(
    table: "Table", locations: Locations, *, partition: int, start: int, end: int
) -> list[DataFileView]:
    """The data files of the newest snapshot with rows of these offsets, sorted by offset."""
    offset = table.schema().find_field("offset").field_id
    found = []
    for entry in _live_entries(table, table.current_snapshot(), partition):
        file = entry.data_file
        lower, upper = file.lower_bounds.get(offset), file.upper_bounds.get(offset)
        if file.partition[0] != partition or lower is None or upper is None:
            continue
        first, after = number(lower), number(upper) + 1
        if first < end and start < after:
            key = locations.key(file.file_path)
            rows, size = file.record_count, file.file_size_in_bytes
            found.append(DataFileView(key, partition, first, after, rows, size))
    return sorted(found, key=lambda file: file.offset_first)


def reachable_keys(table: "Table", locations: Locations) -> frozenset[str]:
    """Every object that a reader of any snapshot that is left may open."""
    named = {table.metadata_location}
    named |= {entry.metadata_file for entry in table.metadata.metadata_log}
    named |= {file.statistics_path for file in table.metadata.statistics}
    read: set[str] = set()
    for snapshot in table.metadata.snapshots:
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            named |= {entry.data_file.file_path for entry in entries}
    return frozenset(locations.key(location) for location in named | read)


def snapshot_view(snapshot: "Snapshot") -> SnapshotView:
    """The snapshot as a value."""
    summary = snapshot.summary
    return SnapshotView(
        snapshot_id=snapshot.snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        timestamp_ms=snapshot.timestamp_ms,
        operation="" if summary is None else summary.operation.value,
        vector=_summary_vector(snapshot),
    )


def _summary_vector(snapshot: "Snapshot") -> dict[int, int] | None:
    text = None if snapshot.summary is None else snapshot.summary.get(OFFSETS_PROPERTY)
    return None if text is None else parse_vector(text)


def _measured_vector(table: "Table") -> dict[int, int]:
    offset = table.schema().find_field("offset").field_id
    vector: dict[int, int] = {}
    for entry in _live_entries(table, table.current_snapshot(), None):
        file = entry.data_file
        upper = file.upper_bounds.get(offset)
        if upper is None:
            raise Corrupt(f"{file.file_path}: has no bounds, so the table's end is unknown")
        partition = file.partition[0]
        vector[partition] = max(vector.get(partition, 0), number(upper) + 1)
    return vector


def _live_entries(
    table: "Table", snapshot: "Snapshot | None", partition: int | None
) -> "Iterator[ManifestEntry]":
    """The files of a snapshot, without the manifests that cannot hold the partition."""
    for manifest in () if snapshot is None else snapshot.manifests(table.io):
        if partition is None or may_hold(manifest, partition):
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def may_hold(manifest: "ManifestFile", partition: int) -> bool:
    """Whether files of the partition can be in the manifest, by the bounds in the list."""
    if not manifest.partitions:
        return True
    bounds = manifest.partitions[0]
    if bounds.lower_bound is None or bounds.upper_bound is None:
        return True
    return number(bounds.lower_bound) <= partition <= number(bounds.upper_bound)


def number(bound: bytes) -> int:
    """A bound of a whole number, of either width."""
    return int.from_bytes(bound, "little", signed=True)
