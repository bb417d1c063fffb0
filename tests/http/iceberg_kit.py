"""The catalog on a real port, with tables of real files, for engines that block."""

import asyncio
import io
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.catalog.kit import FaultyMeta, FaultyObjects, Weather
from tests.records.table_cases import ROOMY, hostile_batches

from lakelog.catalog.pointers import TableCreation
from lakelog.catalog.port import Advance, DataFileFacts, TableDefinition, TableName
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_metadata, open_objects
from lakelog.http.iceberg_messages import VendOptions
from lakelog.http.iceberg_routes import IcebergPages, iceberg_routes, open_iceberg
from lakelog.http.service import serve
from lakelog.meta.port import MetadataStore
from lakelog.objects.port import ObjectStore
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.table_file import TableFileWriter
from lakelog.records.table_rows import rows_from_batches
from lakelog.records.table_schema import TableFileFacts, TableFileOrigin

T = TypeVar("T")
Batches = list[tuple[int, memoryview]]

NAMESPACE = "lakelog"
TOPIC_ID = "0123456789abcdef" * 2


@dataclass
class Stores:
    """Where tables are, in good weather and as the catalog sees them."""

    meta: MetadataStore
    objects: ObjectStore
    weather: Weather = field(default_factory=Weather)

    def pages(self, vend: VendOptions | None = None) -> IcebergPages:
        """The catalog over these stores."""
        meta = FaultyMeta(self.meta, self.weather)
        objects = FaultyObjects(self.objects, self.weather)
        return open_iceberg(meta, objects, SystemClock(), vend=vend, namespace=NAMESPACE)

    async def create(self, table: str) -> None:
        """An empty table, made as a broker makes it with its topic."""
        births = TableCreation(self.meta, self.objects, SystemClock(), SystemEntropy())
        definition = TableDefinition(TableName(NAMESPACE, table), table, TOPIC_ID, "cluster-1")
        await births.create(definition)

    async def append(self, table: str, *advances: Advance) -> None:
        """Rows, by the log itself."""
        tables = builtin_tables(self.meta, self.objects, SystemClock())
        name = TableName(NAMESPACE, table)
        view = await tables.load(name)
        assert view is not None
        done = await tables.append(
            name, advances, topic_id=TOPIC_ID, commit_id="c", expect=view.token
        )
        assert len(done.added) == len(advances), done
        await tables.close()

    async def rows(self, partition: int, batches: Batches, *, start: int, end: int) -> Advance:
        """An advance with one file that holds these batches."""
        content, facts = written(partition, batches, start=start, end=end)
        key = f"data/{partition}/{start}-{end}.parquet"
        await self.objects.put(key, [content])
        return Advance(partition, start, end, (described(key, facts),), at_log_start=True)


def written(
    partition: int, batches: Batches, *, start: int, end: int
) -> tuple[bytes, TableFileFacts]:
    """A data file as compaction writes it."""
    sink = io.BytesIO()
    origin = TableFileOrigin(
        partition, bytes.fromhex(TOPIC_ID), partition, "task", start, end, 1 << 20
    )
    writer = TableFileWriter(sink, origin, row_group_bytes=100_000)
    writer.write(rows_from_batches(batches, partition=partition, decompressed_bytes_max=ROOMY))
    facts = writer.close()
    return sink.getvalue(), facts


def described(key: str, facts: TableFileFacts) -> DataFileFacts:
    """What the table has to know of the file."""
    bounds = {
        column.path: (column.lower, column.upper)
        for column in facts.columns
        if column.lower is not None and column.upper is not None
    }
    first, last = bounds["offset"]
    earliest, latest = bounds["timestamp"]
    return DataFileFacts(
        key=key,
        partition=facts.origin.partition,
        offset_first=first,
        offset_end=last + 1,
        row_count=facts.row_count,
        size_bytes=facts.size_bytes,
        timestamp_min_us=earliest,
        timestamp_max_us=latest,
        column_sizes=tuple((column.path, column.size_bytes) for column in facts.columns),
        row_group_starts=tuple(group.byte_start for group in facts.row_groups),
    )


def plain_batches(count: int) -> Batches:
    """Ordinary records."""
    records = [Record(b"k%d" % at, b"value %d" % at, 1_700_000_000_000 + at) for at in range(count)]
    return [(0, memoryview(build_batch(records, BatchOptions())))]


async def nothing(_: Stores) -> None:
    """No table at all."""


async def small(stores: Stores, table: str = "orders") -> None:
    """A table with two snapshots of a few rows."""
    await stores.create(table)
    for partition in range(2):
        rows = await stores.rows(partition, plain_batches(5), start=0, end=5)
        await stores.append(table, rows)


async def fill(stores: Stores, table: str = "orders") -> None:
    """A table whose first partition has ordinary rows and whose second has hostile ones."""
    await stores.create(table)
    await stores.append(table, await stores.rows(0, plain_batches(1000), start=0, end=1000))
    hostile = hostile_batches()
    end = 10_000
    await stores.append(table, await stores.rows(1, hostile, start=3, end=end))


@dataclass
class Asked:
    """One request and what came of it."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    status: int = 0


@dataclass
class Served:
    """The catalog on its port."""

    uri: str
    stores: Stores
    loop: asyncio.AbstractEventLoop
    asked: list[Asked]

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something where the stores live."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)


class Recorder:
    """Notes every request."""

    def __init__(self, app: ASGIApp, asked: list[Asked]) -> None:
        self._app = app
        self._asked = asked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): text.decode("latin-1") for name, text in scope["headers"]}
        raw, query = scope["raw_path"].decode(), scope["query_string"].decode()
        asked = Asked(scope["method"], raw, query, headers)
        self._asked.append(asked)

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                asked.status = message["status"]
            await send(message)

        await self._app(scope, receive, noted)


@contextmanager
def served(
    folder: Path,
    *,
    objects_url: str | None = None,
    options: Mapping[str, str] | None = None,
    vend: VendOptions | None = None,
    setup: Callable[[Stores], Coroutine[Any, Any, None]] = fill,
) -> Iterator[Served]:
    """The catalog in a thread of its own, over SQLite and a directory with a blank in its name."""
    ready: Any = threading.Event()
    holder: list[Served] = []
    failures: list[BaseException] = []
    stop: list[asyncio.Event] = []

    async def run() -> None:
        stop.append(asyncio.Event())
        clock = SystemClock()
        meta = await open_metadata(f"sqlite:{folder / 'meta.db'}", clock)
        url = objects_url or f"file:{folder / 'the objects'}"
        objects = await open_objects(url, options or {}, clock, SystemEntropy())
        stores = Stores(meta, objects)
        await setup(stores)
        pages = stores.pages(vend)
        app = Starlette(routes=iceberg_routes(pages))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            uri = f"http://127.0.0.1:{listening.getsockname()[1]}/iceberg"
            asked: list[Asked] = []
            holder.append(Served(uri, stores, asyncio.get_running_loop(), asked))
            recorded: Any = Recorder(app, asked)
            serving = asyncio.create_task(serve(recorded, listening))
            ready.set()
            await stop[0].wait()
            serving.cancel()
            await asyncio.wait([serving])
        await pages.close()
        await objects.close()
        await meta.close()

    def thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            ready.set()

    running = threading.Thread(target=thread, name="catalog")
    running.start()
    assert ready.wait(60)
    assert not failures, failures
    try:
        yield holder[0]
    finally:
        holder[0].loop.call_soon_threadsafe(stop[0].set)
        running.join(30)
    assert not failures, failures
