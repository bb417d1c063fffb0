"""The tables of topics in a catalog that PyIceberg speaks to: the port, over threads.

PyIceberg is loaded at the first operation, in its thread, and never by importing this module. A
change of a table is tried once, on the snapshot that its caller names (rule 24). Making and
dropping a table are repeated here, for whoever does it finds it done.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.catalog.definition import Locations, table_prefix
from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.pointers import Pointers
from lakelog.catalog.port import (
    Advance,
    AppendResult,
    CatalogLimits,
    DataFileView,
    Replacement,
    SnapshotView,
    TableDefinition,
    TableName,
    TableView,
)
from lakelog.catalog.threads import Calls, LibraryThreads
from lakelog.clock import Clock
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Failure, NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakelog.catalog.commit import AnyCatalog, CommitRequirements
    from lakelog.catalog.external import CatalogConnections

T = TypeVar("T")
_log = logging.getLogger("lakelog.catalog")

MOVE: Final = "move"
"""What a snapshot that only moves the table says as its commit's id."""


def builtin_tables(
    meta: MetadataStore, objects: ObjectStore, clock: Clock, limits: CatalogLimits | None = None
) -> "PyIcebergTables":
    """The tables in the built-in catalog, opened by the log itself."""
    limits = limits or CatalogLimits()
    pointers = Pointers(meta)
    memory = Memory(SnapshotHistory(meta, clock))

    def connect(calls: Calls) -> "AnyCatalog":
        from lakelog.catalog.builtin import BuiltinCatalog  # noqa: PLC0415 - loads PyIceberg

        attempts = limits.put_attempts
        return BuiltinCatalog(calls, pointers, objects, owner=True, put_attempts=attempts)

    return PyIcebergTables(connect, Locations.below(objects.url), clock, limits, memory)


def external_tables(
    properties: Mapping[str, str],
    objects: ObjectStore,
    clock: Clock,
    limits: CatalogLimits | None = None,
    history: SnapshotHistory | None = None,
) -> "PyIcebergTables":
    """The tables in a catalog that PyIceberg opens with these properties (`external` says how).

    With a history, brokers can tell of the snapshots, which they cannot ask that catalog for.
    """
    limits = limits or CatalogLimits()
    lock = Lock()
    opened: list[CatalogConnections] = []

    def connect(calls: Calls) -> "AnyCatalog":
        from lakelog.catalog.external import CatalogConnections  # noqa: PLC0415 - loads PyIceberg

        with lock:
            if not opened:
                attempts = limits.put_attempts
                opened.append(CatalogConnections(properties, objects, put_attempts=attempts))
        return opened[0].connect(calls)

    def disconnect() -> None:
        for connections in opened:
            connections.close()

    locations = Locations.below(objects.url)
    memory = Memory(history, shows_live=True)
    return PyIcebergTables(connect, locations, clock, limits, memory, disconnect)


def _nothing() -> None:
    """What there is to close where nothing was opened."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What becomes of snapshots that tables let go of."""

    history: SnapshotHistory | None = None
    shows_live: bool = False
    """Whether the snapshots that tables have are put down too, since no broker sees them."""

    def remember(
        self, calls: Calls, topic: str, topic_id: str, gone: Sequence[SnapshotView]
    ) -> None:
        """Put down what is about to expire, from a thread; `Unavailable` when that failed.

        Nothing of the table has changed then, so a lost reply leaves no doubt about it.
        """
        history = self.history
        if history is not None:
            calls.read(lambda: history.remember(topic, topic_id, gone))

    async def show(self, table: TableView, topic_id: str) -> None:
        """Put down what a table has after a change, which stands whether this works or not."""
        if self.history is None or not self.shows_live:
            return
        try:
            await self.history.show_live(table.name.table, topic_id, table.snapshots)
        except Failure as error:  # the next change repeats it
            event(_log, "snapshots_not_shown", logging.WARNING, table=table.name, reason=error)


class PyIcebergTables:
    """Tables in any catalog of PyIceberg whose files are in our object store."""

    def __init__(
        self,
        connect: "Callable[[Calls], AnyCatalog]",
        locations: Locations,
        clock: Clock,
        limits: CatalogLimits,
        memory: Memory,
        disconnect: Callable[[], None] = _nothing,
    ) -> None:
        self._connect = connect
        self._disconnect = disconnect
        self._locations = locations
        self._limits = limits
        self._memory = memory
        self._bridge = LibraryThreads(clock, threads=limits.threads)

    async def create(self, definition: TableDefinition) -> TableView:
        """Make the table of a topic, or find it made; `Refused` when the name is another's."""
        location = self._locations.location(table_prefix(definition))

        def work(calls: Calls) -> TableView:
            from lakelog.catalog import commit, live_files  # noqa: PLC0415 - loads PyIceberg

            return live_files.view_of(
                commit.create_table(self._connect(calls), definition, location)
            )

        return await self._settled(work)

    async def load(self, name: TableName) -> TableView | None:
        """The table as it is now, or None."""

        def work(calls: Calls) -> TableView | None:
            from lakelog.catalog import live_files  # noqa: PLC0415 - only where tables are used

            table = self._load(calls, name)
            if table is None:
                return None
            with live_files.reading(table):
                return live_files.view_of(table)

        return await self._run(work)

    async def names(self, namespace: str) -> list[TableName]:
        """The tables of a namespace, sorted."""

        def work(calls: Calls) -> list[TableName]:
            found = self._connect(calls).list_tables((namespace,))
            return sorted(TableName(namespace, identifier[-1]) for identifier in found)

        return await self._run(work)

    async def append(
        self,
        name: TableName,
        advances: Sequence[Advance],
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> AppendResult:
        """Add the files of all advances that the vector admits, in one commit, once."""

        def work(calls: Calls) -> AppendResult:
            from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

            terms = self._terms(calls, name, topic_id, expect=expect, commit_id=commit_id)
            return commit.append_files(self._there(calls, name), advances, self._locations, terms)

        appended = await self._run(work)
        if appended.added:
            await self._memory.show(appended.table, topic_id)
        return appended

    async def move(self, name: TableName, *, topic_id: str, expect: str) -> TableView:
        """Make a snapshot with the files of the one before it, once."""

        def work(calls: Calls) -> TableView:
            from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

            terms = self._terms(calls, name, topic_id, expect=expect, commit_id=MOVE)
            return commit.move_table(self._there(calls, name), terms)

        return await self._shown(work, topic_id)

    async def replace(
        self,
        name: TableName,
        replacement: Replacement,
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> TableView:
        """Exchange files in one commit, once; `Conflict` too when one to remove is not there."""

        def work(calls: Calls) -> TableView:
            from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

            terms = self._terms(calls, name, topic_id, expect=expect, commit_id=commit_id)
            table = self._there(calls, name)
            return commit.replace_files(table, replacement, self._locations, terms)

        return await self._shown(work, topic_id)

    async def files(
        self, name: TableName, *, partition: int, start: int, end: int
    ) -> list[DataFileView]:
        """The data files with rows of these offsets, sorted; for a table ahead of the index."""

        def work(calls: Calls) -> list[DataFileView]:
            from lakelog.catalog import live_files  # noqa: PLC0415 - only where tables are used

            table = self._there(calls, name)
            with live_files.reading(table):
                return live_files.files_of(
                    table, self._locations, partition=partition, start=start, end=end
                )

        return await self._run(work)

    async def reachable(self, name: TableName) -> frozenset[str]:
        """The keys of all objects that any snapshot of the table needs; empty without a table."""

        def work(calls: Calls) -> frozenset[str]:
            from lakelog.catalog import live_files  # noqa: PLC0415 - only where tables are used

            table = self._load(calls, name)
            if table is None:
                return frozenset()
            with live_files.reading(table):
                return live_files.reachable_keys(table, self._locations)

        return await self._run(work)

    async def drop(self, name: TableName, *, topic_id: str) -> None:
        """Forget the table of this topic; its objects stay for the collector."""

        def work(calls: Calls) -> None:
            from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

            commit.drop_table(self._connect(calls), name, topic_id=topic_id)

        await self._settled(work)

    async def close(self) -> None:
        """End the threads; the stores are the caller's."""
        await self._bridge.close()
        await asyncio.get_running_loop().run_in_executor(None, self._disconnect)

    def _load(self, calls: Calls, name: TableName) -> "Table | None":
        from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

        return commit.load_table(self._connect(calls), name)

    def _there(self, calls: Calls, name: TableName) -> "Table":
        table = self._load(calls, name)
        if table is None:
            raise NotFound(f"{name}: there is no such table")
        return table

    def _terms(
        self, calls: Calls, name: TableName, topic_id: str, *, expect: str, commit_id: str
    ) -> "CommitRequirements":
        from lakelog.catalog import commit  # noqa: PLC0415 - loads PyIceberg

        remember = partial(self._memory.remember, calls, name.table, topic_id)
        return commit.CommitRequirements(
            topic_id, expect, commit_id, self._limits.snapshots_kept, remember
        )

    async def _shown(self, work: Callable[[Calls], TableView], topic_id: str) -> TableView:
        """Run a change, and have brokers know what the table has after it."""
        table = await self._run(work)
        await self._memory.show(table, topic_id)
        return table

    async def _run(self, work: Callable[[Calls], T]) -> T:
        return await self._bridge.run(work, timeout_s=self._limits.operation_s)

    async def _settled(self, work: Callable[[Calls], T]) -> T:
        """Run work that may be repeated from its beginning, until it ends one way or the other."""
        unknown: Failure | None = None
        last: Failure | None = None
        for _ in range(self._limits.attempts):
            try:
                return await self._run(work)
            except Conflict as error:
                last = error
            except OutcomeUnknown as error:
                last = unknown = error
            except Unavailable as error:
                if unknown is not None:
                    raise OutcomeUnknown(f"{unknown}; then: {error}") from error
                raise
        assert last is not None, "there is one attempt at least"
        raise last if unknown is None else unknown
