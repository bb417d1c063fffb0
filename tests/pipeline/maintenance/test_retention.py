"""Rows leave a table when they are too old and the log has let go of them, and never before."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_cluster import batch
from tests.pipeline.pipeline_place import EAGER, Place, run

from lakelog.catalog.port import DataFileView, TableName
from lakelog.index.ports import IndexedTopic
from lakelog.pipeline.maintenance.retention import (
    FileAge,
    RetentionBounds,
    RetentionOptions,
    RetentionReport,
    TableRetention,
    is_expired,
    plan_removal,
)

BOUNDS = RetentionBounds(first_start=20, kept_from_us=1000)


def file(start: int, end: int) -> DataFileView:
    return DataFileView(f"{start}.parquet", 0, start, end, end - start, 10)


def test_a_file_goes_when_it_is_below_the_log_and_too_old() -> None:
    assert is_expired(FileAge(end=20, newest_us=999), BOUNDS)
    assert not is_expired(FileAge(end=21, newest_us=999), BOUNDS)
    assert not is_expired(FileAge(end=20, newest_us=1000), BOUNDS)


def test_what_follows_a_file_that_stays_stays_too() -> None:
    old, young = FileAge(10, 0), FileAge(10, 5000)
    files = [(file(0, 2), old), (file(2, 4), old), (file(4, 6), young), (file(6, 8), old)]
    assert plan_removal(files, BOUNDS, files_max=9) == (file(0, 2), file(2, 4))
    assert plan_removal(files, BOUNDS, files_max=1) == (file(0, 2),)
    assert plan_removal([], BOUNDS, files_max=9) == ()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2000))), st.integers(0, 5))
def test_the_removed_are_a_beginning_of_expired_files(
    ages: list[tuple[int, int]], files_max: int
) -> None:
    files = [(file(n * 2, n * 2 + 2), FileAge(*age)) for n, age in enumerate(ages)]
    removed = plan_removal(files, BOUNDS, files_max=files_max)
    assert removed == tuple(one for one, _ in files[: len(removed)])
    assert all(is_expired(age, BOUNDS) for _, age in files[: len(removed)])
    if len(removed) < min(files_max, len(files)):
        assert not is_expired(files[len(removed)][1], BOUNDS)


class Later:
    """The place's clock, so much later."""

    def __init__(self, place: Place, ahead_ms: int) -> None:
        self._clock = place.clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()


async def applied(place: Place, *, ahead_ms: int = 0, files_max: int = 1000) -> RetentionReport:
    options = RetentionOptions(files_max=files_max)
    clock = Later(place, ahead_ms)
    kept = TableRetention(place.objects, place.index, place.tables, clock, options)
    return await kept.apply_once()


async def filled(place: Place, *, retention_ms: int = 60_000, files: int = 3) -> IndexedTopic:
    """A topic with so many files of two rows, an hour old, and the newest written now."""
    topic = await place.topic("orders", [1], table_retention_ms=retention_ms)
    for number in range(files):
        age_ms = 3_600_000 if number + 1 < files else 0
        sent = batch(b"a", b"b", timestamp_ms=place.clock.now_ms() - age_ms)
        await place.node.log.append([1], [sent], deadline_s=place.cluster.soon())
        assert not (await place.pipeline(options=EAGER).round()).all_obstacles
    return topic


async def starts(place: Place) -> list[int]:
    return [one.offset_first for one in await place.files("orders", 0)]


def test_files_that_the_log_let_go_of_leave_the_table_and_the_vector_stays() -> None:
    async def scenario(place: Place) -> None:
        await filled(place)
        assert (await applied(place)).files == 0  # the log still has them
        await place.node.log.trim({1: 3})
        report = await applied(place)
        assert (report.files, report.rows, report.problems) == (1, 2, ())
        assert await starts(place) == [2, 4]  # the log starts within the second
        await place.node.log.trim({1: 6})
        assert (await applied(place)).files == 1
        assert await starts(place) == [4]  # the newest is too young
        assert (await applied(place, ahead_ms=120_000)).files == 1
        table = await place.tables.load(TableName("lakelog", "orders"))
        assert table is not None
        assert dict(table.vector) == {0: 6}
        assert table.snapshots[-1].operation == "delete"
        token = table.token
        assert (await applied(place, ahead_ms=120_000)).files == 0
        table = await place.tables.load(TableName("lakelog", "orders"))
        assert table is not None
        assert table.token == token  # nothing to remove is no commit

    run(scenario)


def test_a_table_goes_on_after_all_of_its_rows_are_gone() -> None:
    async def scenario(place: Place) -> None:
        await filled(place)
        await place.node.log.trim({1: 6})
        assert (await applied(place, ahead_ms=120_000)).files == 3
        await place.produce(1)
        assert not (await place.pipeline().round()).all_obstacles
        assert await starts(place) == [6]

    run(scenario)


def test_a_pass_removes_no_more_than_its_limit() -> None:
    async def scenario(place: Place) -> None:
        await filled(place, files=4)
        await place.node.log.trim({1: 8})
        assert (await applied(place, files_max=2)).files == 2
        assert await starts(place) == [4, 6]
        assert (await applied(place, files_max=2)).files == 1

    run(scenario)


def test_a_topic_that_keeps_its_rows_for_ever_keeps_them() -> None:
    async def scenario(place: Place) -> None:
        topic = await filled(place, retention_ms=-1)
        await place.node.log.trim({1: 6})
        assert (await applied(place)).files == 0
        place.topics[:] = [replace(topic, table_retention_ms=0)]
        assert (await applied(place, ahead_ms=1)).files == 3

    run(scenario)


def test_a_setting_that_changed_meanwhile_counts() -> None:
    """T6: what was decided by an older setting is decided again right before."""

    async def scenario(place: Place) -> None:
        topic = await filled(place)
        await place.node.log.trim({1: 6})
        index = place.index
        asked = 0

        class Changing(type(index)):  # type: ignore[misc]  # the place's own index
            async def topics(self) -> list[IndexedTopic]:
                nonlocal asked
                asked += 1
                return [topic if asked == 1 else replace(topic, table_retention_ms=-1)]

        index.__class__ = Changing
        kept = TableRetention(place.objects, index, place.tables, place.clock, RetentionOptions())
        assert (await kept.apply_once()).files == 0
        assert asked == 2

    run(scenario)


def test_a_clock_that_differs_from_the_stores_removes_nothing() -> None:
    """Rule 20: one that is a year ahead would empty every table."""

    async def scenario(place: Place) -> None:
        await filled(place)
        await place.node.log.trim({1: 6})

        class Skewed(type(place.objects)):  # type: ignore[misc]  # the place's own store
            async def clock_skew_ms(self) -> int:
                return -70_000

        objects = Skewed(place.clock)
        kept = TableRetention(objects, place.index, place.tables, place.clock, RetentionOptions())
        report = await kept.apply_once()
        assert report.files == 0
        assert report.problems

    run(scenario)


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_file_that_cannot_be_read_stops_its_topic_alone(damage: str) -> None:
    async def scenario(place: Place) -> None:
        await filled(place)
        other = await place.topic("other", [2], table_retention_ms=0)
        await place.produce(2)
        assert not (await place.pipeline().round()).all_obstacles
        await place.node.log.trim({1: 6, 2: 6})
        (first, *_) = await place.files("orders", 0)
        if damage == "gone":
            await place.objects.delete([first.key])
        else:
            await place.objects.put(first.key, [bytes(first.size_bytes)])
        report = await applied(place)
        assert report.files == 1
        (problem,) = report.problems
        assert problem.startswith("orders: ")
        assert len(await starts(place)) == 3
        assert not await place.files(other.name, 0)

    run(scenario)
