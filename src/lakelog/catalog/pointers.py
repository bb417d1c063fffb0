"""Which metadata.json is a table's newest: one key for each table. Loads no PyIceberg.

Rules: a pointer moves by compare-and-swap only. When a reply is lost, the same value is put again
with the same expected version: then it lands, or the key holds it already, or somebody else's
value stands there. Only in the last case the outcome stays unknown, because theirs may be built
on ours; it is never reported as a conflict, since who hears of a conflict deletes what it wrote.
"""

import json
from dataclasses import dataclass
from typing import Final

from lakelog.catalog.port import TableName
from lakelog.meta import keys
from lakelog.meta.port import KeyValue, MetadataStore
from lakelog.model.failures import Conflict, Corrupt, Failure, OutcomeUnknown, Unavailable

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
