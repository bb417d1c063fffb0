"""What fails holds up as little as it concerns, is reported, and is caught up with."""

import asyncio
from dataclasses import replace

from tests.catalog.kit import Fault, FaultyMeta, FaultyObjects, Weather
from tests.pipeline.pipeline_faults import Down, Seeing, damage, raw, undecodable, wal_key
from tests.pipeline.pipeline_place import (
    EAGER,
    NAMESPACE,
    Place,
    PlaceIndex,
    assert_exact,
    run,
    states,
)

from lakelog.catalog.port import Advance, DataFileFacts, TableName
from lakelog.catalog.tables import builtin_tables
from lakelog.clock import SeededEntropy
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.model.failures import OutcomeUnknown
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.saga.task_record import TaskState, decode_record, task_key


def test_a_damaged_object_stops_its_stream_alone_and_is_named() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        await place.produce(1)
        await place.produce(2)
        key = await damage(place, 1)
        before = {info.key async for info in place.objects.list("wal/")}
        report = await place.pipeline().round()
        (obstacle,) = report.all_obstacles
        assert (obstacle.topic, obstacle.partition) == ("orders", 0)
        assert key in obstacle.reason
        await assert_exact(place, "orders", 1, 2)
        assert await place.kinds(1) == ["wal", "wal"]
        assert {info.key async for info in place.objects.list("wal/")} == before

    run(scenario)


def test_a_stream_that_failed_waits_longer_each_time() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        await damage(place, 1)
        eager = place.pipeline()
        for failures in (1, 2):
            assert len((await eager.round()).all_obstacles) == 1
            value = await place.meta.get(task_key(1))
            assert value is not None
            assert decode_record(value.value).failures == failures
            await asyncio.sleep(0.002)
        patient = place.pipeline(options=replace(EAGER, retry_ms=60_000, retry_ms_max=60_000))
        assert (await patient.round()).is_idle

    run(scenario)


def test_a_missing_object_is_reported_and_found_again() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        key = wal_key(place, 1)
        content = bytes(await place.objects.get(key))
        await place.objects.delete([key])
        pipeline = place.pipeline()
        (obstacle,) = (await pipeline.round()).all_obstacles
        assert key in obstacle.reason
        await place.objects.put(key, [content])
        await asyncio.sleep(0.002)
        assert (await pipeline.round()).all_obstacles == ()
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_catalog_that_is_down_holds_tables_up_and_nothing_is_lost() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.topic("plain", [2], has_table=False)
        await place.produce(1, 2)
        down = Down(place.tables)
        pipeline = place.pipeline(tables=down)
        report = await pipeline.round()
        assert {one.topic for one in report.all_obstacles} == {"", "orders"}
        assert (await place.kinds(2))[0].endswith(".kfs")
        before = await place.rows(1)
        await place.produce(1)
        assert (await place.rows(1))[: len(before)] == before
        down.is_up = True
        assert (await pipeline.round()).all_obstacles == ()
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_catalog_that_fails_to_commit_leaves_the_file_for_the_next_round() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        for failure in (None, OutcomeUnknown("no reply")):
            down = Down(place.tables, "append", failure=failure)
            pipeline = place.pipeline(tables=down)
            report = await pipeline.round()
            assert len(report.all_obstacles) == 1
            assert await states(place) == {1: TaskState.PARQUET_WRITTEN}
            await pipeline.close()
        seeing = Seeing()
        assert (await place.pipeline(effects=seeing).round()).all_obstacles == ()
        assert "put file" not in seeing.seen
        await assert_exact(place, "orders", 0, 1)
        files = [info.key async for info in place.objects.list("compaction/")]
        assert len(files) == 1

    run(scenario)


def test_an_engine_or_an_index_that_is_down_is_reported_and_caught_up_with() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        downs = [Down(InlineEngine(place.objects), "run"), Down(place.index), Down(place.meta)]
        for engine, index, meta in (
            (downs[0], None, None),
            (None, downs[1], None),
            (None, None, downs[2]),
        ):
            pipeline = place.pipeline(engine=engine, index=index, meta=meta)
            assert (await pipeline.round()).all_obstacles != ()
            assert await place.kinds(1) == ["wal", "wal"]
            await pipeline.close()
        assert (await place.pipeline().round()).all_obstacles == ()
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_batch_that_cannot_be_rows_is_kept_as_it_is_and_the_others_are_in_the_table() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=1)
        sent = [undecodable()]
        await place.node.log.append([1], sent, deadline_s=place.cluster.soon())
        await place.produce(1, batches=1)
        bad = await raw(place, 1, 3, 6)
        pipeline = place.pipeline()
        report = await pipeline.round()
        (obstacle,) = report.all_obstacles
        assert wal_key(place, 1, 1) in obstacle.reason
        for _ in range(6):
            await asyncio.sleep(0.002)
            report = await pipeline.round()
        assert report.all_obstacles == ()
        kinds = [key.rpartition(".")[2] for key in await place.kinds(1)]
        assert kinds == ["parquet", "kfs", "parquet"]
        assert await raw(place, 1, 3, 6) == bad
        table = await place.table_rows("orders", 0)
        assert table["offset"].to_pylist() == [0, 1, 2, 6, 7, 8]

    run(scenario)


def test_stores_that_fail_at_random_are_outlasted() -> None:
    """5xx, lost requests and lost replies of the object store and of the catalog's pointer."""

    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        dice = SeededEntropy("weather")
        faults = (Fault.UNAVAILABLE, Fault.LOST_REPLY, Fault.LOST_REQUEST)

        def fate(_: str, __: str) -> Fault | None:
            return faults[dice.below(3)] if dice.below(5) == 0 else None

        weather = Weather(fate)
        objects = FaultyObjects(place.objects, weather)
        meta = FaultyMeta(place.meta, weather)
        tables = builtin_tables(meta, objects, place.clock)
        options = replace(EAGER, lease_ms=1, retry_ms=1)
        met = 0
        for _ in range(5):
            await place.produce(1, 2)
            pipeline = place.pipeline(
                meta=meta, engine=InlineEngine(objects), tables=tables, options=options
            )
            for _ in range(3):
                met += len((await pipeline.round()).all_obstacles)
        await tables.close()
        assert met > 0
        report = await place.pipeline(options=options).drain(rounds_max=20)
        assert report.all_obstacles == ()
        for partition, stream in enumerate((1, 2)):
            await assert_exact(place, "orders", partition, stream)

    run(scenario)


def test_a_table_that_somebody_moved_on_is_reported_and_never_forced() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        await place.produce(1, 2)
        await place.pipeline().round()
        table = await place.tables.load(TableName(NAMESPACE, "orders"))
        assert table is not None
        forged = DataFileFacts("compaction/v1/x.parquet", 0, 6, 8, 2, 100, 0, 1)
        await place.tables.append(
            table.name,
            [Advance(0, 6, 8, (forged,))],
            topic_id=place.topics[0].topic_id.hex(),
            commit_id="forged",
            expect=table.token,
        )
        await place.objects.put(forged.key, [b"no file of ours"])
        await place.produce(1, 2)
        pipeline = place.pipeline(options=replace(EAGER, retry_ms=60_000, retry_ms_max=60_000))
        report = await pipeline.round()
        assert [(one.topic, one.partition) for one in report.all_obstacles] == [("orders", 0)]
        await assert_exact(place, "orders", 1, 2)
        assert await place.kinds(1) != []
        assert "wal" in await place.kinds(1)

    run(scenario)


def test_a_swap_that_is_refused_again_and_again_is_reported_and_tried_later() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)

        class Refusing(PlaceIndex):
            asked = 0

            async def swap(self, swap: Swap) -> Swapped:
                self.asked += 1
                return Swapped(False, "not today")

        index = Refusing(place.node, lambda: place.topics, place.clock)
        pipeline = place.pipeline(index=index)
        (obstacle,) = (await pipeline.round()).all_obstacles
        assert "not today" in obstacle.reason
        assert index.asked == EAGER.failures_max
        await pipeline.close()
        assert (await place.pipeline().round()).all_obstacles == ()
        await assert_exact(place, "orders", 0, 1)

    run(scenario)
