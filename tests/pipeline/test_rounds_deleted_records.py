"""What DeleteRecords took from the log does not come into the table: files begin at the log start.

Entries straddle the log start, because a batch is kept whole (T7), and a Swap covers what trimming
left of them (T4); rows are finer. What a table had before the log start moved, it keeps (W5).
"""

from dataclasses import replace

import pytest
from tests.pipeline.maintenance.test_scheduler import send as send_keyed
from tests.pipeline.pipeline_faults import Seeing, send
from tests.pipeline.pipeline_place import EAGER, NAMESPACE, Place, assert_exact, run, states
from tests.pipeline.planning.test_backfill_tables import LATE, rested

from lakelog.catalog.port import TableName
from lakelog.model.failures import Unavailable
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.planning.small_files import RewriteOptions
from lakelog.pipeline.saga.task_record import TaskState

CLEANING = replace(EAGER, upkeep_ms=0)
MERGING = replace(EAGER, upkeep_ms=0, rewrite=RewriteOptions(files_min=2))


async def offsets(place: Place) -> list[int]:
    """The offsets of the table's rows."""
    found: list[int] = (await place.table_rows("orders", 0))["offset"].to_pylist()
    return found


async def vector(place: Place) -> int:
    view = await place.tables.load(TableName(NAMESPACE, "orders"))
    assert view is not None
    return view.vector[0]


@pytest.mark.parametrize("log_start", [1, 9, 10, 13, 29])
def test_rows_below_the_log_start_are_not_written(log_start: int) -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=3, records=10)
        await place.node.log.trim({1: log_start})
        before = await place.rows(1)
        await place.pipeline().round()
        assert await offsets(place) == list(range(log_start, 30))
        assert await vector(place) == 30
        assert await place.rows(1) == before
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_rows_that_are_deleted_between_the_plan_and_the_file_are_not_written() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=1, records=10)
        seeing = Seeing()

        async def trim() -> None:
            await place.node.log.trim({1: 7})

        seeing.before["create task"] = trim
        await place.pipeline(effects=seeing).round()
        assert await offsets(place) == [7, 8, 9]
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


@pytest.mark.parametrize("first", ["delete", "segment"])
def test_the_rows_of_a_segment_begin_at_the_log_start(first: str) -> None:
    async def scenario(place: Place) -> None:
        without = await place.topic("orders", [1], has_table=False)
        await place.produce(1, batches=1, records=10)
        if first == "delete":
            await place.node.log.trim({1: 4})
        await rested(place.pipeline(options=LATE))
        assert (await place.kinds(1))[0].endswith(".kfs")
        await place.node.log.trim({1: 4})
        place.topics[:] = [replace(without, has_table=True)]
        before = await place.rows(1)
        await rested(place.pipeline(options=LATE))
        assert await offsets(place) == [4, 5, 6, 7, 8, 9]
        assert await vector(place) == 10
        assert await place.rows(1) == before

    run(scenario)


def test_a_rewrite_adds_no_deleted_row_and_keeps_those_that_the_table_had() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=1, records=10)
        await place.node.log.trim({1: 3})
        await place.pipeline().round()  # [3, 10) of the entry [0, 10)
        for _ in range(2):
            await place.produce(1, batches=1, records=10)
            await place.pipeline().round()
        await place.node.log.trim({1: 6})  # the table has 3, 4 and 5 by now
        before = await place.rows(1)
        await rested(place.pipeline(options=MERGING))
        assert len(await place.files("orders", 0)) == 1
        assert await offsets(place) == list(range(3, 30))
        assert await place.rows(1) == before

    run(scenario)


def test_a_task_that_another_takes_over_leaves_out_what_was_deleted_since() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=1, records=10)
        seeing = Seeing()

        async def fail() -> None:
            raise Unavailable("no engine")

        seeing.before["put file"] = fail
        await place.pipeline(effects=seeing, options=replace(EAGER, lease_ms=1)).round()
        assert await states(place) == {1: TaskState.CREATED}
        await place.node.log.trim({1: 8})
        await rested(place.pipeline(options=LATE))
        assert await offsets(place) == [8, 9]
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_log_compaction_adds_no_deleted_row_and_keeps_the_latest_that_the_table_had() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1], is_compacted=True, dirty_ratio_min=0.0)
        await send_keyed(place, 1, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"))
        await place.node.log.trim({1: 1})
        await place.pipeline().round()
        await send_keyed(place, 1, (b"b", b"2"), (b"d", b"1"))
        await place.node.log.trim({1: 3})
        pipeline = place.pipeline(options=CLEANING, scanner=InlineEngine(place.objects))
        assert (await pipeline.drain(rounds_max=20)).is_idle
        await pipeline.close()
        assert await offsets(place) == [2, 3, 4, 5]  # c was in the table before it was deleted
        assert [row.offset for row in await place.rows(1)] == [3, 4, 5]

    run(scenario)


def test_a_deleted_batch_that_nobody_can_read_is_in_nobodys_way() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await send(place, 1, "xg")
        await place.node.log.trim({1: 3})
        await place.pipeline().round()
        assert await offsets(place) == [3, 4, 5]
        await assert_exact(place, "orders", 0, 1)

    run(scenario)


def test_a_segment_whose_unreadable_batch_was_deleted_leaves_nothing_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(place: Place) -> None:
        without = await place.topic("orders", [1], has_table=False)
        await send(place, 1, "xg")
        await rested(place.pipeline(options=LATE))
        await place.node.log.trim({1: 3})
        place.topics[:] = [replace(without, has_table=True)]
        await rested(place.pipeline(options=LATE))
        assert await offsets(place) == [3, 4, 5]
        assert "batches_left_out" not in caplog.text

    run(scenario)
