"""What a broker knows of snapshots and groups, in the order in which it looks."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.broker.whole import Stores, whole_broker
from tests.index.index_stage import made

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


class Stage:
    """A broker and a table that keeps one snapshot."""

    def __init__(self, broker: Broker, stores: Stores) -> None:
        self.broker = broker
        self.stores = stores
        self.tables = builtin_tables(
            stores.metadata, stores.objects, stores.clock, CatalogLimits(snapshots_kept=1)
        )

    def index(self, *, is_builtin: bool = True, has_tables: bool = True) -> SnapshotService:
        stores = self.stores
        reads = TableReads(
            stores.metadata, stores.objects, namespace="lakelog", is_builtin=is_builtin
        )
        reads_or_none = reads if has_tables else None
        return SnapshotService(self.broker, stores.metadata, reads_or_none, stores.clock)

    async def born(self, name: str) -> Topic:
        topic = await made(self.broker, name)
        stores = self.stores
        births = TableCreation(stores.metadata, stores.objects, stores.clock, SeededEntropy(name))
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


def run(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def bounded() -> None:
        stores = Stores()
        async with asyncio.timeout(60), whole_broker(stores) as broker:
            stage = Stage(broker, stores)
            try:
                await scenario(stage)
            finally:
                await stage.tables.close()

    asyncio.run(bounded())


def ends(page: bytes) -> list[int]:
    return [one.vector[0] for one in decode_page(page).facts]


def test_live_snapshots_and_those_that_went_are_told_apart() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.born("t")
        for end in (2, 5, 9):
            await grown(stage.tables, topic, end)
        before_ms = stage.stores.clock.now_ms()
        found = await stage.index().snapshots("t")
        after_ms = stage.stores.clock.now_ms()
        assert found.missing == Missing.NOTHING
        assert (found.topic_id, found.partition_count) == (bytes(topic.id), 1)
        assert (ends(found.live), ends(found.recent)) == ([9], [2, 5])
        assert (found.first, found.end) == (0, 0)
        assert before_ms <= found.kept_from_ms + 30 * 86_400_000 <= after_ms
        assert await stage.index().page(bytes(topic.id), 0) is None

    run(scenario)


def test_a_snapshot_that_expires_between_two_looks_is_not_missed() -> None:
    async def scenario(stage: Stage) -> None:
        born = await stage.born("t")
        await grown(stage.tables, born, 2)

        class Late(TableReads):
            """Right after somebody looked at a table, it moves on and lets go of what it had."""

            async def of(self, topic: str) -> TableState:
                seen = await super().of(topic)
                await grown(stage.tables, born, 7)
                return seen

        stores = stage.stores
        reads = Late(stores.metadata, stores.objects, namespace="lakelog", is_builtin=True)
        index = SnapshotService(stage.broker, stores.metadata, reads, stores.clock)
        found = await index.snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([2], [2])

    run(scenario)


def test_of_another_catalog_the_history_says_what_is_live() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.born("t")
        await grown(stage.tables, topic, 2)
        await grown(stage.tables, topic, 4)
        view = await stage.tables.load(TableName("lakelog", "t"))
        assert view is not None
        found = await stage.index(is_builtin=False).snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([], [2])
        history = SnapshotHistory(stage.stores.metadata, stage.stores.clock)
        await history.show_live("t", topic.id.hex(), view.snapshots)
        found = await stage.index(is_builtin=False).snapshots("t")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([4], [2])

    run(scenario)


def test_what_there_is_not_is_named() -> None:
    async def scenario(stage: Stage) -> None:
        await made(stage.broker, "rows", lakelog_format="kfs")
        await made(stage.broker, "new")
        index = stage.index()
        assert (await index.snapshots("absent")).missing == Missing.TOPIC
        assert (await index.snapshots("\x00/../")).missing == Missing.TOPIC
        assert (await index.snapshots("rows")).missing == Missing.TABLE
        assert (await stage.index(has_tables=False).snapshots("new")).missing == Missing.TABLE
        found = await index.snapshots("new")
        assert found.missing == Missing.NOTHING
        assert (ends(found.live), ends(found.recent)) == ([], [])
        assert (await index.committed("g", "absent")).missing == Missing.TOPIC
        assert (await index.committed("g", "new")).missing == Missing.GROUP

    run(scenario)


def test_a_table_or_a_history_that_cannot_be_read_is_an_error_that_names_it() -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.born("t")
        await stage.stores.metadata.put(keys.snapshot_head(topic.id.hex()), b"x")
        with pytest.raises(Corrupt, match="history"):
            await stage.index().snapshots("t")
        pointer = await Pointers(stage.stores.metadata).get(TableName("lakelog", "t"))
        assert pointer is not None
        await stage.stores.objects.delete([pointer.metadata_location.removeprefix("memory:///")])
        with pytest.raises(Corrupt, match="the table of t cannot be read"):
            await stage.index().snapshots("t")

    run(scenario)
