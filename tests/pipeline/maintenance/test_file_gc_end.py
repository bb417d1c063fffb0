"""In the end the object store holds exactly what is referenced, whatever happened before."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.pipeline.maintenance.sweep_place import DAYS_MS, GRACE_MS, SweepPlace, run

from lakelog.pipeline.ports import Effects
from lakelog.pipeline.saga.steps import EFFECTS
from lakelog.pipeline.saga.task_record import TASKS, decode_record, is_open

T = TypeVar("T")


class CrashError(Exception):
    """The process is gone."""


class CrashAt(Effects):
    """Ends the pipeline before or after the first effect of a name."""

    def __init__(self, name: str, *, after: bool) -> None:
        self._name = name
        self._after = after

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        if name != self._name:
            return await action()
        if self._after:
            await action()
        raise CrashError(name)


async def crashed(place: SweepPlace, name: str, *, after: bool) -> None:
    """A pipeline that ends in the middle, and leaves what it had begun."""
    place.later.ahead_ms += 120_000  # the lease of whoever crashed before is over
    try:
        await place.pipeline(effects=CrashAt(name, after=after), clock=place.later).round()
    except* CrashError:
        pass


async def settled(place: SweepPlace) -> None:
    """Pipelines run until every task is at its end."""
    for _ in range(6):
        place.later.ahead_ms += 120_000
        report = await place.pipeline(clock=place.later).drain(rounds_max=6)
        assert not report.all_obstacles
    found = [decode_record(one.value) for one in await place.meta.range(TASKS)]
    assert not [record for record in found if is_open(record)]


async def swept(place: SweepPlace) -> set[str]:
    """What is in the store and referenced by nothing, after both sweepers had their time."""
    files, wal = place.files_sweeper(), place.wal_sweeper()
    for _ in range(8):
        report = await files.sweep_once()
        assert not report.problems
        assert not report.unknown
        await wal.sweep_once()
        place.later.ahead_ms += GRACE_MS
    kept = await place.guard.keys() - set(await place.guard.named())
    return {key for key in kept if not key.startswith("milestone/")}  # one of each broker, for ever


async def saved(place: SweepPlace) -> None:
    """The broker has no checkpoint under way: a put that is cancelled may land after its end."""
    seen = await place.checkpoints.pointer()
    unchanged = 0
    while unchanged < 5:
        await asyncio.sleep(0.05)
        before, seen = seen, await place.checkpoints.pointer()
        unchanged = unchanged + 1 if seen == before else 0


async def tidied(place: SweepPlace) -> set[str]:
    """What is left that nothing references, when the broker is gone and its domain tidied up.

    What a domain keeps for some time, archives and traces of how far its log came, is too old.
    """
    await saved(place)
    await place.cluster.close()
    place.cluster.nodes.clear()
    await place.checkpoints.tidy(now_ms=place.later.now_ms() + DAYS_MS)
    kept = await place.guard.keys() - set(await place.guard.named())
    return {key for key in kept if not key.startswith("milestone/")}  # one of each broker, for ever


@pytest.mark.parametrize("kind", ["memory", "disk", "sql catalog"])
def test_in_the_end_the_store_holds_exactly_what_is_referenced(tmp_path: Path, kind: str) -> None:
    """G1, G2: after crashes at every stage, deleted topics, trims, expiry and both sweepers."""

    async def scenario(place: SweepPlace) -> None:
        await place.topic("orders", [1, 2])
        await place.topic("plain", [3], has_table=False)
        await place.topic("doomed", [4])
        sweeper = place.files_sweeper()
        for name in EFFECTS:
            for after in (False, True):
                await place.produce(1, 2, 3, 4, batches=1)
                await crashed(place, name, after=after)
                await place.sweep(sweeper, passes=1)
        await place.node.log.trim({1: 7, 3: 4})
        await place.produce(1, 2, 3, 4)
        await crashed(place, "commit table", after=False)
        await place.delete_topic(place.topics[2])
        await place.sweep(sweeper, passes=1)
        await settled(place)
        rows = [await place.rows(stream) for stream in (1, 2, 3)]
        own = ("checkpoint/", "archive/", "milestone/")
        assert not [key for key in await swept(place) if not key.startswith(own)]
        kept = {key.rpartition(".")[2] for key in await place.guard.keys()}
        assert kept >= {"parquet", "kfs", "json", "avro", "manifest", "page"}
        assert "wo" not in kept  # everything is compacted
        assert [await place.rows(stream) for stream in (1, 2, 3)] == rows
        assert len(await place.table_rows("orders", 1)) == len(rows[1])
        for topic in list(place.topics):
            await place.delete_topic(topic)
        await settled(place)
        assert not [key for key in await swept(place) if not key.startswith(own)]
        assert not await tidied(place)
        left = {key.partition("/")[0] for key in await place.guard.keys()}
        assert left == {"checkpoint", "milestone"}

    run(
        scenario,
        folder=None if kind == "memory" else tmp_path,
        catalog=tmp_path / "catalog.db" if kind == "sql catalog" else None,
    )
