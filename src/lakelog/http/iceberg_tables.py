"""The tables of topics as the Iceberg REST catalog shows and changes them.

Rules: a read asks the metadata store for the pointer each time and reads the metadata.json it
names, once; it loads no PyIceberg and no pyarrow. A change is judged by `guard` before anything
else is done with it; only what passes loads PyIceberg, in a thread. Everything has a deadline.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakelog.catalog.bridge import Bridge, Calls
from lakelog.catalog.guard import refusal
from lakelog.catalog.locations import Locations
from lakelog.catalog.pointers import Pointer, Pointers
from lakelog.catalog.port import CatalogLimits, TableName
from lakelog.clock import Clock
from lakelog.http.iceberg_metadata import (
    KEPT_BYTES_MAX,
    MetadataCache,
    StoredTable,
    checked,
    facts_of,
)
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, NotFound, Refused, Unavailable
from lakelog.objects.port import ObjectStore

if TYPE_CHECKING:
    from lakelog.catalog.builtin import BuiltinCatalog

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
        self._bridge = Bridge(clock, threads=self._limits.commits.threads)

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
            before: Pointer | None = None
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

        Fails as `lakelog.catalog.outside.commit_from_outside` does.
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
        from lakelog.catalog.outside import commit_from_outside  # noqa: PLC0415 - the same
    except ImportError as error:
        raise Refused("changing tables needs more: pip install 'lakelog[tables]'") from error
    return BuiltinCatalog, commit_from_outside
