"""A round takes what is in the log into the tables, and the log reads as before."""

import asyncio
from dataclasses import replace

from tests.pipeline.pipeline_faults import Gate, Seeing
from tests.pipeline.pipeline_place import (
    EAGER,
    NAMESPACE,
    Place,
    PlaceIndex,
    assert_exact,
    run,
    states,
    topic_view,
)

from lakelog.catalog.port import TableName
from lakelog.index.ports import IndexedTopic
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.saga.task_record import task_key


def test_what_is_in_the_log_is_in_the_table_and_reads_as_before() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        await place.produce(1, 2)
        before = [await place.rows(1), await place.rows(2)]
        seeing = Seeing()
        report = await place.pipeline(effects=seeing).round()
        assert report.all_obstacles == ()
        (topic,) = report.topics
        assert (topic.files, topic.rows, topic.tasks, topic.ended) == (2, 12, 2, 2)
        assert topic.read_bytes > 0
        assert topic.written_bytes > 0
        assert (topic.behind_records, topic.behind_ms >= 0) == (12, True)
        for partition, stream in enumerate((1, 2)):
            assert await place.rows(stream) == before[partition]
            await assert_exact(place, "orders", partition, stream)
        assert seeing.seen.count("commit table") == 1
        assert seeing.seen.count("append swap") == 2
        again = await place.pipeline().round()
        assert again.is_idle
        assert again.topics[0].behind_records == 0

    run(scenario)


def test_round_after_round_the_table_grows_by_what_came() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        pipeline = place.pipeline()
        for count in range(1, 4):
            await place.produce(1)
            await pipeline.round()
            assert len(await place.files("orders", 0)) == count
            await assert_exact(place, "orders", 0, 1)
        table = await place.tables.load(TableName(NAMESPACE, "orders"))
        assert table is not None
        assert table.vector == {0: 18}
        assert len(table.snapshots) == 3

    run(scenario)


def test_a_topic_without_a_table_becomes_segments() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("plain", [1], has_table=False)
        await place.produce(1)
        before = await place.rows(1)
        report = await place.pipeline().round()
        assert report.all_obstacles == ()
        (key,) = await place.kinds(1)
        assert key.endswith(".kfs")
        assert await place.rows(1) == before
        assert await place.tables.names(NAMESPACE) == []
        assert (report.topics[0].files, report.topics[0].rows) == (1, 6)

    run(scenario)


def test_nothing_is_done_before_it_is_due() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1], freshness_ms=3_600_000)
        await place.produce(1)
        report = await place.pipeline().round()
        assert report.is_idle
        assert report.topics[0].behind_records == 6
        assert await place.tables.names(NAMESPACE) == [TableName(NAMESPACE, "orders")]

    run(scenario)


def test_a_slow_topic_holds_nobody_back() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("quick", [1])
        await place.topic("slow", [2])
        await place.produce(1, 2, batches=3)
        gate = Gate(InlineEngine(place.objects), "topic=slow")
        options = replace(EAGER, job_bytes=1, lease_ms=60)
        pipeline = place.pipeline(engine=gate, options=options)
        rounding = asyncio.ensure_future(pipeline.round())
        await gate.reached.wait()
        first = await place.meta.get(task_key(2))
        while "wal" in await place.kinds(1):
            await asyncio.sleep(0.001)
        await assert_exact(place, "quick", 0, 1)
        assert gate.runs == [1, 1]
        while await place.meta.get(task_key(2)) == first:  # its lease is kept meanwhile
            await asyncio.sleep(0.001)
        gate.opened.set()
        assert (await rounding).all_obstacles == ()
        await assert_exact(place, "slow", 0, 2)

    run(scenario)


def test_small_topics_share_a_job() -> None:
    async def scenario(place: Place) -> None:
        for stream in range(1, 6):
            await place.topic(f"topic-{stream}", [stream])
        await place.produce(*range(1, 6))
        gate = Gate(InlineEngine(place.objects), "none")
        assert (await place.pipeline(engine=gate).round()).all_obstacles == ()
        assert gate.runs == [5]

    run(scenario)


def test_a_round_that_is_cancelled_leaves_no_task_and_another_goes_on_with_it() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        gate = Gate(InlineEngine(place.objects), "orders")
        pipeline = place.pipeline(engine=gate)
        before = asyncio.all_tasks()
        rounding = asyncio.ensure_future(pipeline.round())
        await gate.reached.wait()
        rounding.cancel()
        await asyncio.wait([rounding])
        assert rounding.cancelled()
        assert asyncio.all_tasks() <= before
        assert (await place.pipeline().round()).is_idle  # its lease has not run out
        await pipeline.close()
        report = await place.pipeline().round()
        assert (report.adopted, report.all_obstacles) == (1, ())
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_streams_that_are_gone_have_no_records_and_topics_no_tables() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.topic("brief", [2])
        await place.produce(1, 2)
        pipeline = place.pipeline()
        await pipeline.round()
        await place.node.log.drop_streams([2])
        place.topics.pop()
        report = await pipeline.round()
        assert (report.forgotten, report.all_obstacles) == (1, ())
        assert set(await states(place)) == {1}
        assert await place.tables.names(NAMESPACE) == [TableName(NAMESPACE, "orders")]

    run(scenario)


def test_a_topic_made_again_gets_a_table_of_its_own() -> None:
    async def scenario(place: Place) -> None:
        old = await place.topic("orders", [1])
        await place.produce(1)
        pipeline = place.pipeline()
        await pipeline.round()
        await place.node.log.drop_streams([1])
        place.topics.clear()
        await place.topic("orders", [7])
        await place.produce(7, batches=1)
        assert (await pipeline.round()).all_obstacles == ()
        await assert_exact(place, "orders", 0, 7)
        table = await place.tables.load(TableName(NAMESPACE, "orders"))
        assert table is not None
        assert table.properties["lakelog.topic_id"] != old.topic_id.hex()

    run(scenario)


def test_the_table_of_somebody_else_is_left_alone() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        await place.pipeline().round()
        other = topic_view("orders", [9])
        await place.node.log.create_streams(other.topic_id, first_partition=0, streams=[9])
        await place.produce(9)
        (owner,) = place.topics
        asked = 0

        def topics() -> list[IndexedTopic]:
            """The table's topic is not known yet when the round begins."""
            nonlocal asked
            asked += 1
            return [other] if asked == 1 else [other, owner]

        index = PlaceIndex(place.node, topics, place.clock)
        report = await place.pipeline(index=index).round()
        assert any("another topic" in one.reason for one in report.all_obstacles)
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_record_that_says_nothing_is_reported_and_its_stream_left_alone() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        await place.produce(1, 2)
        await place.meta.put(task_key(1), b"not a record")
        report = await place.pipeline().round()
        (obstacle,) = report.all_obstacles
        assert task_key(1) in obstacle.reason
        assert await place.kinds(1) == ["wal", "wal"]
        await assert_exact(place, "orders", 1, 2)

    run(scenario)


def test_a_table_that_is_ahead_is_swapped_in_with_the_file_it_has() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1)
        seeing = Seeing()

        class LostError(Exception):
            pass

        async def lose() -> None:
            raise LostError

        seeing.before["append swap"] = lose
        try:
            await place.pipeline(effects=seeing).round()
        except* LostError:
            pass
        value = await place.meta.get(task_key(1))
        assert value is not None
        await place.meta.put(task_key(1), None, expect=value.version)
        again = Seeing()
        report = await place.pipeline(effects=again).round()
        assert report.all_obstacles == ()
        assert not {"put file", "commit table"} & set(again.seen)
        await assert_exact(place, "orders", 0, 1)
        assert place.node.log.pieces(1)[0].max_timestamp_ms == 1012

    run(scenario)


def test_rivals_that_run_at_once_make_each_row_once() -> None:
    async def scenario(place: Place) -> None:
        for name, streams in (("orders", [1, 2, 3]), ("plain", [4, 5])):
            await place.topic(name, streams)
        pipelines: list[Pipeline] = [
            place.pipeline(options=replace(EAGER, lease_ms=1 + 4 * number)) for number in range(3)
        ]
        for _ in range(4):
            await place.produce(1, 2, 3, 4, 5)
            await asyncio.gather(*(one.round() for one in pipelines))
        report = await place.pipeline(options=replace(EAGER, lease_ms=1)).drain(rounds_max=20)
        assert report.all_obstacles == ()
        for name, streams in (("orders", [1, 2, 3]), ("plain", [4, 5])):
            for partition, stream in enumerate(streams):
                await assert_exact(place, name, partition, stream)

    run(scenario)


def test_a_reader_beside_sees_no_gap_no_duplicate_and_no_error() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=30)
        expected = await place.rows(1)
        pipeline = place.pipeline(options=replace(EAGER, plan=replace(EAGER.plan, pieces_max=3)))
        reading = True

        async def read() -> int:
            times = 0
            while reading:
                assert await place.rows(1) == expected
                times += 1
                await asyncio.sleep(0)  # what is cached is read without waiting
            return times

        reader = asyncio.ensure_future(read())
        await pipeline.drain(rounds_max=20)
        reading = False
        assert await reader > 5
        assert len(await place.files("orders", 0)) == 10
        await assert_exact(place, "orders", 0, 1)

    run(scenario)
