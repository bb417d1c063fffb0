"""Which metadata.json is a table's newest, and how tables are made and dropped. Loads no PyIceberg.

Rules: a pointer moves by compare-and-swap only. When a reply is lost, the same value is put again
with the same expected version: then it lands, or the key holds it already, or somebody else's
value stands there. Only in the last case the outcome stays unknown, because theirs may be built
on ours; it is never reported as a conflict, since who hears of a conflict deletes what it wrote.

A broker makes the table right after its topic, and it has neither the time nor the memory for the
library. So the first metadata of a table is written here, word for word what the library would
write (a test compares them), and its pointer is set and removed by compare-and-swap.

Rules: whose table it is, is said by the place of its metadata, which has the topic's id in it. All
calls may be repeated, and after `OutcomeUnknown` they are. An object of ours is deleted only when
it is certain that nothing names it.
"""

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lakelog.catalog.definition import (
    FORMAT_VERSION,
    HEADER,
    PARTITION_FIELD_ID,
    TYPES,
    Locations,
    owner_of,
    table_prefix,
    table_properties,
)
from lakelog.catalog.port import TableDefinition, TableName
from lakelog.clock import Clock, Entropy
from lakelog.meta import keys
from lakelog.meta.port import KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, Failure, OutcomeUnknown, Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.records.table_schema import FIELD_IDS, REQUIRED

FORMAT: Final = 1
ATTEMPTS: Final = 3
ABSENT: Final = 0
"""The version that a table has before it is made."""


@dataclass(frozen=True, slots=True)
class TablePointer:
    """A table, where its newest metadata is, and the version of the key that says so."""

    name: TableName
    metadata_location: str
    version: int


class Pointers:
    """The pointers of a cluster's tables, in its metadata store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(self, name: TableName) -> TablePointer | None:
        """The table's pointer, or None."""
        found = await self._store.get(keys.table(name.namespace, name.table))
        return None if found is None else parse_pointer(found)

    async def tables(self, namespace: str) -> list[TablePointer]:
        """All tables of a namespace, sorted by name."""
        return _sorted(await self._store.range(keys.tables(namespace)))

    async def namespaces(self) -> list[str]:
        """The namespaces that have a table, sorted."""
        found = _sorted(await self._store.range(keys.TABLES))
        return sorted({pointer.name.namespace for pointer in found})

    async def move(self, name: TableName, metadata_location: str, *, expect: int) -> TablePointer:
        """Point to other metadata if the key still has the version `expect`, `ABSENT` for none.

        The location is one that was never pointed to before, so that finding it is proof.
        """
        value = encode_pointer(name, metadata_location)
        version = await self._put(name, value, expect=expect, doubt="its pointer moved")
        if version is None:
            return await self._landed(name, metadata_location)
        return TablePointer(name, metadata_location, version)

    async def _put(
        self, name: TableName, value: bytes | None, *, expect: int, doubt: str
    ) -> int | None:
        """The new version; None when it was refused after an attempt that may have been ours."""
        unknown: Failure | None = None
        for _ in range(ATTEMPTS):
            try:
                key = keys.table(name.namespace, name.table)
                return await self._store.put(key, value, expect=expect)
            except OutcomeUnknown as error:
                unknown = error
            except Unavailable as error:
                if unknown is None:
                    raise
                unknown = error
            except Conflict:
                if unknown is None:
                    raise
                return None
        raise OutcomeUnknown(f"{name}: whether {doubt} is unknown") from unknown

    async def _landed(self, name: TableName, metadata_location: str) -> TablePointer:
        """Our own pointer, which an earlier attempt put; else nobody can say."""
        try:
            found = await self._store.get(keys.table(name.namespace, name.table))
        except Unavailable as error:
            raise OutcomeUnknown(f"{name}: whether its pointer moved is unknown") from error
        pointer = None if found is None else parse_pointer(found)
        if pointer is not None and pointer.metadata_location == metadata_location:
            return pointer
        raise OutcomeUnknown(f"{name}: its pointer moved meanwhile, perhaps from ours")

    async def drop(self, name: TableName, *, expect: int) -> None:
        """Delete the pointer if it still has the version `expect`; `Conflict` if it has not."""
        if await self._put(name, None, expect=expect, doubt="it was dropped") is None:
            raise OutcomeUnknown(f"{name}: was dropped or moved meanwhile")


def encode_pointer(name: TableName, metadata_location: str) -> bytes:
    """The value of a table's key."""
    fields = {
        "format": FORMAT,
        "namespace": name.namespace,
        "table": name.table,
        "metadata_location": metadata_location,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_pointer(found: KeyValue) -> TablePointer:
    """The pointer in a key; `Corrupt` for anything that we did not write."""
    try:
        fields = json.loads(found.value)
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ValueError("not the format")  # noqa: TRY301 - one place says what is wrong
        texts = [fields[field] for field in ("namespace", "table", "metadata_location")]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("not text")  # noqa: TRY301 - one place says what is wrong
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Corrupt(f"{found.key}: is not a table's pointer") from error
    name = TableName(texts[0], texts[1])
    if keys.table(name.namespace, name.table) != found.key:
        raise Corrupt(f"{found.key}: holds the pointer of another table, {name}")
    return TablePointer(name, texts[2], found.version)


def _sorted(found: list[KeyValue]) -> list[TablePointer]:
    return sorted((parse_pointer(one) for one in found), key=lambda pointer: pointer.name)


_SORT_ORDER_ID: Final = 1
_UUID_BYTES: Final = 16
_UUID_VERSION: Final = 4


def first_metadata(
    definition: TableDefinition, *, location: str, table_uuid: str, now_ms: int
) -> bytes:
    """The metadata.json of a table that has no snapshot yet."""
    fields = {
        "format-version": FORMAT_VERSION,
        "table-uuid": table_uuid,
        "location": location,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": max(FIELD_IDS.values()),
        "current-schema-id": 0,
        "schemas": [_schema()],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [_partition_field()]}],
        "last-partition-id": PARTITION_FIELD_ID,
        "default-sort-order-id": _SORT_ORDER_ID,
        "sort-orders": [{"order-id": _SORT_ORDER_ID, "fields": [_sort_field()]}],
        "properties": table_properties(definition),
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def _schema() -> dict[str, object]:
    columns = sorted((path for path in FIELD_IDS if "." not in path), key=FIELD_IDS.__getitem__)
    return {
        "type": "struct",
        "schema-id": 0,
        "identifier-field-ids": [],
        "fields": [_field(path, TYPES.get(path) or _headers()) for path in columns],
    }


def _headers() -> dict[str, object]:
    paths = (f"{HEADER}.key", f"{HEADER}.value")
    return {
        "type": "list",
        "element-id": FIELD_IDS[HEADER],
        "element-required": HEADER in REQUIRED,
        "element": {"type": "struct", "fields": [_field(path, TYPES[path]) for path in paths]},
    }


def _field(path: str, kind: object) -> dict[str, object]:
    name = path.rpartition(".")[2]
    return {"id": FIELD_IDS[path], "name": name, "type": kind, "required": path in REQUIRED}


def _partition_field() -> dict[str, object]:
    return {
        "source-id": FIELD_IDS["partition"],
        "field-id": PARTITION_FIELD_ID,
        "name": "partition",
        "transform": "identity",
    }


def _sort_field() -> dict[str, object]:
    return {
        "source-id": FIELD_IDS["offset"],
        "transform": "identity",
        "direction": "asc",
        "null-order": "nulls-first",
    }


class TableCreation:
    """Makes and drops the pointers of topics' tables."""

    def __init__(
        self, meta: MetadataStore, objects: ObjectStore, clock: Clock, entropy: Entropy
    ) -> None:
        self._pointers = Pointers(meta)
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._clock = clock
        self._entropy = entropy

    async def owners(self, namespace: str) -> dict[TableName, str | None]:
        """The topic's id of every table in a namespace; None where it is no topic's."""
        found = await self._pointers.tables(namespace)
        return {pointer.name: self._owner(pointer) for pointer in found}

    async def create(self, definition: TableDefinition) -> TablePointer:
        """Make the table of a topic, or find it made; `Refused` when the name is another's."""
        prefix = table_prefix(definition)
        if (found := await self._made(definition)) is not None:
            return found
        key = f"{prefix}/metadata/00000-{self._uuid()}.metadata.json"
        await self._put(key, self._first(definition, prefix))
        try:
            location = self._locations.location(key)
            return await self._pointers.move(definition.name, location, expect=ABSENT)
        except Conflict as error:
            await self._discard(key)
            if (found := await self._made(definition)) is not None:
                return found
            raise Conflict(f"{definition.name}: came and went meanwhile") from error
        except OutcomeUnknown:
            if (found := await self._made(definition)) is not None:
                return found
            raise

    async def drop(self, name: TableName, *, topic_id: str) -> None:
        """Forget the table of this topic, not its objects; gone and another's are fine."""
        last: Failure | None = None
        for _ in range(ATTEMPTS):
            pointer = await self._pointers.get(name)
            if pointer is None or self._owner(pointer) != topic_id:
                return
            try:
                await self._pointers.drop(name, expect=pointer.version)
            except (Conflict, OutcomeUnknown) as error:
                last = error  # a commit was faster, or it is dropped: look again
            else:
                return
        assert last is not None, "there is one attempt at least"
        raise last

    async def _made(self, definition: TableDefinition) -> TablePointer | None:
        found = await self._pointers.get(definition.name)
        if found is not None and self._owner(found) != definition.topic_id:
            raise Refused(f"{definition.name}: is the table of another topic")
        return found

    def _owner(self, pointer: TablePointer) -> str | None:
        return owner_of(pointer.name, pointer.metadata_location, self._locations)

    def _first(self, definition: TableDefinition, prefix: str) -> bytes:
        return first_metadata(
            definition,
            location=self._locations.location(prefix),
            table_uuid=self._uuid(),
            now_ms=self._clock.now_ms(),
        )

    def _uuid(self) -> str:
        return str(UUID(bytes=self._entropy.token(_UUID_BYTES), version=_UUID_VERSION))

    async def _put(self, key: str, content: bytes) -> None:
        said = ""
        for _ in range(ATTEMPTS):
            try:
                return await self._objects.put(key, [content])
            except OutcomeUnknown as error:
                said = str(error)
        raise Unavailable(f"{key}: may be stored or not, and nothing names it: {said}")

    async def _discard(self, key: str) -> None:
        try:
            await self._objects.delete([key])
        except (Unavailable, OutcomeUnknown):
            return  # a collector finds what nothing names
