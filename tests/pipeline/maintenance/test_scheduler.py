"""Small files become large ones, compacted topics keep the latest record of each key."""

import asyncio
from dataclasses import replace

import pytest
from tests.log.tables import accepted
from tests.pipeline.pipeline_faults import Seeing
from tests.pipeline.pipeline_place import EAGER, NAMESPACE, Place, assert_exact, run

from lakelog.catalog.port import Replacement, TableName
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.saga.task_record import TASKS, Cleaned, decode_record, task_key
from lakelog.records.build import BatchOptions, Record, build_batch

TIDY = replace(EAGER, upkeep_ms=0, rewrite=RewriteOptions(files_min=3))


async def send(place: Place, stream: int, *pairs: tuple[bytes | None, bytes | None]) -> None:
    now_ms = place.clock.now_ms()
    records = [Record(key, value, now_ms) for key, value in pairs]
    sent = accepted(memoryview(build_batch(records, BatchOptions())))
    await place.node.log.append([stream], [sent], deadline_s=place.cluster.soon())


async def filed(place: Place, stream: int, *pairs: tuple[bytes | None, bytes | None]) -> None:
    """The records as a file of their own."""
    await send(place, stream, *pairs)
    assert (await place.pipeline().round()).all_obstacles == ()


def cleaning(place: Place, options: PipelineOptions = TIDY) -> Pipeline:
    return place.pipeline(options=options, scanner=InlineEngine(place.objects))


async def cleaned(place: Place, stream: int) -> Cleaned:
    value = await place.meta.get(task_key(stream))
    assert value is not None
    return decode_record(value.value).cleaned


def test_small_files_become_one_and_everything_reads_as_before() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2])
        for _ in range(4):
            await place.produce(1, 2)
            await place.pipeline().round()
        before = [await place.rows(1), await place.rows(2)]
        seeing = Seeing()
        report = await place.pipeline(options=TIDY, effects=seeing).round()
        assert report.all_obstacles == ()
        (topic,) = report.topics
        assert (topic.replaced, topic.rows, topic.ended) == (8, 0, 2)
        assert seeing.seen.count("commit table") == 2
        for partition, stream in enumerate((1, 2)):
            assert len(await place.files("orders", partition)) == 1
            assert await place.rows(stream) == before[partition]
            await assert_exact(place, "orders", partition, stream)
        table = await place.tables.load(TableName(NAMESPACE, "orders"))
        assert table is not None
        assert table.snapshots[-1].operation == "replace"
        assert table.vector == {0: 24, 1: 24}
        assert (await place.pipeline(options=TIDY).round()).is_idle

    run(scenario)


def test_what_is_new_goes_into_the_table_after_what_is_old_was_rewritten() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        for _ in range(3):
            await place.produce(1)
            await place.pipeline().round()
        await place.produce(1)
        pipeline = place.pipeline(options=TIDY)
        assert (await pipeline.round()).topics[0].replaced == 3
        assert (await pipeline.round()).topics[0].files == 1
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_topic_is_looked_after_now_and_then_only() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        pipeline = place.pipeline(options=replace(TIDY, upkeep_ms=3_600_000))
        for _ in range(5):
            await place.produce(1)
            await pipeline.round()
        assert len(await place.files("orders", 0)) == 5

    run(scenario)


def test_a_file_that_the_table_let_go_of_is_not_replaced_and_nothing_is_stuck() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        for _ in range(3):
            await place.produce(1)
            await place.pipeline().round()
        seeing = Seeing()

        async def retain() -> None:
            """The log lets go of the first file, and the table's retention takes it."""
            await place.node.log.trim({1: 6})
            table = await place.tables.load(TableName(NAMESPACE, "orders"))
            assert table is not None
            first = (await place.files("orders", 0))[0]
            gone = Replacement(0, (first.key,), (), drops_rows=True)
            await place.tables.replace(
                table.name,
                gone,
                topic_id=place.topics[0].topic_id.hex(),
                commit_id="retention",
                expect=table.token,
            )

        seeing.before["commit table"] = retain
        report = await place.pipeline(options=TIDY, effects=seeing).round()
        assert {"mark aborted", "move table", "mark closed"} <= set(seeing.seen)
        assert report.all_obstacles == ()
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_of_each_key_the_latest_record_stays() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("latest", [1], is_compacted=True, dirty_ratio_min=0.0)
        await filed(place, 1, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
        await filed(place, 1, (b"c", b"1"), (None, b"alone"))
        await filed(place, 1, (b"b", None), (b"c", b"2"))
        seeing = Seeing()
        pipeline = place.pipeline(
            options=replace(TIDY, rewrite=RewriteOptions()),
            scanner=InlineEngine(place.objects),
            effects=seeing,
        )
        report = await pipeline.drain(rounds_max=20)
        assert report.is_idle
        assert seeing.seen.count("mark clean") == 1
        kept = [(row.offset, row.key, row.value) for row in await place.rows(1)]
        assert kept == [(2, b"a", b"2"), (4, None, b"alone"), (5, b"b", None), (6, b"c", b"2")]
        await assert_exact(place, "latest", 0, 1)
        assert (await cleaned(place, 1)).end == 7
        await pipeline.close()

    run(scenario)


def test_tombstones_go_when_their_time_is_over() -> None:
    async def scenario(place: Place) -> None:
        await place.topic(
            "latest", [1], is_compacted=True, dirty_ratio_min=0.0, delete_retention_ms=0
        )
        await filed(place, 1, (b"a", b"1"), (b"b", b"1"))
        await filed(place, 1, (b"a", None))
        pipeline = cleaning(place)
        assert (await pipeline.drain(rounds_max=30)).is_idle
        assert [(row.offset, row.key) for row in await place.rows(1)] == [(1, b"b")]
        await assert_exact(place, "latest", 0, 1)
        await pipeline.close()

    run(scenario)


@pytest.mark.parametrize("when", ["before the scan", "after the scan"])
def test_a_clock_that_differs_from_the_stores_ends_no_tombstone(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 20: one that is a month ahead would take tombstones before consumers saw them."""

    async def skewed() -> int:
        return 30 * 86_400_000

    async def scenario(place: Place) -> None:
        await place.topic("latest", [1], is_compacted=True, dirty_ratio_min=0.0)
        await filed(place, 1, (b"a", b"1"), (b"a", b"2"))
        pipeline = cleaning(place)
        with monkeypatch.context() as jump:
            if when == "before the scan":
                jump.setattr(place.objects, "clock_skew_ms", skewed)
            await pipeline.round()
            await pipeline.settled()
            jump.setattr(place.objects, "clock_skew_ms", skewed)
            await pipeline.drain(rounds_max=20)
            assert (await cleaned(place, 1)).end == 0
            kept = [row.offset for row in await place.rows(1)]
            assert kept == ([0, 1] if when == "before the scan" else [1])
        await pipeline.drain(rounds_max=20)
        assert (await cleaned(place, 1)).end == 2
        assert [row.offset for row in await place.rows(1)] == [1]
        await pipeline.close()

    run(scenario)


@pytest.mark.parametrize("failed", ["create task", "mark written", "commit table", "mark clean"])
def test_a_pass_whose_pipeline_ended_is_made_again_by_another(failed: str) -> None:
    class CrashError(Exception):
        pass

    async def crash() -> None:
        raise CrashError

    async def scenario(place: Place) -> None:
        await place.topic("latest", [1], is_compacted=True, dirty_ratio_min=0.0)
        for number in range(3):
            await filed(place, 1, (b"a", b"%d" % number), (b"k%d" % number, b"x"))
        seeing = Seeing()
        seeing.before[failed] = crash
        engine = InlineEngine(place.objects)
        first = place.pipeline(options=TIDY, scanner=engine, effects=seeing)
        try:
            await first.drain(rounds_max=20)
        except* CrashError:
            pass
        assert failed not in seeing.before
        await first.close()
        second = cleaning(place)
        assert (await second.drain(rounds_max=30)).is_idle
        assert [row.value for row in await place.rows(1)] == [b"x", b"x", b"2", b"x"]
        await assert_exact(place, "latest", 0, 1)
        assert (await cleaned(place, 1)).end == 6
        await second.close()

    run(scenario)


def test_a_scan_beside_holds_up_no_round() -> None:
    class Slow(InlineEngine):
        """A scan that takes for ever."""

        async def scan(self, plans: object) -> list[object]:  # type: ignore[override]  # as it is
            await asyncio.Event().wait()
            return []

    async def scenario(place: Place) -> None:
        await place.topic("latest", [1], is_compacted=True, dirty_ratio_min=0.0)
        await filed(place, 1, (b"a", b"1"))
        pipeline = place.pipeline(
            options=TIDY,
            scanner=Slow(place.objects),  # type: ignore[arg-type]  # as above
        )
        for number in range(3):
            report = await pipeline.round()
            assert report.scans == 1
            await send(place, 1, (b"a", b"%d" % number))
        assert len(await place.files("latest", 0)) == 3
        await pipeline.close()

    run(scenario)


def test_a_file_that_cannot_be_scanned_is_reported_once_and_holds_up_nothing_new() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("latest", [1], is_compacted=True, dirty_ratio_min=0.0)
        await filed(place, 1, (b"a", b"1"), (b"a", b"2"))
        (key,) = await place.kinds(1)
        content = bytes(await place.objects.get(key))
        await place.objects.put(key, [content[:100]])
        options = replace(TIDY, retry_ms=60_000, retry_ms_max=60_000)
        pipeline = cleaning(place, options)
        await pipeline.round()
        await pipeline.settled()
        (obstacle,) = (await pipeline.round()).all_obstacles
        assert key in obstacle.reason
        record = decode_record((await place.meta.range(TASKS))[0].value)
        assert record.quarantine == ((0, 2),)
        await send(place, 1, (b"a", b"3"))
        for _ in range(3):
            assert not (await pipeline.round()).all_obstacles
            await pipeline.settled()
        assert (await pipeline.round()).is_idle
        assert len(await place.kinds(1)) == 2  # what is new is in a data file all the same
        await pipeline.close()

    run(scenario)
