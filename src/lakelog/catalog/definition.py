"""What every table of a topic is, before any library: its columns, properties, and its place. Pure.

Whoever makes a table, PyIceberg or `birth`, takes it from here.
"""

from collections.abc import Mapping
from typing import Final

from lakelog.catalog.locations import Locations
from lakelog.catalog.offsets import format_vector
from lakelog.catalog.port import (
    CLUSTER_ID_PROPERTY,
    OFFSETS_PROPERTY,
    SCHEMA_VERSION,
    SCHEMA_VERSION_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    TableDefinition,
    TableName,
)
from lakelog.model.failures import Refused
from lakelog.objects.confinement import is_key
from lakelog.records.table_schema import MEASURED

TABLES: Final = "tables"
"""What the keys of all metadata of tables begin with."""

FORMAT_VERSION: Final = 2

PARTITION_FIELD_ID: Final = 1000
"""Where Iceberg begins to number the fields of partition specs."""

HEADER: Final = "headers.element"

TYPES: Final[Mapping[str, str]] = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamptz",
    "key": "binary",
    "value": "binary",
    "producer_id": "long",
    "producer_epoch": "int",
    "base_sequence": "int",
    "attributes": "int",
    "record_crc": "int",
    "raw": "binary",
    f"{HEADER}.key": "string",
    f"{HEADER}.value": "binary",
}
"""The type of every column that is not made of others, in Iceberg's words."""

SETTINGS: Final[Mapping[str, str]] = {
    # A library that repeats a refused commit adds the rows again.
    "commit.retry.num-retries": "0",
    # The log names the same files: only its own collector may delete them.
    "gc.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "none",
    **{f"write.metadata.metrics.column.{column}": "full" for column in MEASURED},
}
"""How every table of ours is kept, whichever catalog it is in."""

_VERSION_PROPERTY: Final = "format-version"
"""Iceberg keeps it beside the properties, not among them."""


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """What a new table says of itself."""
    asked = {k: v for k, v in definition.properties.items() if k != _VERSION_PROPERTY}
    return {
        **asked,
        **SETTINGS,
        TOPIC_PROPERTY: definition.topic,
        TOPIC_ID_PROPERTY: definition.topic_id,
        CLUSTER_ID_PROPERTY: definition.cluster_id,
        SCHEMA_VERSION_PROPERTY: str(SCHEMA_VERSION),
        OFFSETS_PROPERTY: format_vector({}),
    }


def table_prefix(definition: TableDefinition) -> str:
    """The key below which the table's metadata lies; another topic's is elsewhere."""
    parts = (definition.name.namespace, definition.name.table, definition.topic_id)
    key = "/".join((TABLES, *parts))
    if not is_key(key) or any("/" in part for part in parts):
        raise Refused(f"{definition.name}: cannot be the name of a table in an object store")
    return key


def owner_of(name: TableName, metadata_location: str, locations: Locations) -> str | None:
    """The id of the topic whose table it is, by where the metadata lies; None if it is nobody's."""
    try:
        parts = locations.key(metadata_location).split("/")
    except Refused:
        return None
    if parts[:3] != [TABLES, name.namespace, name.table] or len(parts) <= 4:
        return None
    return parts[3]
