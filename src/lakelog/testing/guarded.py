"""An object store that lets nobody delete what anything names (G1), and who says what is named.

Whoever deletes, the log's sweeper, the files' sweeper or a catalog, does it through a
`GuardedObjects`; its witnesses look through the plain store. A witness is asked before a deletion
and after it, so that a name which is given meanwhile is found too.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

from lakelog.catalog.port import Tables
from lakelog.domain.replica import Replica
from lakelog.index.ports import LogIndex
from lakelog.meta.port import MetadataStore
from lakelog.model.ids import ByteRange
from lakelog.objects.port import Buffer, ObjectInfo, ObjectStore
from lakelog.pipeline.saga.task_record import TASKS, decode_record, is_open
from lakelog.testing.invariants import named_objects

Witness = Callable[[], Awaitable[Collection[str]]]
"""Says which keys are named now."""


class GuardedObjects:
    """Objects of another store; a deletion of what a witness names is an `AssertionError`."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.witnesses: dict[str, Witness] = {}
        """Who is asked, by what a failure shall call it."""
        self.deleted: list[str] = []
        """Everything that was deleted, in order."""
        self.violations: list[str] = []
        """What was wrong, also where whoever deleted took the failure for one of its own."""

    async def named(self) -> dict[str, str]:
        """Every key that is named now, with one of those that name it."""
        found: dict[str, str] = {}
        for who, witness in self.witnesses.items():
            found |= dict.fromkeys(await witness(), who)
        return found

    async def missing(self) -> list[str]:
        """The keys that are named and not there."""
        there = await self.keys()
        return sorted(
            f"{key} ({who})" for key, who in (await self.named()).items() if key not in there
        )

    async def keys(self) -> set[str]:
        """What is there."""
        return {info.key async for info in self.inner.list("")}

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects, none of which anything may name."""
        await self._check(keys)
        await self.inner.delete(keys)
        self.deleted += keys
        await self._check(keys)

    async def _check(self, keys: Sequence[str]) -> None:
        named = await self.named()
        wrong = [f"G1 {key}: deleted, but named by {named[key]}" for key in keys if key in named]
        self.violations += wrong
        assert not wrong, wrong

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self.inner.url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object."""
        await self.inner.put(key, parts)

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return await self.inner.get(key)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range."""
        return await self.inner.get_ranges(key, ranges)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`."""
        return self.inner.list(prefix)

    async def clock_skew_ms(self) -> int:
        """How far the store's clock is ahead of ours."""
        return await self.inner.clock_skew_ms()

    async def close(self) -> None:
        """Close the store behind."""
        await self.inner.close()


def entries_of_replica(replica: Replica) -> Witness:
    """The objects that the index of a domain names, as far as this replica has applied its log."""

    async def named() -> Collection[str]:
        return named_objects(replica.state)

    return named


def entries_of_index(index: LogIndex) -> Witness:
    """The segments and data files that index entries name."""
    return index.named_files


def live_snapshots(tables: Tables, *namespaces: str) -> Witness:
    """Every object that any snapshot of any table of these namespaces needs."""

    async def named() -> Collection[str]:
        found: set[str] = set()
        for space in namespaces:
            for name in await tables.names(space):
                found |= await tables.reachable(name)
        return found

    return named


def open_tasks(meta: MetadataStore) -> Witness:
    """The files of tasks that are not at their end."""

    async def named() -> Collection[str]:
        records = [decode_record(one.value) for one in await meta.range(TASKS)]
        return {one.file.name.key for one in records if one.file is not None and is_open(one)}

    return named
