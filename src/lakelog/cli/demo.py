"""`lakelog demo`: the whole story in one go, checked, from a producer to a query of the table.

The table is compacted by the pipeline as a user would run it, then queried through the broker's
Iceberg catalog, as any engine would: by PyIceberg, and by DuckDB where it is installed with its
extensions.
"""

import asyncio
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lakelog.cli.command import check, open_cluster, show, show_json
from lakelog.cli.compose import RunningBroker, embedded_broker
from lakelog.cli.demo_clients import Placed, clients
from lakelog.cli.offsets import End, ReadBounds, Start
from lakelog.cli.pipeline import check_pipeline
from lakelog.cli.record_clients import TopicRead, consume
from lakelog.cli.serve import loop_factory
from lakelog.clock import SystemClock
from lakelog.config.load import load
from lakelog.config.options import Options
from lakelog.kafka_client.dialing import dial
from lakelog.model.failures import Corrupt, Refused, Unavailable
from lakelog.records.build import Record
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.cli.demo_clients import Placed

SPARK_S_MAX: Final = 300.0
EXTENSIONS: Final = ("avro", "httpfs", "iceberg")


@dataclass(frozen=True, slots=True)
class TableFigures:
    """What the table came to."""

    files: int
    rows: int
    size_bytes: int
    spark_s: float
    query_s: float = 0.0
    consume_again_s: float = 0.0


async def compacted(running: RunningBroker, options: Options) -> TableFigures:
    """Run `lakelog pipeline --once` for this broker; what it wrote."""
    began_s = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lakelog.cli.main", "pipeline", "--once", "--json"),
        *("--data", options.broker.data, "--server", f"http://{running.http}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(SPARK_S_MAX):
            answer, complaints = await child.communicate()
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()
    if child.returncode:
        raise Unavailable(f"the pipeline failed: {complaints.decode(errors='replace')[-500:]}")
    topics = json.loads(answer)
    return TableFigures(
        files=sum(topic["files"] for topic in topics),
        rows=sum(topic["rows"] for topic in topics),
        size_bytes=sum(topic["written_bytes"] for topic in topics),
        spark_s=time.perf_counter() - began_s,
    )


def same_rows(running: RunningBroker, namespace: str, topic: str, placed: "Placed") -> None:
    """Raise `Corrupt` unless the table has exactly these records; blocks while it is read."""
    from pyiceberg.catalog.rest import RestCatalog  # noqa: PLC0415 - slow to import, and an extra

    catalog = RestCatalog("demo", uri=f"http://{running.http}/iceberg")
    rows = catalog.load_table((namespace, topic)).scan().to_arrow()
    if rows.num_rows != len(placed):
        raise Corrupt(f"{len(placed)} records were produced, the table has {rows.num_rows} rows")
    for row in _rows(rows):
        partition, offset, *found = row
        record = placed.get((int(str(partition)), int(str(offset))))
        wanted = None if record is None else [record.timestamp_ms, record.key, record.value]
        if found != wanted:
            raise Corrupt(f"the row of offset {offset} of partition {partition} differs")


def duckdb_count(running: RunningBroker, namespace: str, topic: str) -> int | None:
    """How many rows DuckDB counts; None where it or an extension is not installed."""
    places = [importlib.util.find_spec(f"duckdb_extension_{name}") for name in EXTENSIONS]
    if importlib.util.find_spec("duckdb") is None or None in places:
        return None
    import duckdb  # noqa: PLC0415 - only where it is installed

    with duckdb.connect() as connection:
        for name, place in zip(EXTENSIONS, places, strict=True):
            assert place is not None, "looked at above"
            files = Path(str(place.origin)).parent / "extensions" / f"v{duckdb.__version__}"
            connection.execute(f"LOAD '{files / f'{name}.duckdb_extension'}'")
        connection.execute(
            f"ATTACH '' AS lake (TYPE iceberg, ENDPOINT 'http://{running.http}/iceberg',"
            " AUTHORIZATION_TYPE 'none')"
        )
        counting = f'SELECT count(*) FROM lake."{namespace}"."{topic}"'  # noqa: S608 - names of ours
        found = connection.execute(counting).fetchone()
    assert found is not None, "a count is one row"
    return int(found[0])


def _rows(rows: "pa.Table") -> "list[tuple[object, ...]]":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    stamps = rows["timestamp"].cast(pa.int64()).to_numpy() // 1000
    columns = [rows[name].to_pylist() for name in ("partition", "offset", "key", "value")]
    return list(zip(columns[0], columns[1], stamps.tolist(), *columns[2:], strict=True))


TOPIC: Final = "demo"
PARTITIONS: Final = 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the demo measured."""

    records: int
    size_bytes: int
    client: str
    start_s: float
    produce_s: float
    consume_s: float
    table: TableFigures | None = None
    without_table: str = ""
    """Why there is no table, if there is none."""


@click.command()
@click.option(
    "--records",
    "count",
    type=click.IntRange(1, 5_000_000),
    default=100_000,
    show_default=True,
    help="How many records to send.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def demo(count: int, as_json: bool) -> None:
    """Show the whole story in a minute, and check it.

    Starts a broker on free ports with an empty directory, produces with a Kafka client, consumes in
    a group, turns the topic into a table with Spark, queries the table through the catalog, reads
    the topic once more, compares every record each time, prints the figures and cleans up.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-demo-") as directory,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures = runner.run(_story(Path(directory), count, quiet=as_json))
    if as_json:
        show_json(asdict(figures))
    else:
        show(_told(figures))


async def _story(directory: Path, count: int, *, quiet: bool) -> Figures:
    def say(text: str) -> None:
        if not quiet:
            show(text)

    began_s = time.perf_counter()
    ports = {"broker.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    options = load(None, {}, {**ports, "broker.data": str(directory)})
    async with embedded_broker(options) as running:
        start_s = time.perf_counter() - began_s
        say(f"A broker serves at {running.address} after {start_s:.2f} s, data in {directory}")
        sent = list(_records(count))
        figures, placed = await _exchange(running, sent, start_s, say)
        return await _tabled(options, running, placed, figures, say)


async def _exchange(
    running: RunningBroker, sent: list[Record], start_s: float, say: Say
) -> tuple[Figures, Placed]:
    """Produce and consume; returns where every record is."""
    async with await dial(str(running.address)) as connection:
        topic = CreatableTopic(TOPIC, PARTITIONS, -1)
        created = await connection.call(CreateTopicsRequest((topic,)), CreateTopicsResponse)
        check(created.topics[0].error_code, created.topics[0].error_message, about=TOPIC)
    say(f"Topic {TOPIC!r} with {PARTITIONS} partitions is there, and is an empty table")
    kafka = clients(running.address)
    began_s = time.perf_counter()
    placed = await kafka.produce(TOPIC, sent)
    produce_s = time.perf_counter() - began_s
    say(f"{len(sent):,} records were produced with {kafka.name} in {produce_s:.2f} s")
    began_s = time.perf_counter()
    _compare(placed, await kafka.consume(TOPIC, len(sent)))
    consume_s = time.perf_counter() - began_s
    say(f"{len(sent):,} records were consumed by {kafka.reader}, every one as it was sent")
    size_bytes = sum(len(each.key or b"") + len(each.value or b"") for each in sent)
    return Figures(len(sent), size_bytes, kafka.name, start_s, produce_s, consume_s), placed


async def _tabled(
    options: Options, running: RunningBroker, placed: Placed, figures: Figures, say: Say
) -> Figures:
    """Turn the topic into a table, and see that it says the same as the log."""
    try:
        check_pipeline(options)
    except Refused as reason:
        say(f"The table stays empty: {reason}")
        return replace(figures, without_table=str(reason))
    say("Spark starts, which takes some seconds the first time, and compacts …")
    table = await compacted(running, options)
    say(f"Spark wrote {table.files} data files in {table.spark_s:.1f} s, its start included")
    began_s = time.perf_counter()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, same_rows, running, options.tables.namespace, TOPIC, placed)
    query_s = time.perf_counter() - began_s
    say(f"PyIceberg reads {len(placed):,} rows through the catalog, every one as it was sent")
    namespace = options.tables.namespace
    counted = await loop.run_in_executor(None, duckdb_count, running, namespace, TOPIC)
    if counted is not None:
        if counted != len(placed):
            raise Corrupt(f"DuckDB counts {counted} rows of {len(placed)}")
        say(f"DuckDB counts {counted:,} rows")
    began_s = time.perf_counter()
    async with open_cluster({"bootstrap.servers": str(running.address)}) as cluster:
        found: Placed = {}
        async for some in consume(cluster, TopicRead(TOPIC, ReadBounds(Start(), End()))):
            found |= {(each.partition, each.offset): each.record for each in some}
    _compare(placed, found)
    again_s = time.perf_counter() - began_s
    say("The log, now served from the same data files, says the same: one copy, two planes")
    return replace(figures, table=replace(table, query_s=query_s, consume_again_s=again_s))


def _compare(placed: Placed, found: Placed) -> None:
    """Raise `Corrupt` unless both are the same, record by record."""
    if len(found) != len(placed):
        raise Corrupt(f"{len(placed)} records were produced, {len(found)} consumed")
    for (partition, offset), record in placed.items():
        if found.get((partition, offset)) != record:
            raise Corrupt(f"offset {offset} of partition {partition} differs")


def _records(count: int) -> Iterator[Record]:
    now_ms = SystemClock().now_ms()
    for number in range(count):
        headers = ((b"source", b"demo"), (b"note", None)) if number % 10 == 0 else ()
        value = None if number % 1000 == 999 else f'{{"order": {number}, "amount": 42}}'.encode()
        yield Record(f"customer-{number % 97}".encode(), value, now_ms + number // 100, headers)


def _told(figures: Figures) -> str:
    into, out = figures.records / figures.produce_s, figures.records / figures.consume_s
    lines = ["", f"{figures.records:,} records ({figures.size_bytes / 1e6:.1f} MB):"]
    lines[-1] += f" {into:,.0f} records/s in, {out:,.0f} records/s out ({figures.client})"
    table = figures.table
    if table is not None:
        lines.append(
            f"{table.rows:,} rows in {table.files} data files ({table.size_bytes / 1e6:.1f} MB):"
            f" compacted in {table.spark_s:.1f} s with Spark's start, queried in"
            f" {table.query_s:.1f} s, consumed again in {table.consume_again_s:.1f} s"
        )
    return "\n".join([*lines, "All is well. Next: `lakelog up`"])
