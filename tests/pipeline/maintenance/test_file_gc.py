"""The sweeper over real stores, catalog and pipeline, with every deletion watched."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import msgspec
import pytest
from tests.pipeline.maintenance.sweep_place import GRACE_MS, SweepPlace, run
from tests.pipeline.pipeline_place import NAMESPACE

from lakelog.catalog.port import CatalogLimits, TableName
from lakelog.catalog.tables import builtin_tables
from lakelog.domain.milestone import Timeline
from lakelog.meta import keys
from lakelog.meta.port import Session
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectInfo
from lakelog.pipeline.saga.task_record import task_key

ORDERS = TableName(NAMESPACE, "orders")
UUID = "0189f7a0-0000-4000-8000-00000000000a"


async def filled(place: SweepPlace, rounds: int = 1) -> None:
    """A topic whose log is in its table."""
    await place.topic("orders", [1])
    for _ in range(rounds):
        await place.produce(1)
        assert not (await place.pipeline().round()).all_obstacles


async def leftovers(place: SweepPlace) -> list[str]:
    """What a commit that was given up leaves in the home of the table."""
    table = await place.tables.load(ORDERS)
    assert table is not None
    home = f"tables/{NAMESPACE}/orders/{place.topics[0].topic_id.hex()}/metadata"
    names = (f"snap-5-0-{UUID}.avro", f"{UUID}-m0.avro", f"00099-{UUID}.metadata.json")
    made = [f"{home}/{name}" for name in names]
    for key in made:
        await place.guard.put(key, [b"x"])
    return made


def test_metadata_that_nothing_names_goes_after_a_grace_and_a_move() -> None:
    """C5: a commit under way may name it; a quiet table is moved once, and then left alone."""

    async def scenario(place: SweepPlace) -> None:
        await filled(place, rounds=4)
        sweeper = place.files_sweeper()
        await place.sweep(sweeper, passes=4)
        made = await leftovers(place)
        reports = await place.sweep(sweeper, passes=6)
        assert [report.moved for report in reports] == [(), (ORDERS,), (), (), (), ()]
        assert set(made) <= set(place.guard.deleted)
        assert reports[-1].suspects == reports[-1].deleted == 0
        assert await place.guard.keys() >= await place.tables.reachable(ORDERS)

    run(scenario)


def test_metadata_of_a_table_that_is_written_to_goes_without_a_move() -> None:
    async def scenario(place: SweepPlace) -> None:
        await filled(place)
        sweeper = place.files_sweeper()
        made = await leftovers(place)
        for _ in range(3):
            assert (await place.sweep(sweeper, passes=1))[0].moved == ()
            await place.produce(1)
            assert not (await place.pipeline().round()).all_obstacles
        assert set(made) <= set(place.guard.deleted)

    run(scenario)


class Held:
    """A metadata store whose pointers move when a test lets them."""

    def __init__(self, place: SweepPlace) -> None:
        self._inner = place.meta
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        if "/tables/" in key:
            self.reached.set()
            await self.go_on.wait()
        return await self._inner.put(key, value, expect=expect, session=session)


def test_a_commit_that_stands_still_over_two_passes_fails_and_the_table_stays_whole() -> None:
    async def scenario(place: SweepPlace) -> None:
        await filled(place)
        held = Held(place)
        limits = CatalogLimits(snapshots_kept=2)
        slow: Any = held
        tables = builtin_tables(slow, place.guard, place.clock, limits)
        table = await place.tables.load(ORDERS)
        assert table is not None
        topic_id = place.topics[0].topic_id.hex()
        async with asyncio.TaskGroup() as group:
            stale = group.create_task(
                _conflict(tables.move(ORDERS, topic_id=topic_id, expect=table.token))
            )
            await held.reached.wait()
            before = await place.guard.keys()
            reports = await place.sweep(place.files_sweeper(), passes=4)
            assert [report.moved for report in reports] == [(), (ORDERS,), (), ()]
            assert before - await place.guard.keys()  # what it wrote is gone
            held.go_on.set()
            assert await stale
        await tables.close()
        rows = await place.table_rows("orders", 0)
        assert len(rows) == 6

    run(scenario)


async def _conflict(work: Awaitable[Any]) -> bool:
    try:
        await work
    except Conflict:
        return True
    return False


def test_files_of_attempts_that_nobody_can_mark_go_and_others_stay() -> None:
    async def scenario(place: SweepPlace) -> None:
        await filled(place)
        stale = "compaction/v1/topic=orders/partition=0/1-1-1-zombie.parquet"
        gone = "compaction/v1/topic=old/partition=0/9-1-1-a.kfs"
        strange = "compaction/v1/notes.txt"
        for key in (stale, gone, strange):
            await place.guard.put(key, [b"x"])
        reports = await place.sweep(place.files_sweeper())
        assert [report.deleted for report in reports] == [0, 2]
        assert sorted(place.guard.deleted) == [gone, stale]
        assert reports[1].unknown_examples == (strange,)

    run(scenario)


def test_a_second_pass_within_the_grace_deletes_nothing() -> None:
    async def scenario(place: SweepPlace) -> None:
        await place.guard.put("compaction/v1/topic=old/partition=0/9-1-1-a.kfs", [b"x"])
        sweeper = place.files_sweeper()
        assert (await sweeper.sweep_once()).suspects == 1
        place.later.ahead_ms += GRACE_MS - 60_000
        assert (await sweeper.sweep_once()).deleted == 0
        assert (await place.files_sweeper().sweep_once()).deleted == 0  # another begins anew
        place.later.ahead_ms += 60_000
        assert (await sweeper.sweep_once()).deleted == 1

    run(scenario)


def test_no_file_is_deleted_while_lost_metadata_may_be_saved() -> None:
    """A5: files that only the lost part of a log named look like garbage."""

    async def scenario(place: SweepPlace) -> None:
        await place.guard.put("compaction/v1/topic=old/partition=0/9-1-1-a.kfs", [b"x"])
        lost = Timeline(number=2, sweep_after_ms=place.later.now_ms() + 2 * GRACE_MS)
        await place.meta.put(keys.timeline(3), msgspec.json.encode(lost))
        sweeper = place.files_sweeper()
        for _ in range(2):
            with pytest.raises(Unavailable, match="nothing is swept before"):
                await sweeper.sweep_once()
            place.later.ahead_ms += GRACE_MS
        assert (await sweeper.sweep_once()).suspects == 1

    run(scenario)


async def with_garbage(place: SweepPlace) -> tuple[str, str]:
    """Two topics with tables, and a file of each that nothing names."""
    await filled(place)
    await place.topic("other", [2])
    await place.produce(2)
    assert not (await place.pipeline().round()).all_obstacles
    made = [
        f"compaction/v1/topic={topic}/partition=0/{stream}-1-1-zombie.parquet"
        for topic, stream in (("orders", 1), ("other", 2))
    ]
    for key in made:
        await place.guard.put(key, [b"x"])
    return made[0], made[1]


@pytest.mark.parametrize("lost", ["metadata.json", "snap-", "-m0.avro", "damaged -m0.avro"])
def test_a_table_that_cannot_be_read_keeps_its_files_and_the_rest_goes_on(lost: str) -> None:
    async def scenario(place: SweepPlace) -> None:
        ours, other = await with_garbage(place)
        await leftovers(place)
        (key,) = {
            key
            for key in await place.tables.reachable(ORDERS)
            if lost.removeprefix("damaged ") in key and "00000-" not in key
        }
        content = bytes(await place.guard.get(key))
        witnesses, place.guard.witnesses = place.guard.witnesses, {}
        if lost.startswith("damaged"):
            await place.guard.put(key, [content[: len(content) // 2]])
        else:
            await place.guard.inner.delete([key])
        reports = await place.sweep(place.files_sweeper(), passes=3)
        assert all("lakelog/orders" in "".join(report.problems) for report in reports)
        assert place.guard.deleted == [other]
        await place.guard.put(key, [content])
        place.guard.witnesses = witnesses
        await place.sweep(place.files_sweeper())
        assert ours in place.guard.deleted

    run(scenario)


class Down:
    """A catalog, an index or a store of which some calls fail."""

    def __init__(self, inner: Any, *names: str) -> None:
        self._inner = inner
        self.names = set(names)

    def __getattr__(self, name: str) -> Any:
        if name not in self.names:
            return getattr(self._inner, name)

        async def fail(*_: object, **__: object) -> None:
            raise Unavailable(f"{name} is down")

        return fail


@pytest.mark.parametrize("call", ["names", "load", "reachable"])
def test_a_catalog_that_is_down_keeps_all_that_a_table_may_name(call: str) -> None:
    async def scenario(place: SweepPlace) -> None:
        await with_garbage(place)
        await leftovers(place)
        segment = "compaction/v1/topic=old/partition=0/9-1-1-a.kfs"
        await place.guard.put(segment, [b"x"])
        tables: Any = Down(place.tables, call)
        reports = await place.sweep(place.files_sweeper(tables=tables), passes=3)
        assert all(report.problems for report in reports)
        assert place.guard.deleted == [segment]

    run(scenario)


@pytest.mark.parametrize("call", ["topics", "named_files"])
def test_without_the_index_nothing_is_deleted_and_nothing_forgotten(call: str) -> None:
    async def scenario(place: SweepPlace) -> None:
        ours, other = await with_garbage(place)
        index: Any = Down(place.index)
        sweeper = place.files_sweeper(index=index)
        await place.sweep(sweeper, passes=1)
        index.names = {call}
        with pytest.raises(Unavailable):
            await sweeper.sweep_once()
        assert place.guard.deleted == []
        index.names = set()
        await sweeper.sweep_once()
        assert {ours, other} <= set(place.guard.deleted)

    run(scenario)


def test_a_record_that_cannot_be_read_keeps_the_files_of_its_stream() -> None:
    async def scenario(place: SweepPlace) -> None:
        _, other = await with_garbage(place)
        place.guard.witnesses.pop("an open task")
        await place.meta.put(task_key(1), b'{"format": 99}')
        (_, report) = await place.sweep(place.files_sweeper())
        assert place.guard.deleted == [other]
        assert "upgrade" in "".join(report.problems)

    run(scenario)


class Unsure:
    """A store whose deletions happen without a reply, and whose listings break off."""

    def __init__(self, place: SweepPlace) -> None:
        self._inner = place.guard
        self.replies_lost = 1
        self.listings_cut = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._inner.delete(keys)
        if self.replies_lost:
            self.replies_lost -= 1
            raise OutcomeUnknown("the reply was lost")

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in self._inner.list(prefix):
            if self.listings_cut:
                self.listings_cut -= 1
                raise Unavailable("the listing broke off")
            yield info


def test_a_deletion_without_a_reply_is_repeated() -> None:
    async def scenario(place: SweepPlace) -> None:
        ours, other = await with_garbage(place)
        objects: Any = Unsure(place)
        reports = await place.sweep(place.files_sweeper(objects=objects), passes=3)
        assert [bool(report.problems) for report in reports] == [False, True, False]
        assert {ours, other} == set(place.guard.deleted)
        assert reports[-1].suspects == 0

    run(scenario)


def test_a_listing_that_breaks_off_is_reported_and_costs_no_object() -> None:
    async def scenario(place: SweepPlace) -> None:
        ours, other = await with_garbage(place)
        objects: Any = Unsure(place)
        objects.replies_lost, objects.listings_cut = 0, 1
        reports = await place.sweep(place.files_sweeper(objects=objects), passes=3)
        assert [bool(report.problems) for report in reports] == [True, False, False]
        assert {ours, other} == set(place.guard.deleted)

    run(scenario)


def test_the_home_of_a_deleted_topic_goes_as_a_whole_and_that_of_its_successor_stays() -> None:
    async def scenario(place: SweepPlace) -> None:
        await filled(place)
        home = f"tables/{NAMESPACE}/orders/{place.topics[0].topic_id.hex()}"
        await place.guard.put(f"{home}/data/strange.orc", [b"x"])
        await place.delete_topic(place.topics[0])
        await place.topic("orders", [5])
        await place.produce(5)
        assert not (await place.pipeline().round()).all_obstacles
        await place.sweep(place.files_sweeper())
        left = [key for key in await place.guard.keys() if key.startswith("tables/")]
        assert left
        assert not any(key.startswith(home) for key in left)
        assert len(await place.table_rows("orders", 0)) == 6

    run(scenario)
