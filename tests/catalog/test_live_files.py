"""What a table holds and names: vector, files by offset, every object."""

import pytest
from tests.catalog.kit import LOCATIONS, advance, appending, loaded, made, run

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.live_files import files_of, reachable_keys, vector_of, view_of
from lakelog.model.failures import Corrupt


def test_the_vector_is_found_when_the_property_is_gone() -> None:
    async def work() -> None:
        there = await made()
        for one in (advance(0, 0, 5), advance(1, 0, 2), advance(0, 5, 8)):
            await there.with_catalog(appending(one))

        def forget(catalog: BuiltinCatalog) -> None:
            with loaded(catalog).transaction() as change:
                change.remove_properties("lakelog.offsets")
            assert vector_of(loaded(catalog)) == {0: 8, 1: 2}
            table = loaded(catalog)
            bare = [one.model_copy(update={"summary": None}) for one in table.metadata.snapshots]
            table.metadata = table.metadata.model_copy(update={"snapshots": bare})
            assert vector_of(table) == {0: 8, 1: 2}

        await there.with_catalog(forget)

    run(work)


def test_a_table_that_was_turned_back_is_not_appended_to() -> None:
    async def work() -> None:
        there = await made()
        for one in (advance(0, 0, 5), advance(0, 5, 8)):
            await there.with_catalog(appending(one))

        def turn_back(catalog: BuiltinCatalog) -> None:
            table = loaded(catalog)
            first = table.metadata.snapshots[0].snapshot_id
            table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()

        await there.with_catalog(turn_back)
        with pytest.raises(Corrupt, match="from outside"):
            await there.with_catalog(appending(advance(0, 8, 9)))

    run(work)


def test_files_are_found_by_offset_and_objects_by_reach() -> None:
    async def work() -> None:
        there = await made()
        advances = [advance(p, s, s + 5) for s in (0, 5, 10) for p in (0, 1, 2)]
        for one in advances:
            await there.with_catalog(appending(one))

        def search(catalog: BuiltinCatalog) -> None:
            table = loaded(catalog)
            found = files_of(table, LOCATIONS, partition=1, start=4, end=6)
            assert [(file.offset_first, file.offset_end) for file in found] == [(0, 5), (5, 10)]
            assert found[0].key == "data/1/0-5-a.parquet"
            assert files_of(table, LOCATIONS, partition=1, start=15, end=20) == []
            assert files_of(table, LOCATIONS, partition=3, start=0, end=20) == []
            reach = reachable_keys(table, LOCATIONS)
            assert {key for key in reach if key.startswith("data")} == {
                file.key for one in advances for file in one.files
            }
            assert view_of(table).metadata_location.removeprefix("memory:///") in reach

        await there.with_catalog(search)
        reach = await there.with_catalog(lambda c: reachable_keys(loaded(c), LOCATIONS))
        assert {key for key in reach if key.startswith("tables")} <= await there.keys()

    run(work)
