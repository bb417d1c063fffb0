"""The rows that segments hold come into the table, in order; it lacks just what nobody can read."""

import asyncio
from dataclasses import replace

import pytest
from tests.pipeline.pipeline_faults import UNREAD_MS, Seeing, rows_or_bytes, send
from tests.pipeline.pipeline_place import EAGER, NAMESPACE, Place, run
from tests.records.table_cases import Row

from lakelog.catalog.port import TableName
from lakelog.pipeline.maintenance.file_gc import FileSweeper, SweepOptions
from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.round_report import RoundReport
from lakelog.pipeline.rounds import Pipeline
from lakelog.pipeline.saga.task_record import TASKS, decode_record, task_key
from lakelog.pipeline.saga.values import TaskTarget

SMALL_FILES = PlanOptions(freshness_ms=0, bytes_min=0, bytes_target=1, bytes_max=1)
LATE = replace(EAGER, upkeep_ms=3_600_000)


async def rested(pipeline: Pipeline, *, rounds_max: int = 30) -> int:
    """How many rounds it takes until there is nothing left to do."""
    report: RoundReport | None = None
    for number in range(rounds_max):
        await asyncio.sleep(EAGER.retry_ms / 1000)  # what a stream waits after a failure
        report = await pipeline.round()
        if report.is_idle:
            assert report.all_obstacles == ()
            return number
    raise AssertionError(f"no rest after {rounds_max} rounds: {report}")


async def kinds(place: Place, stream: int = 1) -> list[str]:
    return [key.rpartition(".")[2] for key in await place.kinds(stream)]


async def assert_lacks_only_the_unreadable(place: Place, before: list[Row]) -> None:
    """The log reads as before, byte by byte where nobody can read; the table has all the rest."""
    facts = place.node.log.facts(1)
    assert facts is not None
    left = [row for row in before if row.offset >= facts.log_start]
    assert await rows_or_bytes(place, 1) == left
    table = await place.table_rows("orders", 0)
    found = [
        (offset, value)
        for offset, value in zip(
            table["offset"].to_pylist(), table["value"].to_pylist(), strict=True
        )
        if offset >= facts.log_start
    ]
    assert found == [(row.offset, row.value) for row in left if row.timestamp_ms != UNREAD_MS]
    assert table["offset"].to_pylist() == sorted(set(table["offset"].to_pylist()))
    view = await place.tables.load(TableName(NAMESPACE, "orders"))
    assert view is not None
    assert view.vector == {0: facts.head}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (["g" * 150 + "x" + "g" * 150], ["kfs"]),
        (["g", "g" * 150 + "x" + "g" * 150, "g", "g"], ["parquet", "kfs", "parquet"]),
        (["gx", "xg", "x", "gxg"], ["kfs", "kfs", "kfs"]),
        (["g", "gx", "g", "gx", "g"], ["parquet", "kfs", "parquet", "kfs"]),
        (["xxxx"], ["kfs"]),
        (["x", "g"], ["kfs", "parquet"]),
    ],
)
def test_the_table_lacks_just_the_batches_that_nobody_can_read(
    entries: list[str], expected: list[str]
) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        for pattern in entries:
            await send(place, 1, pattern)
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline(options=LATE))
        assert await kinds(place) == expected
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_thousand_bad_batches_are_done_with_after_few_rounds(every: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        for number in range(250 * every):
            await send(place, 1, "xxxx" if number % every == 0 else "g")
        await send(place, 1, "g")
        before = await rows_or_bytes(place, 1)
        assert await rested(place.pipeline(), rounds_max=60) <= 45
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


@pytest.mark.parametrize("offset", [2, 7, 9, 10, 14])
def test_what_is_trimmed_before_its_rows_were_taken_is_not_waited_for(offset: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "gxg")  # [0, 9)
        await send(place, 1, "gx")  # [9, 15)
        await send(place, 1, "g")
        before = await rows_or_bytes(place, 1)
        seeing = Seeing()

        async def trim() -> None:
            await place.node.log.trim({1: offset})

        async def arm() -> None:
            seeing.before["commit table"] = trim

        seeing.before["append swap"] = arm
        await rested(place.pipeline(options=LATE, effects=seeing))
        facts = place.node.log.facts(1)
        assert facts is not None
        assert facts.log_start == offset
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


@pytest.mark.parametrize("offset", [2, 9, 10, 15])
def test_what_is_trimmed_between_the_segment_and_its_rows_is_passed(offset: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "gxg")
        await send(place, 1, "gx")
        pipeline = place.pipeline(options=LATE)
        while "kfs" not in await kinds(place):
            await pipeline.round()
            await asyncio.sleep(EAGER.retry_ms / 1000)
        await place.node.log.trim({1: offset})
        await send(place, 1, "gg")
        before = await rows_or_bytes(place, 1)
        await rested(pipeline)
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


@pytest.mark.parametrize("plan", [EAGER.plan, SMALL_FILES])
def test_a_topic_that_gets_a_table_late_has_all_of_its_past_in_it(plan: PlanOptions) -> None:
    async def scenario(place: Place) -> None:
        without = await place.topic("orders", [1], has_table=False)
        options = replace(LATE, plan=plan)
        for _ in range(3):
            await place.produce(1, batches=1)
            await rested(place.pipeline(options=options))
        assert await kinds(place) == ["kfs"] * 3
        place.topics[:] = [replace(without, has_table=True)]
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline(options=options))
        await assert_lacks_only_the_unreadable(place, before)
        assert await kinds(place) == ["kfs"] * 3
        assert len(await place.files("orders", 0)) == (3 if plan is SMALL_FILES else 1)
        await place.produce(1, batches=1)
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline(options=options))
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


def test_a_new_pipeline_finds_the_segments_of_a_quiet_stream_that_another_left() -> None:
    async def scenario(place: Place) -> None:
        without = await place.topic("orders", [1], has_table=False)
        for _ in range(2):
            await place.produce(1, batches=1)
            await rested(place.pipeline())
        place.topics[:] = [replace(without, has_table=True)]
        before = await rows_or_bytes(place, 1)
        await place.pipeline(options=replace(LATE, plan=SMALL_FILES)).round()
        (value,) = await place.meta.range(TASKS)
        record = decode_record(value.value)
        assert (record.target, record.end) == (TaskTarget.TABLE, 3)  # of segments it says nothing
        await rested(place.pipeline(options=LATE))
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


def test_a_segment_that_is_damaged_is_named_and_nothing_is_appended_past_it() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "gxg")
        pipeline = place.pipeline(options=LATE)
        while "kfs" not in await kinds(place):
            await pipeline.round()
            await asyncio.sleep(EAGER.retry_ms / 1000)
        (key,) = await place.kinds(1)
        good = bytes(await place.objects.get(key))
        bad = bytearray(good)
        bad[100] ^= 1
        await place.objects.put(key, [bad])
        await place.produce(1)
        for _ in range(3):
            await asyncio.sleep(EAGER.retry_ms / 1000)
            (obstacle,) = (await pipeline.round()).all_obstacles
            assert key in obstacle.reason
        assert await place.files("orders", 0) == []
        assert (await kinds(place))[1:] == ["wal", "wal"]
        await place.objects.put(key, [good])
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline(options=LATE))
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


def test_a_segment_and_the_rows_made_of_it_are_both_kept_by_the_sweeper() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "gxg")
        await send(place, 1, "xx")
        await send(place, 1, "g")
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline())
        sweeper = FileSweeper(
            place.meta,
            place.objects,
            place.index,
            place.tables,
            place.clock,
            SweepOptions(namespaces=(NAMESPACE,), grace_ms=0),
        )
        for _ in range(3):
            assert (await sweeper.sweep_once()).problems == ()
        there = {info.key async for info in place.objects.list("compaction/")}
        files = {file.key for file in await place.files("orders", 0)}
        assert there == files | set(await place.kinds(1))
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)


def test_a_record_that_was_lost_after_the_rows_were_committed_adds_none_twice() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "gxg")
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline())
        (value,) = await place.meta.range(TASKS)
        assert decode_record(value.value).end == 9
        await place.meta.put(task_key(1), None, expect=value.version)
        await rested(place.pipeline())
        await assert_lacks_only_the_unreadable(place, before)
        await place.produce(1)
        before = await rows_or_bytes(place, 1)
        await rested(place.pipeline())
        await assert_lacks_only_the_unreadable(place, before)

    run(scenario)
