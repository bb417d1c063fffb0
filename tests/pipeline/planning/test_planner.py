"""What a round begins: what is due, where the table is, and no more than a round takes."""

from dataclasses import replace

from tests.pipeline.pipeline_faults import Seeing
from tests.pipeline.pipeline_place import EAGER, Place, run

from lakelog.pipeline.planning.wal_ranges import PlanOptions
from lakelog.pipeline.saga.task_record import TASKS, decode_record


class Ahead:
    """A clock that others do not agree with."""

    def __init__(self, place: Place, by_ms: int) -> None:
        self._clock = place.clock
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._by_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


def test_an_object_from_the_future_does_not_keep_rows_back() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1], freshness_ms=60_000)
        await place.produce(1)
        assert (await place.pipeline().round()).created == 0
        behind = place.pipeline(clock=Ahead(place, -3_600_000))
        assert (await behind.round()).created == 1

    run(scenario)


def test_a_round_begins_the_oldest_first_and_no_more_than_its_limit() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2, 3])
        for stream in (3, 1, 2):
            await place.produce(stream)
        pipeline = place.pipeline(options=replace(EAGER, tasks_max=2))
        assert (await pipeline.round()).created == 2
        assert await place.kinds(2) == ["wal", "wal"]
        assert (await pipeline.round()).created == 1
        assert "wal" not in await place.kinds(2)

    run(scenario)


def test_a_long_backlog_is_taken_in_pieces_that_follow_each_other() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=7)
        options = replace(EAGER, plan=PlanOptions(freshness_ms=0, pieces_max=3))
        seeing = Seeing()
        await place.pipeline(options=options, effects=seeing).drain(rounds_max=9)
        assert seeing.seen.count("create task") == 3
        files = await place.files("orders", 0)
        assert [(one.offset_first, one.offset_end) for one in files] == [(0, 9), (9, 18), (18, 21)]
        (value,) = await place.meta.range(TASKS)
        assert decode_record(value.value).task == 3

    run(scenario)


def test_a_log_that_was_trimmed_before_it_was_compacted_begins_later_in_the_table() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1])
        await place.produce(1, batches=3)
        await place.node.log.trim({1: 4})
        assert (await place.pipeline().round()).all_obstacles == ()
        (file,) = await place.files("orders", 0)
        assert (file.offset_first, file.offset_end) == (4, 9)
        assert [row.offset for row in await place.rows(1)] == [4, 5, 6, 7, 8]
        await place.produce(1, batches=2)
        await place.node.log.trim({1: 12})
        assert (await place.pipeline().round()).all_obstacles == ()
        files = await place.files("orders", 0)
        assert [(one.offset_first, one.offset_end) for one in files] == [(4, 9), (12, 15)]

    run(scenario)
