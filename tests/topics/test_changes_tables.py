"""Tables come and go with their topics, whoever makes them and whatever fails meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.topics.stepped_stores import (
    Fault,
    LoopClock,
    SteppedStore,
    Steps,
    TopicStores,
    make,
    run_virtual,
)

from lakelog.catalog.definition import Locations
from lakelog.catalog.pointers import Pointers, TableCreation, TablePointer
from lakelog.catalog.port import TableDefinition, TableName
from lakelog.clock import SeededEntropy
from lakelog.meta import keys
from lakelog.model.failures import Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.topics.registry import Topics
from lakelog.topics.tables import EVERY_S, TableReconciler

Scenario = Callable[["TableStores"], Awaitable[None]]


class Moody(MemoryObjectStore):
    """A store that takes nothing while it is told so."""

    is_down = False

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.is_down:
            raise Unavailable("out to lunch")
        await super().put(key, parts)


class TableStores(TopicStores):
    """Topics and tables over shared stores, seen by as many brokers as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = Moody(self.clock)
        self._made = 0

    def reconciler(self, topics: Topics, steps: Steps | None = None) -> TableReconciler:
        self._made += 1
        store = SteppedStore(self.store.another(), steps or Steps())
        entropy = SeededEntropy(f"reconciler {self._made}")
        births = TableCreation(store, self.objects, self.clock, entropy)
        return TableReconciler(topics, store, births, cluster_id="c", namespace="lakelog")

    async def tables(self) -> dict[str, str]:
        """The topic id of each table, by its name, from the metadata itself."""
        found = {}
        locations = Locations.below(self.objects.url)
        for pointer in await Pointers(self.store).tables("lakelog"):
            content = await self.objects.get(locations.key(pointer.metadata_location))
            properties = json.loads(bytes(content))["properties"]
            assert properties["lakelog.cluster_id"] == "c"
            assert properties["lakelog.topic"] == pointer.name.table
            found[pointer.name.table] = properties["lakelog.topic_id"]
        return found

    async def put_table(self, name: str, topic_id: str) -> TablePointer:
        entropy = SeededEntropy(topic_id)
        births = TableCreation(self.store, self.objects, self.clock, entropy)
        return await births.create(TableDefinition(TableName("lakelog", name), name, topic_id, "c"))


def run(scenario: Scenario) -> None:
    async def played() -> None:
        await scenario(TableStores())

    run_virtual(played())


def test_a_topic_with_the_parquet_format_has_a_table_and_another_has_none() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        reconciler = stores.reconciler(topics)
        topic = await make(topics, "a.b-c")
        await make(topics, "rows", lakelog_format="kfs")
        assert await reconciler.keep()
        assert await stores.tables() == {"a.b-c": topic.id.hex()}
        stores.objects.is_down = True
        assert await reconciler.keep()  # there is nothing to write a second time

    run(scenario)


def test_a_deleted_topic_takes_its_table_with_it_and_a_new_one_has_its_own() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        reconciler = stores.reconciler(topics)
        first, other = await make(topics, "t"), await make(topics, "other")
        assert await reconciler.keep()
        await topics.delete(first)
        second = await make(topics, "t")
        assert second.id != first.id
        assert await reconciler.keep()
        assert await stores.tables() == {"t": second.id.hex(), "other": other.id.hex()}
        await topics.delete(second)
        await topics.delete(other)
        assert await reconciler.keep()
        assert await stores.tables() == {}

    run(scenario)


def test_a_topic_that_became_rows_keeps_the_table_it_had() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        reconciler = stores.reconciler(topics)
        topic = await make(topics, "t")
        assert await reconciler.keep()
        await topics.alter(topic, lambda configs: {**configs, "lakelog.format": "kfs"})
        assert await reconciler.keep()
        assert await stores.tables() == {"t": topic.id.hex()}

    run(scenario)


def test_a_topic_that_was_not_announced_yet_does_not_lose_its_table() -> None:
    async def scenario(stores: TableStores) -> None:
        author, other = stores.registry(), stores.registry()
        await other.current()
        reconciler = stores.reconciler(other)
        await stores.store.put(keys.TOPICS_REVISION, b"1")
        await other.current()
        topic = await make(author, "t")
        await stores.put_table("t", topic.id.hex())
        # What the other knows of the topics is from before: the revision has not moved for it.
        found = await stores.store.get(keys.TOPICS_REVISION)
        assert found is not None
        other._freshness._revision = found.version
        other._freshness._loaded_s = stores.clock.monotonic_s()
        assert other.cached("t") is None
        assert await reconciler.keep()
        assert await stores.tables() == {"t": topic.id.hex()}

    run(scenario)


def test_a_table_that_is_no_topic_s_is_left_alone() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        name = TableName("lakelog", "foreign")
        await Pointers(stores.store).move(name, "s3://elsewhere/metadata.json", expect=0)
        assert await stores.reconciler(topics).keep()
        assert await Pointers(stores.store).get(name) is not None

    run(scenario)


def test_two_brokers_make_one_table_for_each_topic() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        expected = {f"t{n}": (await make(topics, f"t{n}", 1)).id.hex() for n in range(20)}
        reconcilers = [stores.reconciler(stores.registry()) for _ in range(3)]
        await asyncio.gather(*(reconciler.keep() for reconciler in reconcilers))
        assert all([await reconciler.keep() for reconciler in reconcilers])
        assert await stores.tables() == expected
        keys_left = [info.key async for info in stores.objects.list("tables/")]
        assert len(keys_left) == 20  # who was second deleted what it wrote

    run(scenario)


def test_a_failure_of_one_table_is_tried_again_and_is_not_that_of_another() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        reconciler = stores.reconciler(topics)
        first = await make(topics, "first")
        stores.objects.is_down = True
        assert not await reconciler.keep()
        assert await stores.tables() == {}
        stores.objects.is_down = False
        assert await reconciler.keep()
        assert await stores.tables() == {"first": first.id.hex()}

    run(scenario)


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST, Fault.SWALLOWED])
@pytest.mark.parametrize("step", range(8))
def test_whatever_fails_the_tables_are_right_in_the_end(fault: Fault, step: int) -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        gone, topic = await make(topics, "gone"), await make(topics, "t")
        assert await stores.reconciler(topics).keep()
        await topics.delete(gone)
        again = await make(topics, "gone")
        late = await make(topics, "late")
        expected = {"gone": again.id.hex(), "t": topic.id.hex(), "late": late.id.hex()}
        steps = Steps()
        steps.faults = {step: fault}
        reconciler = stores.reconciler(topics, steps)
        is_done = await reconciler.keep()
        assert steps.taken > step
        assert not is_done or await stores.tables() == expected
        assert await reconciler.keep()
        assert await stores.tables() == expected

    run(scenario)


def test_a_change_of_the_topics_is_noticed_at_once_and_everything_once_a_minute() -> None:
    async def scenario(stores: TableStores) -> None:
        topics = stores.registry()
        reconciler = stores.reconciler(topics)
        running = asyncio.create_task(reconciler.run())
        await asyncio.sleep(1)
        began_s = LoopClock().monotonic_s()
        topic = await make(topics, "t")
        await asyncio.sleep(1)
        assert await stores.tables() == {"t": topic.id.hex()}
        assert LoopClock().monotonic_s() - began_s < 5
        births = TableCreation(stores.store, stores.objects, stores.clock, SeededEntropy("x"))
        await births.drop(TableName("lakelog", "t"), topic_id=topic.id.hex())
        await asyncio.sleep(EVERY_S + 1)
        assert await stores.tables() == {"t": topic.id.hex()}
        running.cancel()

    run(scenario)


def test_work_that_is_cancelled_before_its_turn_was_never_begun() -> None:
    """A broker that stops as a topic is made: what was made for it would never be awaited."""
    begun: list[str] = []

    async def scenario() -> None:
        reconciler = object.__new__(TableReconciler)
        reconciler._slots = asyncio.Semaphore(0)

        async def work() -> None:
            begun.append("work")

        waiting = asyncio.create_task(reconciler._done("t", work))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())
    assert begun == []
