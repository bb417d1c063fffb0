"""What a broker knows of snapshots and groups, in the order in which it looks."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import made
from tests.memory_cluster import MemoryCluster

from lakelog.broker.call import Broker
from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.pointers import Pointers, TableCreation
from lakelog.catalog.port import Advance, CatalogLimits, DataFileFacts, TableDefinition, TableName
from lakelog.catalog.snapshot_page import decode_page
from lakelog.catalog.tables import PyIcebergTables, builtin_tables
from lakelog.clock import SeededEntropy
from lakelog.index.broker_services import SnapshotService
from lakelog.index.messages import Missing
from lakelog.index.table_service import TableReads, TableState
from lakelog.meta import keys
from lakelog.model.failures import Corrupt
from lakelog.topics.topic import Topic


class BrokerWithSnapshots:
    """A broker and a table that keeps one snapshot."""

    def __init__(self, broker: Broker, cluster: MemoryCluster) -> None:
        self.broker = broker
        self.cluster = cluster
        self.tables = builtin_tables(
            cluster.metadata, cluster.objects, cluster.clock, CatalogLimits(snapshots_kept=1)
        )

    def index(self, *, is_builtin: bool = True, has_tables: bool = True) -> SnapshotService:
        cluster = self.cluster
        reads = TableReads(
            cluster.metadata, cluster.objects, namespace="lakelog", is_builtin=is_builtin
        )
        reads_or_none = reads if has_tables else None
        return SnapshotService(self.broker, cluster.metadata, reads_or_none, cluster.clock)

    async def born(self, name: str) -> Topic:
        topic = await made(self.broker, name)
        cluster = self.cluster
        births = TableCreation(
            cluster.metadata, cluster.objects, cluster.clock, SeededEntropy(name)
        )
        place = TableName("lakelog", name)
        await births.create(TableDefinition(place, name, topic.id.hex(), "c"))
        return topic


async def grown(tables: PyIcebergTables, topic: Topic, end: int) -> None:
    """One snapshot more, up to that offset."""
    name = TableName("lakelog", topic.name)
    view = await tables.load(name)
    assert view is not None
    start = view.vector.get(0, 0)
    file = DataFileFacts(f"compaction/v1/{start}", 0, start, end, end - start, 100, 0, 0)
    advances = [Advance(0, start, end, (file,))]
    topic_id = topic.id.hex()
    await tables.append(name, advances, topic_id=topic_id, commit_id="x", expect=view.token)


def run(scenario: Callable[[BrokerWithSnapshots], Awaitable[None]]) -> None:
    async def bounded() -> None:
        cluster = MemoryCluster()
        async with asyncio.timeout(60), whole_broker(cluster) as broker:
            setup = BrokerWithSnapshots(broker, cluster)
            try:
                await scenario(setup)
            finally:
                await setup.tables.close()

    asyncio.run(bounded())


def ends(page: bytes) -> list[int]:
    return [one.vector[0] for one in decode_page(page).facts]


def test_live_snapshots_and_those_that_went_are_told_apart() -> None:
    async def scenario(setup: BrokerWithSnapshots) -> None:
        topic = await setup.born("t")
        for end in (2, 5, 9):
            await grown(setup.tables, topic, end)
        before_ms = setup.cluster.clock.now_ms()
        found = await setup.index().snapshots("t")
        after_ms = setup.cluster.clock.now_ms()
        assert found.missing == Missing.NOTHING
        assert (found.topic_id, found.partition_count) == (bytes(topic.id), 1)
        assert (ends(found.live), ends(found.recent)) == ([9], [2, 5])
        assert (found.first, found.end) == (0, 0)
        assert before_ms <= found.kept_from_ms + 30 * 86_400_000 <= after_ms
        assert await setup.index().page(bytes(topic.id), 0) is None

    run(scenario)


def test_a_snapshot_that_expires_between_two_looks_is_not_missed() -> None:
    async def scenario(setup: BrokerWithSnapshots) -> None:
        born = await setup.born("t")
        await grown(setup.tables, born, 2)

        class Late(TableReads):
            """Right after somebody looked at a table, it moves on and lets go of what it had."""

            async def of(self, topic: str) -> TableState:
                seen = await super().of(topic)
                await grown(setup.tables, born, 7)
                return seen

        cluster = setup.cluster
        reads = Late(cluster.metadata, cluster.objects, namespace="lakelog", is_builtin=True)
        index = SnapshotService(setup.broker, cluster.metadata, reads, cluster.clock)
        found = await index.snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([2], [2])

    run(scenario)


def test_of_another_catalog_the_history_says_what_is_live() -> None:
    async def scenario(setup: BrokerWithSnapshots) -> None:
        topic = await setup.born("t")
        await grown(setup.tables, topic, 2)
        await grown(setup.tables, topic, 4)
        view = await setup.tables.load(TableName("lakelog", "t"))
        assert view is not None
        found = await setup.index(is_builtin=False).snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([], [2])
        history = SnapshotHistory(setup.cluster.metadata, setup.cluster.clock)
        await history.show_live("t", topic.id.hex(), view.snapshots)
        found = await setup.index(is_builtin=False).snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([4], [2])

    run(scenario)


def test_what_there_is_not_is_named() -> None:
    async def scenario(setup: BrokerWithSnapshots) -> None:
        await made(setup.broker, "rows", lakelog_format="kfs")
        await made(setup.broker, "new")
        index = setup.index()
        assert (await index.snapshots("absent")).missing == Missing.TOPIC
        assert (await index.snapshots("\x00/../")).missing == Missing.TOPIC
        assert (await index.snapshots("rows")).missing == Missing.TABLE
        assert (await setup.index(has_tables=False).snapshots("new")).missing == Missing.TABLE
        found = await index.snapshots("new")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([], [])
        assert (await index.committed("g", "absent")).missing == Missing.TOPIC
        assert (await index.committed("g", "new")).missing == Missing.GROUP

    run(scenario)


def test_a_table_or_a_history_that_cannot_be_read_is_an_error_that_names_it() -> None:
    async def scenario(setup: BrokerWithSnapshots) -> None:
        topic = await setup.born("t")
        await setup.cluster.metadata.put(keys.snapshot_head(topic.id.hex()), b"x")
        with pytest.raises(Corrupt, match="history"):
            await setup.index().snapshots("t")
        pointer = await Pointers(setup.cluster.metadata).get(TableName("lakelog", "t"))
        assert pointer is not None
        await setup.cluster.objects.delete([pointer.metadata_location.removeprefix("memory:///")])
        with pytest.raises(Corrupt, match="the table of t cannot be read"):
            await setup.index().snapshots("t")

    run(scenario)
