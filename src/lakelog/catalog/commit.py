"""One table, one compare-and-swap: make it, append to it, exchange its files, with PyIceberg.

In any of its catalogs. What changes a table loads nothing and repeats nothing: it decides by the
table it is given, which must be the one its caller decided on, and sends one commit that holds
only on that snapshot (rule 24). The files, the vector and the expiry of old snapshots are one
change, and what expires is put down before it is sent.

Rules of its schema and data files: column ids are taken from the table that a file is added to,
never from constants, because an external catalog may number otherwise; a data file is described by
what its writer measured, and no footer is read again; only the measured columns have bounds and
counts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

from lakelog.catalog.definition import (
    FORMAT_VERSION,
    HEADER,
    PARTITION_FIELD_ID,
    TYPES,
    Locations,
    advanced,
    format_vector,
    judge_all,
    table_properties,
)
from lakelog.catalog.live_files import number, reading, snapshot_view, token_of, vector_of, view_of
from lakelog.catalog.port import (
    COMMIT_ID_PROPERTY,
    OFFSETS_PROPERTY,
    TOPIC_ID_PROPERTY,
    Advance,
    AppendResult,
    DataFileFacts,
    Replacement,
    SnapshotView,
    TableDefinition,
    TableName,
    TableView,
)
from lakelog.catalog.pyiceberg_changes import Removal, StagedChange, find_removal
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Refused
from lakelog.records.table_schema import FIELD_IDS, MEASURED, REQUIRED

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from lakelog.catalog.external import ExternalCatalog

_TYPES: Final[Mapping[str, PrimitiveType]] = {
    str(kind): kind
    for kind in (
        BinaryType(),
        IntegerType(),
        LongType(),
        StringType(),
        TimestamptzType(),
    )
}
"""PyIceberg's types by Iceberg's words for them."""


def iceberg_schema() -> Schema:
    """The columns of a topic's table; a catalog numbers them in the order given here."""

    def field(path: str, kind: IcebergType) -> NestedField:
        name = path.rpartition(".")[2]
        return NestedField(FIELD_IDS[path], name, kind, required=path in REQUIRED)

    header = StructType(
        *(field(path, type_of(path)) for path in (f"{HEADER}.key", f"{HEADER}.value"))
    )
    headers = ListType(FIELD_IDS[HEADER], header, element_required=HEADER in REQUIRED)
    columns = sorted((path for path in FIELD_IDS if "." not in path), key=FIELD_IDS.__getitem__)
    return Schema(*(field(p, type_of(p) if p in TYPES else headers) for p in columns))


def type_of(path: str) -> PrimitiveType:
    """The type of a column that is not made of others."""
    return _TYPES[TYPES[path]]


def partition_spec() -> PartitionSpec:
    """By Kafka partition and nothing else: a file is one contiguous range of offsets of one."""
    source = FIELD_IDS["partition"]
    return PartitionSpec(
        PartitionField(source, PARTITION_FIELD_ID, IdentityTransform(), "partition")
    )


def sort_order() -> SortOrder:
    """Rows of a file stand in the order of their offsets."""
    return SortOrder(
        SortField(FIELD_IDS["offset"], IdentityTransform(), direction=SortDirection.ASC)
    )


def data_file(table: Table, facts: DataFileFacts, location: str) -> DataFile:
    """The file as the table's manifests describe it."""
    schema, spec = table.schema(), table.spec()
    ids = column_ids(schema)
    transforms = [(field.source_id, type(field.transform)) for field in spec.fields]
    if transforms != [(ids["partition"], IdentityTransform)]:
        raise Refused(f"{table.name()}: is not partitioned by identity(partition), but by {spec}")
    lower = _bounds(ids, (facts.partition, facts.offset_first, facts.timestamp_min_us))
    upper = _bounds(ids, (facts.partition, facts.offset_end - 1, facts.timestamp_max_us))
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(facts.partition),
        record_count=facts.row_count,
        file_size_in_bytes=facts.size_bytes,
        column_sizes={ids[path]: size for path, size in facts.column_sizes},
        value_counts={ids[path]: facts.row_count for path in MEASURED},
        null_value_counts={ids[path]: 0 for path in MEASURED},
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=list(facts.row_group_starts) or None,
        sort_order_id=table.sort_order().order_id,
        key_metadata=None,
        equality_ids=None,
    )
    made.spec_id = spec.spec_id
    return made


def column_ids(schema: Schema) -> dict[str, int]:
    """The ids of our columns by path, as this table has them; `Refused` when one is gone."""
    found = {}
    for path in FIELD_IDS:
        try:
            found[path] = schema.find_field(path).field_id
        except ValueError as error:
            raise Refused(f"the table has no column {path!r} any more") from error
    return found


def _bounds(ids: Mapping[str, int], values: tuple[int, int, int]) -> dict[int, bytes]:
    return {
        ids[path]: to_bytes(type_of(path), value)
        for path, value in zip(MEASURED, values, strict=True)
    }


AnyCatalog: TypeAlias = "Catalog | ExternalCatalog"


def _nothing(_: Sequence[SnapshotView]) -> None:
    """What is done where nobody remembers snapshots."""


@dataclass(frozen=True, slots=True)
class CommitRequirements:
    """On which table a change holds, and what it says of itself."""

    topic_id: str
    expect: str
    """The token of the table that the caller decided on."""
    commit_id: str
    snapshots_kept: int
    remember: Callable[[Sequence[SnapshotView]], None] = _nothing
    """Told of the snapshots that will be gone, before the change is sent; may raise."""

    def check(self, table: Table) -> None:
        """`NotFound` for the table of another topic, `Conflict` for one that moved on."""
        name = "/".join(table.name())
        if not _is_of(table, self.topic_id):
            # The topic was deleted and made again: its offsets are others, though they look alike.
            raise NotFound(f"{name}: is the table of another topic now")
        if token_of(table) != self.expect:
            raise Conflict(f"{name}: moved on from {self.expect} to {token_of(table)}")


def create_table(catalog: AnyCatalog, definition: TableDefinition, location: str) -> Table:
    """Make the table of a topic, or find that it is made; `Refused` when the name is another's."""
    name = definition.name
    identifier = (name.namespace, name.table)
    try:
        table = catalog.create_table(
            identifier,
            iceberg_schema(),
            location,
            partition_spec(),
            sort_order(),
            {"format-version": str(FORMAT_VERSION), **table_properties(definition)},
        )
    except TableAlreadyExistsError:
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError as error:
            raise Conflict(f"{name}: came and went meanwhile") from error
    except CommitStateUnknownException as error:
        raise OutcomeUnknown(f"{name}: {error}") from error
    if not _is_of(table, definition.topic_id):
        raise Refused(f"{name}: is the table of another topic; choose another namespace")
    return table


def load_table(catalog: AnyCatalog, name: TableName) -> Table | None:
    """The table at its newest metadata, or None."""
    try:
        return catalog.load_table((name.namespace, name.table))
    except NoSuchTableError:
        return None


def drop_table(catalog: AnyCatalog, name: TableName, *, topic_id: str) -> None:
    """Forget the topic's table, not its files; gone already is fine, another topic's stays."""
    table = load_table(catalog, name)
    if table is None or not _is_of(table, topic_id):
        return
    try:
        catalog.drop_table((name.namespace, name.table))
    except NoSuchTableError:
        return


def _is_of(table: Table, topic_id: str) -> bool:
    return table.properties.get(TOPIC_ID_PROPERTY) == topic_id


def append_files(
    table: Table, advances: Sequence[Advance], locations: Locations, terms: CommitRequirements
) -> AppendResult:
    """Append what the table's vector admits, by one commit; nothing is sent when that is nothing.

    `Conflict`, `Unavailable` and `Refused` say that nothing changed, `OutcomeUnknown` that it may
    have. In both cases: load the table and decide anew.
    """
    terms.check(table)
    vector = _vector(table)
    judged = judge_all(vector, tuple(advances))
    if judged.fresh:
        text = format_vector(advanced(vector, judged.fresh))
        files = [file for one in judged.fresh for file in one.files]
        change = StagedChange(table)
        change.set_properties({OFFSETS_PROPERTY: text})
        change.add(
            [data_file(table, file, locations.location(file.key)) for file in files],
            {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id},
        )
        table = _sent(change, terms)
    return AppendResult(
        table=view_of(table),
        added=tuple(one.partition for one in judged.fresh),
        present=tuple(one.partition for one in judged.present),
        refused=judged.misfits,
    )


def move_table(table: Table, terms: CommitRequirements) -> TableView:
    """Make a snapshot that changes nothing, so that no commit on the one before can land."""
    terms.check(table)
    text = format_vector(_vector(table))
    change = StagedChange(table)
    change.set_properties({OFFSETS_PROPERTY: text})
    change.add((), {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id})
    return view_of(_sent(change, terms))


def replace_files(
    table: Table, replacement: Replacement, locations: Locations, terms: CommitRequirements
) -> TableView:
    """Exchange files by one commit; `Conflict`, and nothing written, when one is not there."""
    terms.check(table)
    removed = [locations.location(key) for key in replacement.removed]
    text = format_vector(_vector(table))
    removal = find_removal(table, replacement.partition, removed)
    _check_fit(table, replacement, removal)
    change = StagedChange(table)
    change.set_properties({OFFSETS_PROPERTY: text})
    change.exchange(
        removal,
        [data_file(table, file, locations.location(file.key)) for file in replacement.added],
        {OFFSETS_PROPERTY: text, COMMIT_ID_PROPERTY: terms.commit_id},
        drops_rows=replacement.drops_rows,
    )
    return view_of(_sent(change, terms))


def _sent(change: StagedChange, terms: CommitRequirements) -> Table:
    """The table after the change, which also lets old snapshots go."""
    gone = change.expire(terms.snapshots_kept)
    if gone:
        terms.remember([snapshot_view(one) for one in gone])
    return change.send()


def _vector(table: Table) -> dict[int, int]:
    with reading(table):
        return vector_of(table)


def _check_fit(table: Table, replacement: Replacement, removal: Removal) -> None:
    """Refuse files that cannot hold what those hold that they replace."""
    name = "/".join(table.name())
    before = sum(file.record_count for file in removal.files)
    after = sum(file.row_count for file in replacement.added)
    if after > before or (after < before and not replacement.drops_rows):
        raise Refused(f"{name}: {after} rows cannot take the place of {before}")
    offset = table.schema().find_field("offset").field_id
    lower = [bound for file in removal.files if (bound := file.lower_bounds.get(offset))]
    upper = [bound for file in removal.files if (bound := file.upper_bounds.get(offset))]
    start, end = min(map(number, lower), default=0), max(map(number, upper), default=-1) + 1
    for file in replacement.added:
        if not start <= file.offset_first < file.offset_end <= end:
            raise Refused(f"{name}: {file.key} holds others than the offsets [{start}, {end})")
