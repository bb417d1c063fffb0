"""Every catalog keeps the port's promises: ours, one on SQLite, one behind REST, the fake."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    FaultyObjects,
    Place,
    Weather,
    advance,
    appended,
    facts,
    memory,
    run,
)
from tests.catalog.replaced import merged, rewrite, small
from tests.catalog.rest_stub import rest_catalog

from lakelog.catalog.port import (
    Advance,
    CatalogLimits,
    DataFileFacts,
    Replacement,
    TableName,
    Tables,
    TableView,
)
from lakelog.catalog.tables import external_tables
from lakelog.clock import SystemClock
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Refused
from lakelog.records.table_schema import FIELD_IDS
from lakelog.testing.memory_tables import MemoryTables

KINDS = ("builtin", "sql", "rest", "memory")


class Bench:
    """One catalog that any number of workers open."""

    def __init__(self, kind: str, uri: str) -> None:
        self.there: Place = memory()
        self.weather = Weather()
        self._kind = kind
        self._uri = uri
        self._fake = MemoryTables(SystemClock())
        self._opened: list[Tables] = []

    def tables(self, **limits: int) -> Tables:
        """The tables as one worker sees them."""
        made: Tables
        if self._kind == "builtin":
            made = self.there.tables(self.weather, **limits)
        elif self._kind == "memory":
            made = self._fake
        else:
            properties = {"type": self._kind, "uri": self._uri}
            objects = FaultyObjects(self.there.objects, self.weather)
            made = external_tables(properties, objects, SystemClock(), CatalogLimits(**limits))
        self._opened.append(made)
        return made

    async def close(self) -> None:
        for tables in self._opened:
            await tables.close()


@asynccontextmanager
async def bench(kind: str, folder: Path) -> AsyncIterator[Bench]:
    with rest_catalog() as (address, _):
        made = Bench(kind, address if kind == "rest" else f"sqlite:///{folder}/catalog.db")
        try:
            yield made
        finally:
            await made.close()


async def view_of(tables: Tables) -> TableView:
    view = await tables.load(NAME)
    assert view is not None
    return view


async def filled(tables: Tables) -> TableView:
    await tables.create(DEFINITION)
    for start in range(0, 20, 5):
        await appended(tables, advance(0, start, start + 5), advance(1, start, start + 5))
    return await view_of(tables)


async def spans(tables: Tables, partition: int) -> list[tuple[int, int]]:
    files = await tables.files(NAME, partition=partition, start=0, end=10**9)
    return [(file.offset_first, file.offset_end) for file in files]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_made_once_and_is_found_by_its_own_name(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables()
            assert await tables.load(NAME) is None
            assert await tables.names("kafka") == []
            made = await tables.create(DEFINITION)
            assert made.name == NAME
            assert made == await tables.create(DEFINITION) == await bed.tables().load(NAME)
            assert made.vector == {}
            assert made.field_ids == FIELD_IDS
            others = [NAME.table.lower(), NAME.table.upper(), NAME.table.replace(".", "-")]
            for number, other in enumerate(others):
                name = TableName("kafka", other)
                topic_id = f"{number:032x}"
                one = replace(DEFINITION, name=name, topic=other, topic_id=topic_id)
                assert (await tables.create(one)).uuid != made.uuid
            assert await tables.names("kafka") == sorted(
                TableName("kafka", table) for table in (NAME.table, *others)
            )
            with pytest.raises(Refused, match="another topic"):
                await tables.create(replace(DEFINITION, topic_id="f" * 32))

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_workers_that_create_the_same_table_find_one(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            await bed.tables().names("kafka")
            workers = [bed.tables() for _ in range(3)]
            made = await asyncio.gather(*(one.create(DEFINITION) for one in workers))
            assert len({view.uuid for view in made}) == 1

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vector_decides_and_the_token_is_compared(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables()
            first = await tables.create(DEFINITION)
            done = await appended(tables, advance(0, 0, 5), advance(1, 3, 5))
            assert (done.added, [one.partition for one in done.refused]) == ((0,), [1])
            again = await appended(tables, advance(0, 0, 5, attempt="b"), Advance(1, 0, 2, ()))
            assert (again.present, again.added) == ((0,), (1,))
            assert again.table == await view_of(tables)
            assert again.table.vector == {0: 5, 1: 2}
            assert again.table.snapshots[-1].vector == {0: 5, 1: 2}
            assert await spans(tables, 0) == [(0, 5)]
            for token in (first.token, done.table.token, ""):
                with pytest.raises(Conflict):
                    await tables.append(
                        NAME, [advance(0, 5, 9)], topic_id=TOPIC_ID, commit_id="c", expect=token
                    )

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_of_rivals_with_one_token_one_wins_and_the_others_hear_conflict(
    kind: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            rivals = [bed.tables() for _ in range(4)]
            await rivals[0].create(DEFINITION)
            for number in range(5):
                token = (await view_of(rivals[0])).token
                attempts = [
                    rival.append(
                        NAME,
                        [advance(0, number, number + 1, attempt=f"w{place}")],
                        topic_id=TOPIC_ID,
                        commit_id="c",
                        expect=token,
                    )
                    for place, rival in enumerate(rivals)
                ]
                ended = await asyncio.gather(*attempts, return_exceptions=True)
                won = [one for one in ended if not isinstance(one, BaseException)]
                lost = [one for one in ended if isinstance(one, BaseException)]
                assert len(won) == 1
                # A busy database does not say whether it did it.
                assert all(isinstance(one, Conflict | OutcomeUnknown) for one in lost)
            assert await spans(rivals[0], 0) == [(n, n + 1) for n in range(5)]

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_changes_the_token_and_nothing_else(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables()
            before = await filled(tables)
            moved = await tables.move(NAME, topic_id=TOPIC_ID, expect=before.token)
            assert moved.token != before.token
            assert (moved.vector, moved.snapshots[-1].vector) == (before.vector, before.vector)
            assert await spans(tables, 0) == [(s, s + 5) for s in range(0, 20, 5)]
            with pytest.raises(Conflict):
                await tables.move(NAME, topic_id=TOPIC_ID, expect=before.token)

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_replaced_where_all_of_them_are_there(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables()
            view = await filled(tables)
            for one, operation, left in (
                (rewrite(0, 5, 15), "replace", [(0, 5), (5, 15), (15, 20)]),
                (
                    cleaned(merged(0, 5, 15), facts(0, 7, 9)),
                    "overwrite",
                    [(0, 5), (7, 9), (15, 20)],
                ),
                (Replacement(0, (small(0, 0).key,), (), drops_rows=True), "delete", None),
            ):
                view = await tables.replace(
                    NAME, one, topic_id=TOPIC_ID, commit_id="c", expect=view.token
                )
                assert view.snapshots[-1].operation == operation
                assert view.vector == {0: 20, 1: 20}
                assert await spans(tables, 0) == (left or [(7, 9), (15, 20)])
            assert await spans(tables, 1) == [(s, s + 5) for s in range(0, 20, 5)]
            with pytest.raises(Conflict):
                await tables.replace(
                    NAME, rewrite(0, 5, 15), topic_id=TOPIC_ID, commit_id="c", expect=view.token
                )
            assert await view_of(tables) == view

    run(work)


def cleaned(old: DataFileFacts, new: DataFileFacts) -> Replacement:
    return Replacement(0, (old.key,), (new,), drops_rows=True)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_history_is_short_and_everything_it_needs_is_stored_by_the_port(
    kind: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables(snapshots_kept=3)
            await tables.create(DEFINITION)
            for number in range(30):
                await appended(tables, advance(0, number, number + 1))
            assert len((await view_of(tables)).snapshots) == 3
            named = await tables.reachable(NAME)
            kept = await bed.there.keys()
            ours = {key for key in named if key.startswith("tables/")}
            if kind == "rest":
                ours = {key for key in ours if key.endswith(".avro")}
            assert ours <= kept
            metadata = [key for key in kept if key.endswith(".json")]
            assert len(metadata) == (0 if kind == "rest" else 21)  # it keeps them itself
            written = {key for asked, key in bed.weather.asked if asked != "get"}
            assert {key for key in kept if key.startswith("tables/")} <= written

    run(work)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drop_hits_the_table_of_its_topic_alone(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with bench(kind, tmp_path) as bed:
            tables = bed.tables()
            view = await filled(tables)
            before = await bed.there.keys()
            await tables.drop(NAME, topic_id="f" * 32)
            assert await tables.load(NAME) == view
            await tables.drop(NAME, topic_id=TOPIC_ID)
            await tables.drop(NAME, topic_id=TOPIC_ID)
            assert await tables.load(NAME) is None
            assert await tables.reachable(NAME) == frozenset()
            assert await bed.there.keys() == before
            with pytest.raises(NotFound):
                await tables.files(NAME, partition=0, start=0, end=1)
            with pytest.raises(NotFound):
                await tables.move(NAME, topic_id=TOPIC_ID, expect=view.token)
            new = await tables.create(replace(DEFINITION, topic_id="f" * 32))
            assert new.vector == {}
            with pytest.raises(NotFound):
                await tables.move(NAME, topic_id=TOPIC_ID, expect=new.token)

    run(work)
