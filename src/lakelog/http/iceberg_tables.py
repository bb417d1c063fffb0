"""The tables of topics as the Iceberg REST catalog shows and changes them.

Rules: a read asks the metadata store for the pointer each time and reads the metadata.json it
names, once; it loads no PyIceberg and no pyarrow. A metadata.json becomes part of an answer as it
is stored: what has to be looked at (snapshots that a branch or tag names, properties, columns) is
decoded, and nothing else is. A change is judged by `guard` before anything else is done with it;
only what passes loads PyIceberg, in a thread. Everything has a deadline.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from lakelog.catalog.definition import Locations
from lakelog.catalog.guard import Field, refusal
from lakelog.catalog.pointers import Pointers, TablePointer
from lakelog.catalog.port import CatalogLimits, TableName
from lakelog.catalog.threads import Calls, LibraryThreads
from lakelog.clock import Clock
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, NotFound, Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.records.table_schema import FIELD_IDS

if TYPE_CHECKING:
    from lakelog.catalog.builtin import BuiltinCatalog

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


_COMMITS: Final = CatalogLimits(operation_s=30.0, threads=2)


@dataclass(frozen=True, slots=True)
class IcebergLimits:
    """How long requests may take, and how large things may be."""

    read_s: float = 30.0
    load_attempts: int = 5
    kept_bytes_max: int = KEPT_BYTES_MAX
    changed_bytes_max: int = 16 << 20
    """Metadata that is larger takes no more changes from outside: every commit writes it anew."""
    commits: CatalogLimits = _COMMITS


class IcebergTables:
    """Tables as somebody outside sees them, over a cluster's stores."""

    def __init__(
        self,
        meta: MetadataStore,
        objects: ObjectStore,
        clock: Clock,
        limits: IcebergLimits | None = None,
    ) -> None:
        self._limits = limits or IcebergLimits()
        self._pointers = Pointers(meta)
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._cache = MetadataCache(self._limits.kept_bytes_max)
        self._bridge = LibraryThreads(clock, threads=self._limits.commits.threads)

    @property
    def root(self) -> str:
        """The location that every file of a table is below."""
        return self._locations.root

    async def namespaces(self) -> list[str]:
        """The namespaces that have a table, sorted."""
        async with asyncio.timeout(self._limits.read_s):
            return await self._pointers.namespaces()

    async def names(self, namespace: str) -> list[str]:
        """The tables of a namespace, sorted."""
        async with asyncio.timeout(self._limits.read_s):
            return [pointer.name.table for pointer in await self._pointers.tables(namespace)]

    async def exists(self, name: TableName) -> bool:
        """Whether there is such a table."""
        async with asyncio.timeout(self._limits.read_s):
            return await self._pointers.get(name) is not None

    async def load(self, name: TableName) -> StoredTable | None:
        """The table at its newest metadata, or None."""
        async with asyncio.timeout(self._limits.read_s):
            before: TablePointer | None = None
            for _ in range(self._limits.load_attempts):
                pointer = await self._pointers.get(name)
                if pointer is None:
                    return None
                if pointer == before:
                    raise Corrupt(f"{name}: its metadata {pointer.metadata_location} is gone")
                try:
                    metadata = await self._metadata(pointer.metadata_location)
                except NotFound:
                    # C8: many commits later this metadata was deleted; the pointer is another.
                    before = pointer
                    continue
                return StoredTable(name, pointer.metadata_location, metadata)
        raise Unavailable(f"{name}: its pointer moves faster than its metadata can be read")

    async def _metadata(self, location: str) -> bytes:
        found = self._cache.get(location)
        if found is None:
            found = checked(location, await self._objects.get(self._locations.key(location)))
            self._cache.put(location, found)
        return found

    async def commit(
        self,
        name: TableName,
        requirements: Sequence[Mapping[str, object]],
        updates: Sequence[Mapping[str, object]],
    ) -> StoredTable:
        """Make the updates if the requirements hold, and return the table after it.

        Fails as `lakelog.catalog.external_commits.commit_from_outside` does.
        """
        try:
            table = await self.load(name)
        except TimeoutError as error:
            raise Unavailable(f"{name}: cannot be loaded now") from error
        if table is None:
            raise NotFound(f"{name}: there is no such table")
        facts = facts_of(table)
        reason = refusal(updates, properties=facts.properties, fields=facts.fields)
        if reason is not None:
            raise Refused(f"{name}: {reason}")
        if len(table.metadata) > self._limits.changed_bytes_max:
            most = self._limits.changed_bytes_max
            raise Refused(f"{name}: its metadata is larger than {most} bytes")
        limits = self._limits.commits

        def work(calls: Calls) -> tuple[str, bytes]:
            connect, commit = _changing()
            attempts = limits.put_attempts
            catalog = connect(
                calls, self._pointers, self._objects, owner=False, put_attempts=attempts
            )
            return commit(catalog, name, requirements, updates, attempts=limits.attempts)

        location, metadata = await self._bridge.run(work, timeout_s=limits.operation_s)
        return StoredTable(name, location, metadata)

    async def close(self) -> None:
        """End the threads; the stores are the caller's."""
        await self._bridge.close()


def _changing() -> "tuple[type[BuiltinCatalog], Callable[..., tuple[str, bytes]]]":
    """What changes tables, which takes more libraries than reading them."""
    try:
        from lakelog.catalog.builtin import BuiltinCatalog  # noqa: PLC0415 - loads PyIceberg
        from lakelog.catalog.external_commits import commit_from_outside  # noqa: PLC0415 - the same
    except ImportError as error:
        raise Refused("changing tables needs more: pip install 'lakelog[tables]'") from error
    return BuiltinCatalog, commit_from_outside
