"""Stores whose replies get lost on order, and real Parquet files for tables."""

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.commit import (
    CommitRequirements,
    append_files,
    create_table,
    load_table,
    move_table,
    replace_files,
)
from lakelog.catalog.definition import Locations
from lakelog.catalog.live_files import token_of
from lakelog.catalog.pointers import Pointers
from lakelog.catalog.port import (
    Advance,
    AppendResult,
    CatalogLimits,
    DataFileFacts,
    Replacement,
    TableDefinition,
    TableName,
    Tables,
    TableView,
)
from lakelog.catalog.tables import PyIcebergTables, builtin_tables
from lakelog.catalog.threads import Calls, LibraryThreads
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import KeyValue, MetadataLog, MetadataStore, Session
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer, ObjectInfo, ObjectStore
from lakelog.records.table_schema import table_schema

T = TypeVar("T")

LOCATIONS = Locations.below("memory:")

NAME = TableName("kafka", "Orders.v1-eu")
TOPIC_ID = "0123456789abcdef" * 2
DEFINITION = TableDefinition(NAME, "Orders.v1-eu", TOPIC_ID, "cluster-1")


class Fault(Enum):
    """What becomes of a write."""

    LOST_REPLY = auto()
    LOST_REQUEST = auto()
    UNAVAILABLE = auto()


@dataclass
class Weather:
    """Decides the fate of each write by its kind and key, and counts what was asked for."""

    fate: Callable[[str, str], Fault | None] = lambda kind, key: None
    asked: list[tuple[str, str]] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)

    async def write(self, kind: str, key: str, act: Callable[[], Any]) -> Any:
        self.asked.append((kind, key))
        match self.fate(kind, key):
            case None:
                return await act()
            case Fault.LOST_REPLY:
                await act()
                raise OutcomeUnknown("a fault: the reply was lost")
            case Fault.LOST_REQUEST:
                raise OutcomeUnknown("a fault: the request was lost")
            case Fault.UNAVAILABLE:
                raise Unavailable("a fault: nothing was written")


class FaultyMeta:
    """A metadata store in bad weather."""

    def __init__(self, inner: MetadataStore, weather: Weather) -> None:
        self._inner = inner
        self._weather = weather

    async def get(self, key: str) -> KeyValue | None:
        self._weather.asked.append(("key-get", key))
        return await self._inner.get(key)

    async def range(self, prefix: str) -> list[KeyValue]:
        return await self._inner.range(prefix)

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        done: int = await self._weather.write(
            "key-put", key, lambda: self._inner.put(key, value, expect=expect, session=session)
        )
        return done

    def log(self, name: str) -> MetadataLog:
        return self._inner.log(name)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> Session:
        return await self._inner.session(ttl_s=ttl_s, keep_s=keep_s)

    async def close(self) -> None:
        pass


class FaultyObjects:
    """An object store in bad weather."""

    def __init__(self, inner: ObjectStore, weather: Weather) -> None:
        self._inner = inner
        self._weather = weather

    @property
    def url(self) -> str:
        return self._inner.url

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self._weather.sizes["put"] += sum(len(part) for part in parts)
        await self._weather.write(kind_of(key), key, lambda: self._inner.put(key, parts))

    async def get(self, key: str) -> memoryview:
        self._weather.asked.append(("get", key))
        content = await self._inner.get(key)
        self._weather.sizes["get"] += len(content)
        return content

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        return await self._inner.get_ranges(key, ranges)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._weather.write("delete", keys[0], lambda: self._inner.delete(keys))

    async def clock_skew_ms(self) -> int:
        return 0

    async def close(self) -> None:
        pass


def kind_of(key: str) -> str:
    """Which of the puts of a commit this is."""
    if key.endswith(".metadata.json"):
        return "metadata"
    return "manifest-list" if "/snap-" in key else "manifest"


@dataclass
class Place:
    """Real stores, and the same ones as somebody in bad weather sees them."""

    meta: MetadataStore
    objects: ObjectStore

    def tables(self, weather: Weather | None = None, **limits: Any) -> PyIcebergTables:
        """The tables as one worker sees them."""
        weather = weather or Weather()
        meta, objects = FaultyMeta(self.meta, weather), FaultyObjects(self.objects, weather)
        return builtin_tables(meta, objects, SystemClock(), CatalogLimits(**limits))

    async def with_catalog(
        self,
        work: Callable[[BuiltinCatalog], T],
        *,
        weather: Weather | None = None,
        owner: bool = True,
    ) -> T:
        """Do something with PyIceberg's view of the catalog."""
        weather = weather or Weather()
        meta, objects = FaultyMeta(self.meta, weather), FaultyObjects(self.objects, weather)
        bridge = LibraryThreads(SystemClock(), threads=1)

        def run(calls: Calls) -> T:
            return work(BuiltinCatalog(calls, Pointers(meta), objects, owner=owner))

        try:
            return await bridge.run(run, timeout_s=30)
        finally:
            await bridge.close()

    async def keys(self) -> set[str]:
        """What is in the object store."""
        return {info.key async for info in self.objects.list("")}


def memory() -> Place:
    clock = SystemClock()
    return Place(MemoryMetadataStore(clock), MemoryObjectStore(clock))


@asynccontextmanager
async def on_disk(folder: Path) -> AsyncIterator[Place]:
    """SQLite and a directory, whose name needs escaping in a URL."""
    clock = SystemClock()
    meta = await SqliteMetadataStore.open(folder / "meta.db", clock)
    objects = await LocalObjectStore.open(folder / "the objects", clock, SystemEntropy())
    try:
        yield Place(meta, objects)
    finally:
        await objects.close()
        await meta.close()


def facts(partition: int, start: int, end: int, *, attempt: str = "a") -> DataFileFacts:
    """Facts of a file that nobody reads."""
    key = f"data/{partition}/{start}-{end}-{attempt}.parquet"
    return DataFileFacts(key, partition, start, end, end - start, 1000, start, end)


def advance(partition: int, start: int, end: int, *, attempt: str = "a") -> Advance:
    """An advance with one such file."""
    return Advance(partition, start, end, (facts(partition, start, end, attempt=attempt),))


def parquet(partition: int, start: int, end: int) -> tuple[bytes, tuple[int, ...]]:
    """A real file with these offsets, and where its row groups begin."""
    offsets = range(start, end)
    rows = pa.Table.from_pylist(
        [
            {
                "partition": partition,
                "offset": offset,
                "timestamp": offset * 1000,
                "key": None if offset % 2 else b"k%d" % offset,
                "value": b"value %d" % offset,
                "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
                "attributes": 0,
            }
            for offset in offsets
        ],
        schema=table_schema(),
    )
    sink = io.BytesIO()
    pq.write_table(rows, sink, store_schema=False, row_group_size=7)
    content = sink.getvalue()
    footer = pq.read_metadata(io.BytesIO(content))
    columns = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
    return content, tuple(c.dictionary_page_offset or c.data_page_offset for c in columns)


async def stored(place: Place, partition: int, start: int, end: int) -> Advance:
    """An advance whose file is really there."""
    content, starts = parquet(partition, start, end)
    key = f"data/p={partition}/{start}-{end}.parquet"
    await place.objects.put(key, [content])
    file = DataFileFacts(
        key=key,
        partition=partition,
        offset_first=start,
        offset_end=end,
        row_count=end - start,
        size_bytes=len(content),
        timestamp_min_us=start * 1000,
        timestamp_max_us=(end - 1) * 1000,
        column_sizes=(("value", 10), ("headers.element.key", 5)),
        row_group_starts=starts,
    )
    return Advance(partition, start, end, (file,))


def created(catalog: BuiltinCatalog) -> Table:
    """A new table."""
    return create_table(catalog, DEFINITION, "memory:///tables/t")


def loaded(catalog: BuiltinCatalog) -> Table:
    """The table as it is now."""
    table = load_table(catalog, NAME)
    assert table is not None
    return table


def terms(table: Table, *, kept: int = 10) -> CommitRequirements:
    """For the table as it was loaded."""
    return CommitRequirements(TOPIC_ID, token_of(table), "round-1", kept)


def append(table: Table, *advances: Advance, kept: int = 10) -> AppendResult:
    """One attempt to append."""
    return append_files(table, advances, LOCATIONS, terms(table, kept=kept))


def move(table: Table) -> TableView:
    """One attempt to move."""
    return move_table(table, terms(table))


def exchange(table: Table, replacement: Replacement) -> TableView:
    """One attempt to replace."""
    return replace_files(table, replacement, LOCATIONS, terms(table))


async def appended(tables: Tables, *advances: Advance) -> AppendResult:
    """One attempt to append to the table as it is now."""
    view = await tables.load(NAME)
    assert view is not None
    return await tables.append(NAME, advances, topic_id=TOPIC_ID, commit_id="c", expect=view.token)


def appending(*advances: Advance, kept: int = 10) -> Callable[[BuiltinCatalog], AppendResult]:
    return lambda catalog: append(loaded(catalog), *advances, kept=kept)


async def made() -> Place:
    """Stores with one empty table."""
    there = memory()
    await there.with_catalog(created)
    return there


def nth(kind: str, number: int, fault: Fault) -> Callable[[str, str], Fault | None]:
    """That fault at the n-th write of a kind, and nothing else."""
    seen = Counter[str]()

    def fate(asked: str, _: str) -> Fault | None:
        seen[asked] += 1
        return fault if asked == kind and seen[asked] == number else None

    return fate


def run(work: Callable[[], Any]) -> None:
    """Run a test's coroutine."""
    asyncio.run(work())
