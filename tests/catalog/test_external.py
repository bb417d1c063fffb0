"""A catalog that is not ours: what becomes of its names, its errors, and what strangers left."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    FaultyObjects,
    Place,
    Weather,
    advance,
    appended,
    memory,
    on_disk,
    run,
    stored,
)
from tests.catalog.rest_stub import rest_catalog

from lakelog.catalog.commit import iceberg_schema
from lakelog.catalog.port import TableName, TableView
from lakelog.catalog.tables import PyIcebergTables, external_tables
from lakelog.clock import SystemClock
from lakelog.model.failures import Conflict, OutcomeUnknown, Refused, Unavailable


@asynccontextmanager
async def opened(
    place: Place,
    folder: Path,
    kind: str = "",
    weather: Weather | None = None,
    names: str | None = None,
) -> AsyncIterator[PyIcebergTables]:
    """The tables in a catalog on SQLite, of one of the kinds that answer badly."""
    how = {"py-catalog-impl": f"tests.catalog.sql_catalogs.{kind}"} if kind else {"type": "sql"}
    given = {"uri": f"sqlite:///{folder}/catalog.db", **how}
    if names is not None:
        given["lakelog.table-names"] = names
    objects = FaultyObjects(place.objects, weather or Weather())
    tables = external_tables(given, objects, SystemClock())
    try:
        yield tables
    finally:
        await tables.close()


def stranger(folder: Path) -> SqlCatalog:
    """The same catalog, as somebody else opens it."""
    return SqlCatalog("lakelog", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


async def view_of(tables: PyIcebergTables) -> TableView:
    view = await tables.load(NAME)
    assert view is not None
    return view


def test_other_engines_find_the_table_by_its_escaped_name_and_read_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there, opened(there, tmp_path) as tables:
            await tables.create(DEFINITION)
            await appended(tables, await stored(there, 0, 0, 30))

        def read() -> list[int]:
            catalog = stranger(tmp_path)
            assert catalog.list_tables("kafka") == [("kafka", "__uorders__dv1__heu")]
            rows = catalog.load_table(("kafka", "__uorders__dv1__heu")).scan().to_arrow()
            catalog.close()
            offsets: list[int] = rows["offset"].to_pylist()
            return offsets

        assert sorted(await asyncio.to_thread(read)) == list(range(30))

    run(work)


def test_tables_of_others_are_not_listed(tmp_path: Path) -> None:
    async def work() -> None:
        there = memory()
        async with opened(there, tmp_path) as tables:
            await tables.create(DEFINITION)
            catalog = stranger(tmp_path)
            catalog.create_table(("kafka", "a.b"), iceberg_schema())
            catalog.close()
            assert await tables.names("kafka") == [NAME]
            with pytest.raises(Refused, match="characters"):
                await tables.load(TableName("kafka", "X" * 200))

    run(work)


def test_names_are_verbatim_where_that_is_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with opened(memory(), tmp_path, names="verbatim") as tables:
            await tables.create(DEFINITION)
            assert await tables.names("kafka") == [NAME]
            assert (await appended(tables, advance(0, 0, 5))).added == (0,)
        catalog = stranger(tmp_path)
        assert catalog.list_tables("kafka") == [("kafka", NAME.table)]
        catalog.close()

    run(work)


CHANGES: dict[str, Callable[[PyIcebergTables, str], Any]] = {
    "append": lambda tables, token: tables.append(
        NAME, [advance(0, 5, 9)], topic_id=TOPIC_ID, commit_id="c", expect=token
    ),
    "move": lambda tables, token: tables.move(NAME, topic_id=TOPIC_ID, expect=token),
}


@pytest.mark.parametrize("change", list(CHANGES))
@pytest.mark.parametrize(("kind", "landed"), [("LosesReplies", True), ("LosesRequests", False)])
def test_a_commit_without_an_answer_is_unknown_and_nothing_is_deleted(
    kind: str, landed: bool, change: str, tmp_path: Path
) -> None:
    async def work() -> None:
        there = memory()
        weather = Weather()
        async with (
            opened(there, tmp_path) as tables,
            opened(there, tmp_path, kind, weather) as lossy,
        ):
            await tables.create(DEFINITION)
            before = (await appended(tables, advance(0, 0, 5))).table
            with pytest.raises(OutcomeUnknown):
                await CHANGES[change](lossy, before.token)
            assert not [key for asked, key in weather.asked if asked == "delete"]
            after = await view_of(tables)
            assert (after.token != before.token) == landed
            if landed:
                with pytest.raises(Conflict):
                    await CHANGES[change](tables, before.token)
            end = 9 if change == "append" and landed else 5
            assert after.vector == {0: end}
            files = await tables.files(NAME, partition=0, start=0, end=9)
            assert [file.offset_end for file in files] == [5, 9][: end // 4]

    run(work)


def test_a_creation_and_a_drop_without_an_answer_are_found_done(tmp_path: Path) -> None:
    async def work() -> None:
        there = memory()
        async with (
            opened(there, tmp_path, "LosesCreations") as makes,
            opened(there, tmp_path, "LosesReplies") as drops,
        ):
            made = await makes.create(DEFINITION)
            assert await makes.load(NAME) == made
            await drops.drop(NAME, topic_id=TOPIC_ID)
            assert await makes.load(NAME) is None

    run(work)


def test_a_catalog_that_is_down_is_unavailable(tmp_path: Path) -> None:
    async def work() -> None:
        there = memory()
        for kind in ("IsDown", "Unopened"):
            async with opened(there, tmp_path, kind) as tables:
                for attempt in (
                    tables.load(NAME),
                    tables.names("kafka"),
                    tables.drop(NAME, topic_id=TOPIC_ID),
                    CHANGES["move"](tables, "x"),
                ):
                    with pytest.raises(Unavailable):
                        await attempt

    run(work)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"type": "nonsense"},
        {"type": "sql"},
        {"type": "glue", "lakelog.table-names": "odd"},
        {"py-catalog-impl": "no.such.Class"},
    ],
)
def test_properties_that_open_no_catalog_are_refused(properties: dict[str, str]) -> None:
    async def work() -> None:
        tables = external_tables(properties, memory().objects, SystemClock())
        with pytest.raises(Refused):
            await tables.load(NAME)
        await tables.close()

    run(work)


@pytest.mark.parametrize("kind", ["manifest", "manifest-list", "metadata"])
@pytest.mark.parametrize("fault", list(Fault))
def test_files_go_through_the_port_and_their_loss_changes_nothing(
    kind: str, fault: Fault, tmp_path: Path
) -> None:
    async def work() -> None:
        there = memory()
        weather = Weather(lambda asked, _: fault if asked == kind else None)
        async with opened(there, tmp_path) as tables, opened(there, tmp_path, "", weather) as bad:
            await tables.create(DEFINITION)
            before = (await appended(tables, advance(0, 0, 5))).table
            with pytest.raises(Unavailable):
                await CHANGES["append"](bad, before.token)
            assert await view_of(tables) == before
            assert (await CHANGES["append"](tables, before.token)).added == (0,)

    run(work)


@pytest.mark.parametrize("name", ["write.py-location-provider.impl", "write.metadata.path"])
def test_a_strangers_property_runs_no_code_and_leads_nowhere_else(
    name: str, tmp_path: Path
) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there, opened(there, tmp_path) as tables:
            before = await tables.create(DEFINITION)

            def change() -> None:
                catalog = stranger(tmp_path)
                table = catalog.load_table(("kafka", "__uorders__dv1__heu"))
                with table.transaction() as changes:
                    changes.set_properties({name: f"file://{tmp_path}/elsewhere"})
                catalog.close()

            if name.endswith("path"):
                await asyncio.to_thread(change)
            else:
                await marked(there, before, name, tmp_path)
            with pytest.raises(Refused):
                await tables.load(NAME)
            with pytest.raises(Refused):
                await CHANGES["append"](tables, before.token)

    run(work)


async def marked(there: Place, view: TableView, name: str, folder: Path) -> None:
    """Metadata that PyIceberg itself would not write, behind the catalog's pointer."""
    key = view.metadata_location.removeprefix(f"file://{folder}/the objects/")
    fields = json.loads(bytes(await there.objects.get(key)))
    fields["properties"][name] = "no.such.Class"
    await there.objects.put(key, [json.dumps(fields).encode()])


def test_a_file_system_that_a_property_names_is_not_used(tmp_path: Path) -> None:
    async def work() -> None:
        there = memory()
        async with opened(there, tmp_path) as tables:
            odd = {"py-io-impl": "no.such.FileIO", "io-impl": "org.Example"}
            await tables.create(replace(DEFINITION, properties=odd))
            assert (await appended(tables, advance(0, 0, 5))).added == (0,)

    run(work)


def test_a_rest_catalog_gets_names_as_they_are_and_its_silence_is_unknown() -> None:
    async def work() -> None:
        there = memory()
        with rest_catalog() as (address, state):
            properties = {"type": "rest", "uri": address}
            tables = external_tables(properties, there.objects, SystemClock())
            await tables.create(DEFINITION)
            before = (await appended(tables, advance(0, 0, 5))).table
            assert list(state.tables) == [("kafka", NAME.table)]
            state.lost.add("POST")
            with pytest.raises(OutcomeUnknown):
                await CHANGES["append"](tables, before.token)
            state.lost.clear()
            after = await view_of(tables)
            assert (after.vector, after.token != before.token) == ({0: 9}, True)
            state.lost.add("GET")
            with pytest.raises(Unavailable):
                await tables.load(NAME)
            await tables.close()
        tables = external_tables(properties, there.objects, SystemClock())
        with pytest.raises(Unavailable):
            await tables.load(NAME)
        await tables.close()

    run(work)


def test_a_rest_catalog_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.catalog.external.REQUEST_S", 0.2)

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}"
            tables = external_tables(
                {"type": "rest", "uri": address}, memory().objects, SystemClock()
            )
            with pytest.raises(Unavailable):
                await tables.load(NAME)
            await tables.close()

    run(work)
