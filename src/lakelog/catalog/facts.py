"""A topic's table in PyIceberg's terms: its schema and its data files.

Rules: column ids are taken from the table that a file is added to, never from constants, because
an external catalog may number otherwise; a data file is described by what its writer measured, and
no footer is read again; only the measured columns have bounds and counts.
"""

from collections.abc import Mapping
from typing import Final

from pyiceberg.conversions import to_bytes
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

from lakelog.catalog.definition import HEADER, PARTITION_FIELD_ID, TYPES
from lakelog.catalog.port import DataFileFacts
from lakelog.model.failures import Refused
from lakelog.records.table_schema import FIELD_IDS, MEASURED, REQUIRED

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
