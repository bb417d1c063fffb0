"""The sweeper of data files and of tables' metadata: looks, remembers, and deletes what is garbage.

A pass looks in the order that `lakelog.pipeline.maintenance.gc_rules` relies on: list, task
records, tables, topics and index, each after the other. What it finds without a name is deleted
when it had none in two passes one grace apart (rule 19), which protects readers; the suspects are
in the memory of this object, and a new process begins anew. Nothing is deleted by its age; the wall
clock is asked only whether the time to save lost files is over. Any number of sweepers may run
beside each other and beside everything else.

Metadata that a commit under way may have written is deleted after the table got another token: by
whatever happened to it, or, when nothing does, by a move (C5). A move that the sweeper makes lets
go of metadata too; the sweeper knows that it was named, so it needs no further move: a quiet table
is left alone after one.

A pass in which records or index cannot be read ends with that failure and deletes nothing. A table
that cannot be read keeps what it may name, and the rest goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar
from urllib.parse import unquote

from lakelog.catalog.port import (
    TOPIC_ID_PROPERTY,
    TableName,
    Tables,
    TableView,
)
from lakelog.clock import Clock
from lakelog.domain.milestone import sweep_after_ms, when
from lakelog.index.ports import LogIndex
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Corrupt, Failure, NotFound, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.maintenance.gc_rules import (
    PREFIXES,
    Garbage,
    GarbageCandidate,
    ObjectListing,
    SeenTable,
    SeenTables,
    is_due,
    is_fenced,
    judge,
    marks,
    merged_marks,
    suspects_after,
    unrecorded,
)
from lakelog.pipeline.options import reading, writing
from lakelog.pipeline.saga.record_store import RecordStore
from lakelog.pipeline.saga.task_record import TASKS
from lakelog.streams.table import Int64s
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.pipeline")
_PROBLEMS_MAX: Final = 100
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How patient a sweeper is, and how much it does at once."""

    namespaces: tuple[str, ...] = ("lakelog",)
    """Where tables may be, beside those that pointers and objects show."""
    grace_ms: int = 10 * 60 * 1000
    """An object is deleted when it had no name in two passes this far apart (C3)."""
    deletes_at_once: int = 1000
    tables_at_once: int = 4
    moves_max: int = 100
    """The most tables that one pass moves; the others wait for the next."""
    records_s: float = 10.0
    index_s: float = 60.0
    table_s: float = 120.0
    delete_s: float = 60.0
    """How long one question to each of these, or one deletion, may take."""

    def __post_init__(self) -> None:
        assert self.grace_ms >= 0, self
        assert min(self.deletes_at_once, self.tables_at_once, self.moves_max) > 0, self


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one pass saw and did."""

    listed: int
    deleted: int
    suspects: int
    """What has no name and waits for its grace, or for its table to move."""
    moved: tuple[TableName, ...]
    unknown: int
    """Objects that nothing names and nobody of us writes; they are left alone."""
    unknown_examples: tuple[str, ...]
    problems: tuple[str, ...]
    """What could not be read, and so was kept; or not be deleted, and so is tried again."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What a table named when it was at this metadata, or later."""

    metadata_location: str
    named: Int64s


_Seen: TypeAlias = tuple[SeenTable, Int64s]


class FileSweeper:
    """Deletes what no task record, table or index entry names below the prefixes of both."""

    def __init__(
        self,
        meta: MetadataStore,
        objects: ObjectStore,
        index: LogIndex,
        tables: Tables,
        clock: Clock,
        options: SweepOptions,
    ) -> None:
        self._meta = meta
        self._objects = objects
        self._index = index
        self._tables = tables
        self._clock = clock
        self._options = options
        self._records = RecordStore(meta, puts_max=1, limit_s=options.records_s)
        self._known: dict[TableName, _Known] = {}
        self._suspects: dict[str, GarbageCandidate] = {}
        self._problems: list[str] = []

    async def sweep_once(self) -> SweepReport:
        """One pass; it raises what kept records or index from being read, and deletes nothing."""
        self._problems = []
        after_ms = await reading(sweep_after_ms(self._meta), limit_s=self._options.records_s)
        if self._clock.now_ms() < after_ms:
            # A5: files that only the lost part of a log or table named look like garbage from here.
            raise Unavailable(f"metadata was lost: nothing is swept before {when(after_ms)}")
        once_named = {name: known.named for name, known in self._known.items()}
        # In this order: a file moves from record to table to index, and is named by the next before
        # the last lets go of it (`saga.task_record`).
        listing = await self._list()
        data = await self._unrecorded(listing.data)
        tables = await self._look_at_tables(listing)
        topics = await reading(self._index.topics(), limit_s=self._options.index_s)
        named_files = await reading(self._index.named_files(), limit_s=self._options.index_s)
        live_topics = {topic.topic_id.hex() for topic in topics}
        garbage = judge(listing, data, tables, live_topics=live_topics, named_files=named_files)
        self._suspects = suspects_after(
            self._suspects,
            garbage,
            tokens={name: table.token for name, table in tables.tables.items()},
            once_named=once_named,
            now_s=self._clock.monotonic_s(),
        )
        condemned, moved = await self._condemned(garbage, tables.tables)
        deleted = await self._delete(condemned)
        return self._report(listing, garbage, deleted, moved)

    async def _list(self) -> ObjectListing:
        """All keys below our prefixes; what a listing misses is seen by a later pass."""
        listing = ObjectListing()
        for prefix in PREFIXES:
            try:
                async for info in self._objects.list(prefix):
                    listing.add(info.key)
            except Failure as error:
                self._problem(f"{prefix}: cannot be listed: {error}")
        return listing

    async def _unrecorded(self, data: Sequence[str]) -> list[str]:
        records = await self._records.load_all()
        unreadable = set()
        for key, reason in records.broken.items():
            self._problem(f"{key}: {reason}; the stream's files are kept")
            stream = key.removeprefix(TASKS)
            if not stream.isdecimal():
                raise Corrupt(f"{key}: is no task's key; what it may name is unknown")
            unreadable.add(int(stream))
        recorded = {stream: stored.record for stream, stored in records.found.items()}
        return unrecorded(data, recorded, unreadable=unreadable)

    async def _look_at_tables(self, listing: ObjectListing) -> SeenTables:
        """Every table that a catalog, a pointer or an object shows."""
        pointers = await reading(self._meta.range(keys.TABLES), limit_s=self._options.records_s)
        places = [pointer.key.removeprefix(keys.TABLES).split("/") for pointer in pointers]
        names = {TableName(*map(unquote, parts)) for parts in places if len(parts) == 2}
        names |= {home.name for home in listing.homes}
        blind_spaces = set()
        for space in sorted({*self._options.namespaces, *(name.namespace for name in names)}):
            try:
                names.update(await self._reading(self._tables.names(space)))
            except NotFound:
                continue  # a namespace without tables need not exist
            except Exception as error:  # noqa: BLE001 - whatever it is, its tables are not known
                blind_spaces.add(space)
                self._problem(f"{space}: its tables cannot be listed: {error!r}")
        ordered = sorted(names)
        seen = await self._look_at(ordered)
        self._known = {name: known for name, known in self._known.items() if name in names}
        return SeenTables(
            tables={table[0].name: table[0] for table in seen if isinstance(table, tuple)},
            named=merged_marks([table[1] for table in seen if isinstance(table, tuple)]),
            blind_spaces=frozenset(blind_spaces),
            blind_tables=frozenset(
                name
                for name, table in zip(ordered, seen, strict=True)
                if isinstance(table, Exception)
            ),
        )

    async def _look_at(self, names: Iterable[TableName]) -> list[_Seen | Exception | None]:
        places = asyncio.Semaphore(self._options.tables_at_once)

        async def look(name: TableName) -> _Seen | Exception | None:
            async with places:
                try:
                    return await self._look(name)
                except Exception as error:  # noqa: BLE001 - damaged metadata raises anything
                    self._problem(f"{name}: cannot be read, its files are kept: {error!r}")
                    return error

        return await asyncio.gather(*(look(name) for name in names))

    async def _look(self, name: TableName) -> _Seen | None:
        """A table and what it names; None when there is none.

        The metadata is looked at before the names: when it is that of an earlier pass, so are they.
        """
        view = await self._reading(self._tables.load(name))
        if view is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known.metadata_location != view.metadata_location:
            named = marks(await self._reading(self._tables.reachable(name)))
            known = self._known[name] = _Known(view.metadata_location, named)
        return _seen(view), known.named

    async def _condemned(
        self, garbage: Garbage, tables: Mapping[TableName, SeenTable]
    ) -> tuple[list[str], list[TableName]]:
        """What is deleted now, and the tables that were moved for it."""
        condemned = [key for key in garbage.certain if self._is_due(key)]
        moved: list[TableName] = []
        for name, listed in garbage.metadata.items():
            table = tables[name]
            due = [key for key in listed if self._is_due(key)]
            condemned += [key for key in due if is_fenced(self._suspects[key], table.token)]
            open_keys = [key for key in due if not is_fenced(self._suspects[key], table.token)]
            # A commit under way may come to name these: moving the table keeps it from landing.
            if open_keys and len(moved) < self._options.moves_max and await self._moved(table):
                moved.append(name)
                condemned += await self._unnamed_now(name, open_keys)
        return condemned, moved

    def _is_due(self, key: str) -> bool:
        now_s, grace_s = self._clock.monotonic_s(), self._options.grace_ms / 1000
        return is_due(self._suspects[key], now_s=now_s, grace_s=grace_s)

    async def _moved(self, table: SeenTable) -> bool:
        """Whether the table has another token now, so that what was under way never lands."""
        move = self._tables.move(table.name, topic_id=table.topic_id, expect=table.token)
        try:
            await writing(move, limit_s=self._options.table_s)
        except (Conflict, NotFound):
            return False  # it moved by itself, or is gone: the next pass sees it
        except Failure as error:
            self._problem(f"{table.name}: cannot be moved: {error!r}")
            return False
        return True

    async def _unnamed_now(self, name: TableName, listed: Sequence[str]) -> list[str]:
        """Those that the table does not name after it moved: a commit may have been faster."""
        try:
            named = await self._reading(self._tables.reachable(name))
        except Exception as error:  # noqa: BLE001 - whatever it is, what it names is not known
            self._problem(f"{name}: cannot be read, its files are kept: {error!r}")
            return []
        return [key for key in listed if key not in named]

    async def _delete(self, condemned: Sequence[str]) -> int:
        deleted = 0
        for start in range(0, len(condemned), self._options.deletes_at_once):
            batch = condemned[start : start + self._options.deletes_at_once]
            try:
                await writing(self._objects.delete(batch), limit_s=self._options.delete_s)
            except Failure as error:
                # Still suspects: the next pass repeats it, for what is gone already is fine.
                self._problem(f"{len(batch)} objects may not be deleted: {error!r}")
                continue
            deleted += len(batch)
            for key in batch:
                del self._suspects[key]
        return deleted

    def _report(
        self, listing: ObjectListing, garbage: Garbage, deleted: int, moved: Sequence[TableName]
    ) -> SweepReport:
        report = SweepReport(
            listed=listing.count,
            deleted=deleted,
            suspects=len(self._suspects),
            moved=tuple(moved),
            unknown=garbage.unknown.count,
            unknown_examples=tuple(garbage.unknown.examples),
            problems=tuple(self._problems[:_PROBLEMS_MAX]),
        )
        if deleted or moved:
            event(_log, "files_swept", objects=deleted, moved=len(moved))
        for problem in report.problems:
            event(_log, "sweep_problem", logging.WARNING, reason=problem)
        return report

    async def _reading(self, work: Awaitable[T]) -> T:
        return await reading(work, limit_s=self._options.table_s)

    def _problem(self, text: str) -> None:
        self._problems.append(text)


def _seen(view: TableView) -> SeenTable:
    """The table as far as its garbage is concerned; somebody else's has no topic, and no home."""
    return SeenTable(view.name, view.properties.get(TOPIC_ID_PROPERTY, ""), view.token)
