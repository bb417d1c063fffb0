"""Files say the ids that their table gives its columns, whoever made the table."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from tests.pipeline.pipeline_faults import Down, rows_or_bytes, send
from tests.pipeline.pipeline_place import CLUSTER, EAGER, NAMESPACE, Place, run, sqlite_place

from lakelog.catalog.commit import iceberg_schema
from lakelog.catalog.definition import table_properties
from lakelog.catalog.port import TableName
from lakelog.catalog.tables import external_tables
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.saga.table_view import definition_of
from lakelog.records.table_schema import FIELD_IDS

TIDY = replace(EAGER, upkeep_ms=0, rewrite=RewriteOptions(files_min=3))


def catalog_of(folder: Path) -> SqlCatalog:
    return SqlCatalog(
        "lakelog", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/elsewhere"
    )


def made_by_another(folder: Path, place: Place) -> dict[str, int]:
    """A table of the topic with the columns in another order; returns their ids."""
    (topic,) = place.topics
    definition = definition_of(topic.name, topic.topic_id, cluster_id=CLUSTER, namespace=NAMESPACE)
    schema = Schema(*reversed(iceberg_schema().fields))
    source = schema.find_field("partition").field_id
    spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "partition"))
    catalog = catalog_of(folder)
    catalog.create_namespace(NAMESPACE)
    location = f"{place.objects.url.rstrip('/')}/tables/orders"
    table = catalog.create_table(
        (NAMESPACE, "orders"),
        schema,
        location,
        spec,
        UNSORTED_SORT_ORDER,
        {"format-version": "2", **table_properties(definition)},
    )
    catalog.close()
    return {path: table.schema().find_field(path).field_id for path in FIELD_IDS}


@asynccontextmanager
async def outside(folder: Path) -> AsyncIterator[Place]:
    """A place whose tables are in another's catalog."""
    async with sqlite_place(folder) as place:
        await place.tables.close()
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
        place.tables = external_tables(properties, place.objects, place.clock)
        await place.topic("orders", [1])
        yield place


def ids_in(content: memoryview) -> dict[str, int]:
    """The ids that a data file says, of its columns that are not made of others."""
    schema = pq.read_schema(pa.BufferReader(content))
    marks = {one.name: one.metadata for one in schema if one.metadata is not None}
    return {name: int(mark[b"PARQUET:field_id"]) for name, mark in marks.items()}


def test_files_of_all_kinds_say_the_ids_of_a_table_that_another_made(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(60), outside(tmp_path) as place:
            ids = await asyncio.to_thread(made_by_another, tmp_path, place)
            assert ids != FIELD_IDS
            view = await place.tables.load(TableName(NAMESPACE, "orders"))
            assert view is not None
            assert view.field_ids == ids
            await send(place, 1, "gxg")
            pipeline = place.pipeline(options=TIDY)
            for _ in range(4):
                await place.produce(1, batches=1)
                await asyncio.sleep(EAGER.retry_ms / 1000)
                await pipeline.round()
            report = await pipeline.drain(rounds_max=12)
            assert report.all_obstacles == ()
            kinds = [key.rpartition(".")[2] for key in await place.kinds(1)]
            assert kinds == ["kfs", "parquet"]
            named = {file.key for file in await place.files("orders", 0)}
            assert len(named) == 2  # the rows of the segment, and what small files became
            for key in named:
                found = ids_in(await place.objects.get(key))
                assert found == {path: ids[path] for path in found}
                assert found.keys() >= {"partition", "offset", "value", "raw"}
            rows = await rows_or_bytes(place, 1)
            expected = {row.offset: row.value for row in rows if row.timestamp_ms >= 0}
            seen = await asyncio.to_thread(read_outside, tmp_path)
            assert seen == expected

    asyncio.run(work())


def read_outside(folder: Path) -> dict[int, bytes]:
    """The table as another engine reads it, which goes by ids."""
    catalog = catalog_of(folder)
    rows = catalog.load_table((NAMESPACE, "orders")).scan().to_arrow()
    catalog.close()
    return dict(zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True))


def test_a_table_that_lost_a_column_gets_no_files_and_is_reported(tmp_path: Path) -> None:
    async def work() -> None:
        async with asyncio.timeout(60), outside(tmp_path) as place:
            await place.produce(1)
            assert (await place.pipeline().round()).all_obstacles == ()

            def lose() -> None:
                catalog = catalog_of(tmp_path)
                with catalog.load_table((NAMESPACE, "orders")).update_schema() as update:
                    update.delete_column("raw")
                catalog.close()

            await asyncio.to_thread(lose)
            await place.produce(1)
            (obstacle,) = (await place.pipeline().round()).all_obstacles
            assert "no column raw" in obstacle.reason
            assert (obstacle.topic, obstacle.partition) == ("orders", 0)
            assert "wal" in await place.kinds(1)

    asyncio.run(work())


def test_a_task_whose_table_cannot_be_asked_waits_for_it_alone() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.topic("plain", [2], has_table=False)
        await place.produce(1, 2)
        engine = Down(InlineEngine(place.objects), "run")
        await place.pipeline(engine=engine).round()  # the tasks are there, their files not
        options = replace(EAGER, lease_ms=1)
        tables = Down(place.tables, "load")
        later = Later(place)
        report = await place.pipeline(tables=tables, options=options, clock=later).round()
        assert [one.topic for one in report.all_obstacles] == ["orders"]
        assert "wal" not in await place.kinds(2)
        tables.is_up = True
        later.ahead_ms += EAGER.lease_ms
        report = await place.pipeline(tables=tables, options=options, clock=later).round()
        assert report.all_obstacles == ()
        assert "wal" not in await place.kinds(1)

    run(scenario)


class Later:
    """The place's clock, with every lease of before over."""

    def __init__(self, place: Place) -> None:
        self._clock = place.clock
        self.ahead_ms = EAGER.lease_ms + 1

    def now_ms(self) -> int:
        return self._clock.now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s() + self.ahead_ms / 1000
