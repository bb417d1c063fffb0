"""Tables as the pipeline uses them: real stores, rivals, lost replies, long histories."""

import asyncio
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    Place,
    Weather,
    advance,
    appended,
    memory,
    nth,
    on_disk,
    run,
    stored,
)

from lakelog.catalog.port import Tables
from lakelog.catalog.tables import PyIcebergTables
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Unavailable


def test_other_engines_read_the_table_from_a_directory(tmp_path: Path) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there:
            tables = there.tables(snapshots_kept=4)
            made = await tables.create(DEFINITION)
            assert made == await tables.create(DEFINITION)
            for start in range(0, 120, 10):
                round_ = [await stored(there, partition, start, start + 10) for partition in (0, 1)]
                done = await appended(tables, *round_)
                assert done.added == (0, 1)
            loaded = await tables.load(NAME)
            assert loaded is not None
            assert loaded.vector == {0: 120, 1: 120}
            table = StaticTable.from_metadata(loaded.metadata_location)
            rows = (
                table.scan()
                .to_arrow()
                .sort_by([("partition", "ascending"), ("offset", "ascending")])
            )
            assert rows.num_rows == 240
            assert rows["offset"].to_pylist() == [*range(120), *range(120)]
            assert rows["value"][125].as_py() == b"value 5"
            assert rows["key"].to_pylist()[:2] == [b"k0", None]
            assert rows["headers"][0].as_py() == [
                {"key": "h", "value": b"1"},
                {"key": "h", "value": None},
            ]
            some = table.scan("partition = 1 and offset >= 115")
            assert some.to_arrow().num_rows == 5
            assert len(list(some.plan_files())) == 1
            older = table.scan(snapshot_id=loaded.snapshots[0].snapshot_id)
            assert older.to_arrow().num_rows == 180
            assert await tables.reachable(NAME) <= await there.keys()
            await tables.close()

    run(work)


def test_a_table_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there:
            tables = there.tables()
            await tables.create(DEFINITION)
            await appended(tables, advance(0, 0, 5))
            await tables.close()
        async with on_disk(tmp_path) as there:
            tables = there.tables()
            done = await appended(tables, advance(0, 0, 5), advance(1, 0, 2))
            assert (done.added, done.present) == ((1,), (0,))
            assert await tables.names("kafka") == [NAME]
            assert await tables.names("nothing") == []
            await tables.drop(NAME, topic_id=TOPIC_ID)
            await tables.drop(NAME, topic_id=TOPIC_ID)
            assert await tables.load(NAME) is None
            assert await tables.reachable(NAME) == frozenset()
            with pytest.raises(NotFound):
                await tables.files(NAME, partition=0, start=0, end=1)
            assert (await tables.create(DEFINITION)).vector == {}
            await tables.close()

    run(work)


async def worker(tables: PyIcebergTables, name: str, rounds: int, dice: random.Random) -> int:
    """Appends what it believes to come next, with files of its own, until all is there."""
    failures = 0
    for partition in (0, 1, 2):
        for number in range(rounds):
            one = advance(partition, number * 10, number * 10 + 10, attempt=name)
            while True:
                try:
                    done = await appended(tables, one)
                except (Conflict, OutcomeUnknown, Unavailable):
                    failures += 1
                    continue
                assert not done.refused
                break
            if dice.random() < 0.2:
                await asyncio.sleep(0)
    return failures


def test_rivals_with_lost_replies_and_expiry_append_everything_once() -> None:
    async def work() -> None:
        there = memory()
        await (first := there.tables()).create(DEFINITION)
        dice = random.Random("rivals")
        faults = [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.UNAVAILABLE]

        def fate(kind: str, key: str) -> Fault | None:
            return dice.choice(faults) if dice.random() < 0.15 else None

        rivals = [there.tables(Weather(fate), snapshots_kept=2, attempts=2) for _ in range(3)]
        failed = await asyncio.gather(
            *(worker(one, f"w{number}", 12, dice) for number, one in enumerate(rivals))
        )
        assert sum(failed) > 0
        loaded = await first.load(NAME)
        assert loaded is not None
        assert loaded.vector == {0: 120, 1: 120, 2: 120}
        for partition in (0, 1, 2):
            files = await first.files(NAME, partition=partition, start=0, end=10**9)
            spans = [(file.offset_first, file.offset_end) for file in files]
            assert spans == [(start, start + 10) for start in range(0, 120, 10)]
        names = await first.reachable(NAME)
        assert {key for key in names if key.startswith("tables/")} <= await there.keys()
        for tables in (first, *rivals):
            await tables.close()

    run(work)


def cost(weather: Weather) -> tuple[int, int]:
    """What a commit asked for, and the bytes that it moved."""
    return len(weather.asked), weather.sizes.total()


@pytest.mark.proof
def test_three_hundred_commits_cost_the_same_each() -> None:
    async def work() -> None:
        there = memory()
        weather = Weather()
        tables = there.tables(weather)
        view = await tables.create(DEFINITION)
        asked, moved, held = [], [], []
        for number in range(300):
            before = cost(weather)
            done = await tables.append(
                NAME,
                [advance(0, number, number + 1)],
                topic_id=TOPIC_ID,
                commit_id="c",
                expect=view.token,
            )
            view = done.table
            after = cost(weather)
            asked.append(after[0] - before[0])
            moved.append(after[1] - before[1])
            held.append(len(done.table.snapshots))
        assert max(asked) <= 26
        assert sum(asked) <= 14 * len(asked)
        assert statistics.median(asked[250:]) <= statistics.median(asked[30:80])
        assert statistics.median(moved[250:]) <= 1.2 * statistics.median(moved[30:80])
        assert max(moved) <= 256 << 10
        assert max(held) == 10
        metadata = [key for key in await there.keys() if key.endswith(".json")]
        assert len(metadata) == 21
        await tables.close()

    run(work)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
@pytest.mark.parametrize("kind", ["metadata", "key-put"])
def test_a_creation_with_a_lost_message_makes_one_table(kind: str, fault: Fault) -> None:
    async def work() -> None:
        there = memory()
        tables = there.tables(Weather(nth(kind, 1, fault)))
        made = await tables.create(DEFINITION)
        assert await tables.load(NAME) == made
        assert len(await there.keys()) == 1
        await tables.close()

    run(work)


def test_workers_that_create_the_same_table_find_one() -> None:
    async def work() -> None:
        there = memory()
        workers = [there.tables() for _ in range(4)]
        made = await asyncio.gather(*(one.create(DEFINITION) for one in workers))
        assert len({view.uuid for view in made}) == 1
        for one in workers:
            await one.close()

    run(work)


def test_a_store_that_does_not_answer_is_given_up_in_time() -> None:
    async def work() -> None:
        there = memory()
        await (ready := there.tables()).create(DEFINITION)
        await ready.close()
        asked = asyncio.Event()

        class Silent:
            """It takes the put and never says a word."""

            async def write(self, kind: str, key: str, act: object) -> None:
                asked.set()
                await asyncio.get_running_loop().create_future()

        silent = Weather()
        silent.write = Silent().write  # type: ignore[method-assign]  # for this one
        tables = there.tables(silent, operation_s=0.5)
        with pytest.raises(Unavailable):
            await appended(tables, advance(0, 0, 5))
        await tables.close()
        asked.clear()
        tables = there.tables(silent, operation_s=60)
        running = asyncio.ensure_future(appended(tables, advance(0, 0, 5)))
        await asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(tables.close(), 10)
        await healthy(there)

    async def healthy(there: Place) -> None:
        tables = there.tables()
        done = await appended(tables, advance(0, 0, 5))
        assert done.added == (0,)
        await tables.close()

    run(work)


class Then(Weather):
    """Loses three puts of the pointer in a row; then a rival comes, or the store goes."""

    def __init__(self, rival: PyIcebergTables | None) -> None:
        super().__init__()
        self._rival = rival
        self._puts = 0

    async def write(self, kind: str, key: str, act: Callable[[], Any]) -> Any:
        if kind != "key-put":
            return await act()
        self._puts += 1
        if self._puts <= 3:
            raise OutcomeUnknown("lost")
        if self._rival is None:
            raise Unavailable("gone")
        await self._rival.create(DEFINITION)
        return await act()


def test_a_doubtful_creation_stays_doubtful_when_the_store_goes() -> None:
    async def work() -> None:
        tables = memory().tables(Then(None), attempts=2)
        with pytest.raises(OutcomeUnknown):
            await tables.create(DEFINITION)
        await tables.close()

    run(work)


def test_a_doubtful_creation_finds_what_a_rival_made() -> None:
    async def work() -> None:
        there = memory()
        rival = there.tables()
        tables = there.tables(Then(rival), attempts=2)
        assert await tables.create(DEFINITION) == await rival.load(NAME)
        await tables.close()
        await rival.close()

    run(work)


def test_a_lasting_doubt_is_reported_as_such_and_healed_by_asking_again() -> None:
    async def work() -> None:
        there = memory()
        await (healthy := there.tables()).create(DEFINITION)
        lost = Weather(lambda kind, key: Fault.LOST_REQUEST if kind == "key-put" else None)
        tables = there.tables(lost)
        with pytest.raises(OutcomeUnknown):
            await appended(tables, advance(0, 0, 5))
        assert (await appended(healthy, advance(0, 0, 5))).added == (0,)
        assert (await appended(tables, advance(0, 0, 5))).present == (0,)
        await tables.close()
        await healthy.close()

    run(work)


def test_the_tables_keep_to_the_port() -> None:
    tables: Tables = memory().tables()
    offered = {name for name in vars(Tables) if not name.startswith("_")}
    assert {"create", "load", "append", "drop"} <= offered
    assert [name for name in sorted(offered) if not callable(getattr(tables, name, None))] == []
    run(tables.close)
