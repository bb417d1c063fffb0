"""What every table of a topic is, before any library: columns, properties, place, vector. Pure.

Whoever makes a table, PyIceberg or `create`, takes it from here.

`Locations` are object keys as other engines can open them, and back: the store's URL and the key.
What comes back from a table's metadata may have been written by somebody else: a location that is
not plainly below the store's own prefix is `Refused`, before anything is read, written or deleted
(S3).

The vector says for every partition up to which offset the table holds the log. It decides alone
whether a range may be appended, is there already, or does not fit (rule 24); so a repeat after a
lost reply, by whomever and whatever expired meanwhile, never adds a row twice.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from lakelog.catalog.port import (
    CLUSTER_ID_PROPERTY,
    OFFSETS_PROPERTY,
    SCHEMA_VERSION,
    SCHEMA_VERSION_PROPERTY,
    TOPIC_ID_PROPERTY,
    TOPIC_PROPERTY,
    Advance,
    Misfit,
    TableDefinition,
    TableName,
)
from lakelog.model.failures import Corrupt, Refused
from lakelog.objects.port import is_key
from lakelog.records.table_schema import MEASURED


class AdvanceStatus(Enum):
    """How an advance that is no misfit stands to the table."""

    FRESH = auto()
    PRESENT = auto()


@dataclass(frozen=True, slots=True)
class JudgedAdvance:
    """The advances of a round by what is to be done with them."""

    fresh: tuple[Advance, ...]
    present: tuple[Advance, ...]
    misfits: tuple[Misfit, ...]


def format_vector(vector: Mapping[int, int]) -> str:
    """The vector as JSON, partitions in order, so that equal vectors have equal text."""
    return json.dumps({str(p): vector[p] for p in sorted(vector)}, separators=(",", ":"))


def parse_vector(text: str) -> dict[int, int]:
    """The vector in a table's property; `Corrupt` for anything that we did not write."""
    try:
        found = json.loads(text)
        vector = {int(partition): end for partition, end in found.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise Corrupt(f"not an offset vector: {text[:100]!r}") from error
    if any(type(end) is not int or end < 0 or partition < 0 for partition, end in vector.items()):
        raise Corrupt(f"not an offset vector: {text[:100]!r}")
    return vector


def judge(vector: Mapping[int, int], advance: Advance) -> AdvanceStatus | Misfit:
    """Whether the table may take the advance, has it, or can do neither."""
    reached = vector.get(advance.partition)
    if reached is not None and reached >= advance.end:
        return AdvanceStatus.PRESENT
    if reached == advance.start or (reached is None and advance.start == 0):
        return AdvanceStatus.FRESH
    if (reached is None or reached < advance.start) and advance.at_log_start:
        return AdvanceStatus.FRESH
    place = "nothing" if reached is None else f"offsets up to {reached}"
    wanted = f"[{advance.start}, {advance.end})"
    return Misfit(advance.partition, f"the table holds {place}, {wanted} does not follow it")


def judge_all(vector: Mapping[int, int], advances: tuple[Advance, ...]) -> JudgedAdvance:
    """Sort the advances of a round, which has one at most for each partition."""
    partitions = [advance.partition for advance in advances]
    assert len(set(partitions)) == len(partitions), partitions
    fresh, present, misfits = [], [], []
    for advance in sorted(advances, key=lambda one: one.partition):
        match judge(vector, advance):
            case Misfit() as misfit:
                misfits.append(misfit)
            case AdvanceStatus.FRESH:
                fresh.append(advance)
            case AdvanceStatus.PRESENT:
                present.append(advance)
    return JudgedAdvance(tuple(fresh), tuple(present), tuple(misfits))


def advanced(vector: Mapping[int, int], advances: tuple[Advance, ...]) -> dict[int, int]:
    """The vector once these advances, all of them fresh, are in the table."""
    return {**vector, **{advance.partition: advance.end for advance in advances}}


_SAME_SCHEME = {"s3a": "s3", "s3n": "s3"}
"""Names under which Hadoop knows the same store."""


@dataclass(frozen=True, slots=True)
class Locations:
    """The mapping for one object store."""

    root: str
    """Ends with a slash; every location of ours begins with it."""

    @classmethod
    def below(cls, url: str) -> "Locations":
        """Locations below the URL that an object store says it has."""
        if url.startswith("file:"):
            # Engines take what follows the scheme as a path and decode nothing.
            return cls(f"file://{unquote(urlsplit(url).path).rstrip('/')}/")
        if url.rstrip(":/") == "memory":
            return cls("memory:///")
        return cls(f"{url.rstrip('/')}/")

    def location(self, key: str) -> str:
        """Where other engines find the object."""
        assert is_key(key), f"not an object key: {key!r}"
        return self.root + key

    def key(self, location: str) -> str:
        """The object's key; `Refused` when the location is not one below the root."""
        key = self._below(location)
        if key is None or not is_key(key):
            raise Refused(f"{location[:300]!r}: is outside {self.root} and is not touched")
        return key

    def _below(self, location: str) -> str | None:
        scheme, colon, rest = location.partition(":")
        if colon and scheme in _SAME_SCHEME:
            location = f"{_SAME_SCHEME[scheme]}:{rest}"
        if self.root.startswith("file://"):
            path = self.root.removeprefix("file://")
            # Java writes one slash, or encodes what we leave as it is.
            roots = [self.root, f"file:{path}", f"file://{quote(path)}", f"file:{quote(path)}"]
        else:
            roots = [self.root]
        for root in roots:
            if location.startswith(root):
                return location[len(root) :]
        return None


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
