"""The tables of topics as people see them, made by the real catalog."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import filled, made, swapped
from tests.memory_cluster import MemoryCluster

from lakelog.broker.call import Broker
from lakelog.catalog.pointers import Pointers, TableCreation
from lakelog.catalog.port import Advance, DataFileFacts, TableDefinition, TableName
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SeededEntropy
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.table_service import TableList, TableReads
from lakelog.model.failures import NotFound
from lakelog.objects.memory import MemoryObjectStore
from lakelog.topics.topic import Topic

Scenario = Callable[["BrokerWithTables"], Awaitable[None]]


class Counting(MemoryObjectStore):
    """Counts what is read."""

    reads = 0

    async def get(self, key: str) -> memoryview:
        self.reads += 1
        return await super().get(key)


class BrokerWithTables:
    """A broker, its tables, and the list of them."""

    def __init__(self, broker: Broker, cluster: MemoryCluster, objects: Counting) -> None:
        self.broker = broker
        self.cluster = cluster
        self.objects = objects

    def listing(self, *, is_builtin: bool = True) -> TableList:
        cluster = self.cluster
        reads = TableReads(
            cluster.metadata, cluster.objects, namespace="lakelog", is_builtin=is_builtin
        )
        return TableList(self.broker, reads, cluster.clock)

    async def born(self, topic: Topic) -> TableDefinition:
        cluster = self.cluster
        births = TableCreation(cluster.metadata, cluster.objects, cluster.clock, SeededEntropy("b"))
        name = TableName("lakelog", topic.name)
        definition = TableDefinition(name, topic.name, topic.id.hex(), "c")
        await births.create(definition)
        return definition

    async def appended(self, definition: TableDefinition, *, end: int) -> None:
        """The rows [0, end) of partition 0 are in the table, in one file."""
        tables = builtin_tables(self.cluster.metadata, self.cluster.objects, self.cluster.clock)
        view = await tables.load(definition.name)
        assert view is not None
        file = DataFileFacts("compaction/v1/f", 0, 0, end, end, 100, 0, 0)
        await tables.append(
            definition.name,
            [Advance(0, 0, end, (file,))],
            topic_id=definition.topic_id,
            commit_id="x",
            expect=view.token,
        )
        await tables.close()


def run(scenario: Scenario) -> None:
    @asynccontextmanager
    async def setup() -> AsyncIterator[BrokerWithTables]:
        cluster = MemoryCluster()
        objects = Counting(cluster.clock)
        cluster.objects = objects
        async with whole_broker(cluster) as broker:
            yield BrokerWithTables(broker, cluster, objects)

    async def bounded() -> None:
        async with asyncio.timeout(60), setup() as made_stage:
            await scenario(made_stage)

    asyncio.run(bounded())


def test_a_table_says_how_far_it_is_behind_its_topic() -> None:
    async def scenario(setup: BrokerWithTables) -> None:
        topic = await made(setup.broker, "t", 2)
        await made(setup.broker, "rows", lakelog_format="kfs")
        listing = setup.listing()
        (row,) = await listing.listed()
        assert (row["topic"], row["table"]) == ("t", "lakelog.t")
        assert (row["rows_behind"], row["seconds_behind"], row["snapshots"]) == (0, 0.0, None)
        definition = await setup.born(topic)
        await filled(setup.broker, topic.streams(), objects=3)
        (row,) = await listing.listed()
        assert (row["rows_behind"], row["snapshots"], row["snapshot_id"]) == (12, 0, None)
        seconds = row["seconds_behind"]
        assert isinstance(seconds, float)
        assert 0 <= seconds < 30
        await setup.appended(definition, end=4)
        (row,) = await listing.listed()
        assert (row["rows_behind"], row["snapshots"], row["rows"], row["files"]) == (8, 1, 4, 1)
        assert row["error"] is None
        assert str(row["metadata_location"]).startswith("memory:///tables/lakelog/t/")

    run(scenario)


def test_a_table_is_described_by_its_partitions_and_snapshots() -> None:
    async def scenario(setup: BrokerWithTables) -> None:
        topic = await made(setup.broker, "t", 2)
        await made(setup.broker, "rows", lakelog_format="kfs")
        first, second = topic.streams()
        definition = await setup.born(topic)
        await filled(setup.broker, [first, second], objects=3)
        await setup.appended(definition, end=4)
        index = BrokerIndex(setup.broker, setup.cluster.clock)
        await swapped(index, first, start=0, end=4, key="compaction/v1/f")
        await swapped(index, second, start=0, end=6, key="compaction/v1/g")
        await setup.broker.log.trim({second: 2})
        found = await setup.listing().described("t")
        partitions, history = found["partitions"], found["history"]
        assert isinstance(partitions, list)
        assert isinstance(history, list)
        assert {**partitions[0], "seconds_behind": 0} == {
            "partition": 0,
            "log_start": 0,
            "head": 6,
            "table_end": 4,
            "rows_behind": 2,
            "seconds_behind": 0,
        }
        assert partitions[0]["seconds_behind"] > 0
        assert partitions[1] == {
            "partition": 1,
            "log_start": 2,
            "head": 6,
            "table_end": None,
            "rows_behind": 4,
            "seconds_behind": 0.0,
        }
        assert [(one["operation"], one["added_rows"]) for one in history] == [("append", 4)]
        assert history[0]["snapshot_id"] == found["snapshot_id"]
        for name in ("absent", "rows"):
            with pytest.raises(NotFound, match=name):
                await setup.listing().described(name)

    run(scenario)


def test_metadata_is_read_again_only_when_it_changed() -> None:
    async def scenario(setup: BrokerWithTables) -> None:
        for number in range(5):
            await setup.born(await made(setup.broker, f"t{number}"))
        definition = await setup.born(await made(setup.broker, "u"))
        listing = setup.listing()
        await listing.listed()
        before = setup.objects.reads
        assert len(await listing.listed()) == 6
        assert setup.objects.reads == before
        await setup.appended(definition, end=1)
        before = setup.objects.reads
        await listing.listed()
        assert setup.objects.reads == before + 1

    run(scenario)


def test_a_table_that_cannot_be_read_says_why_and_the_others_are_shown() -> None:
    async def scenario(setup: BrokerWithTables) -> None:
        for name in ("broken", "foreign", "good", "gone"):
            await setup.born(await made(setup.broker, name))
        pointers = Pointers(setup.cluster.metadata)
        found = {one.name.table: one for one in await pointers.tables("lakelog")}
        keys = {
            name: one.metadata_location.removeprefix("memory:///") for name, one in found.items()
        }
        await setup.objects.put(keys["broken"], [b'{"table-uuid": 7}'])
        await setup.objects.delete([keys["gone"]])
        place = found["foreign"]
        await pointers.move(place.name, "s3://elsewhere/x.json", expect=place.version)
        errors = {row["topic"]: row["error"] for row in await setup.listing().listed()}
        assert errors["good"] is None
        assert "is not the metadata of a table" in str(errors["broken"])
        assert "is outside" in str(errors["foreign"])
        assert errors["gone"] is not None

    run(scenario)


def test_what_another_catalog_holds_is_not_known_here() -> None:
    async def scenario(setup: BrokerWithTables) -> None:
        topic = await made(setup.broker, "t")
        await filled(setup.broker, topic.streams(), objects=1)
        (row,) = await setup.listing(is_builtin=False).listed()
        assert (row["rows_behind"], row["snapshots"]) == (None, None)
        found = await setup.listing(is_builtin=False).described("t")
        assert (found["history"], found["uuid"]) == ([], None)

    run(scenario)
