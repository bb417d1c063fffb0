"""The metadata of a table as answers have it: stored bytes in, bytes out. Pure; no PyIceberg.

A metadata.json becomes part of an answer as it is stored. What has to be looked at (snapshots that
a branch or tag names, properties, columns) is decoded, and nothing else is.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from lakelog.catalog.guard import Field
from lakelog.catalog.port import TableName
from lakelog.model.failures import Corrupt
from lakelog.records.table_schema import FIELD_IDS

KEPT_BYTES_MAX: Final = 32 << 20
"""How much metadata of tables a broker keeps in memory."""

_ETAG_BYTES: Final = 16
_Members = dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table at one moment: where its metadata is, and the bytes of it."""

    name: TableName
    metadata_location: str
    metadata: bytes


class _Numbered(msgspec.Struct):
    """A snapshot, or the reference to one."""

    snapshot_id: int = msgspec.field(name="snapshot-id")


class _Schema(msgspec.Struct):
    fields: list[dict[str, object]]
    schema_id: int = msgspec.field(name="schema-id")


class _Facts(msgspec.Struct):
    """What a change from outside is judged by."""

    schemas: list[_Schema]
    current_schema_id: int = msgspec.field(name="current-schema-id")
    properties: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The table's properties, and those of its columns that belong to the log."""

    properties: Mapping[str, str]
    fields: tuple[Field, ...]


class MetadataCache:
    """Metadata by its location, whose content never changes; what was not used longest goes."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self.size_bytes = 0
        """The metadata that is kept."""

    def get(self, location: str) -> bytes | None:
        """The metadata at this location, if it is kept."""
        found = self._kept.get(location)
        if found is not None:
            self._kept.move_to_end(location)
        return found

    def put(self, location: str, metadata: bytes) -> None:
        """Keep it, unless it is larger than everything that may be kept."""
        if len(metadata) > self._bytes_max or location in self._kept:
            return
        self._kept[location] = metadata
        self.size_bytes += len(metadata)
        while self.size_bytes > self._bytes_max:
            _, gone = self._kept.popitem(last=False)
            self.size_bytes -= len(gone)


def checked(location: str, content: memoryview) -> bytes:
    """The bytes of a metadata.json, which must be a JSON object; else `Corrupt`."""
    metadata = bytes(content)  # the one copy: an answer is made of it again and again
    _members(location, metadata)
    return metadata


def facts_of(table: StoredTable) -> TableFacts:
    """What a change from outside is judged by."""
    try:
        found = msgspec.json.decode(table.metadata, type=_Facts)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"{table.metadata_location}: {error}") from error
    columns = next(
        (one.fields for one in found.schemas if one.schema_id == found.current_schema_id), None
    )
    if columns is None:
        raise Corrupt(f"{table.metadata_location}: has no current schema")
    owned = tuple(column for column in columns if column.get("name") in FIELD_IDS)
    return TableFacts(found.properties, owned)


def only_referenced(table: StoredTable) -> bytes:
    """The metadata with the snapshots alone that a branch or tag names, and the newest one."""
    members = _members(table.metadata_location, table.metadata)
    try:
        snapshots = msgspec.json.decode(members.get("snapshots", b"[]"), type=list[msgspec.Raw])
        refs = msgspec.json.decode(members.get("refs", b"{}"), type=dict[str, _Numbered])
        current = members.get("current-snapshot-id", b"null")
        named = {ref.snapshot_id for ref in refs.values()}
        named.add(msgspec.json.decode(current, type=int | None) or -1)
        kept = [
            one
            for one in snapshots
            if msgspec.json.decode(one, type=_Numbered).snapshot_id in named
        ]
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"{table.metadata_location}: {error}") from error
    members["snapshots"] = msgspec.Raw(msgspec.json.encode(kept))
    return msgspec.json.encode(members)


def load_result(
    table: StoredTable,
    metadata: bytes,
    config: Mapping[str, str],
    *,
    credentials_below: Sequence[str],
) -> bytes:
    """The protocol's LoadTableResult; the keys in `config` are for what is below locations."""
    extra = b""
    if credentials_below:
        credentials = [{"prefix": below, "config": dict(config)} for below in credentials_below]
        extra = b',"storage-credentials":' + msgspec.json.encode(credentials)
    told = b',"config":' + msgspec.json.encode(dict(config))
    return commit_result(table, metadata)[:-1] + told + extra + b"}"


def commit_result(table: StoredTable, metadata: bytes) -> bytes:
    """The protocol's CommitTableResponse."""
    place = msgspec.json.encode(table.metadata_location)
    return b'{"metadata-location":' + place + b',"metadata":' + metadata + b"}"


def etag(table: StoredTable, *variant: object) -> str:
    """One tag for each content of an answer: the metadata is known by its location."""
    parts = repr((table.metadata_location, *variant)).encode(errors="backslashreplace")
    return f'"{blake2b(parts, digest_size=_ETAG_BYTES).hexdigest()}"'


def matches(sent: str, tag: str) -> bool:
    """Whether an If-None-Match header names the tag."""
    return any(part.strip().removeprefix("W/") in (tag, "*") for part in sent.split(","))


def _members(location: str, metadata: bytes) -> _Members:
    try:
        return msgspec.json.decode(metadata, type=_Members)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"{location}: is no metadata of a table: {error}") from error
