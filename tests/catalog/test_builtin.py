"""The built-in catalog: what becomes of refusals, doubts, strangers and damage."""

import contextlib
import json
from typing import Any

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.types import StringType
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    Fault,
    Place,
    Weather,
    advance,
    appended,
    memory,
    nth,
    run,
)

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.commit import create_table
from lakelog.catalog.pointers import Pointers
from lakelog.catalog.port import TableName
from lakelog.meta import keys
from lakelog.model.failures import Corrupt, Refused, Unavailable

IDENTIFIER = (NAME.namespace, NAME.table)
LOCATION = "memory:///tables/t"


def create(catalog: BuiltinCatalog) -> Table:
    return create_table(catalog, DEFINITION, LOCATION)


async def made() -> Place:
    there = memory()
    await there.with_catalog(create)
    return there


def set_comment(catalog: BuiltinCatalog) -> None:
    with catalog.load_table(IDENTIFIER).transaction() as change:
        change.set_properties({"comment": "x"})


def test_names_are_verbatim_with_dots_and_case() -> None:
    async def work() -> None:
        there = await made()

        def look(catalog: BuiltinCatalog) -> None:
            assert catalog.list_namespaces() == [("kafka",)]
            assert catalog.list_namespaces("kafka") == []
            assert catalog.list_tables("kafka") == [IDENTIFIER]
            assert catalog.load_table(IDENTIFIER).name() == IDENTIFIER
            assert catalog.table_exists(IDENTIFIER)
            assert not catalog.table_exists(("kafka", NAME.table.lower()))
            assert catalog.namespace_exists("kafka")
            assert not catalog.namespace_exists("Kafka")
            for name in ("kafka.Orders.v1-eu", "x", ("a", "b", "c"), ("kafka", "")):
                with pytest.raises(NoSuchTableError):
                    catalog.load_table(name)
            with pytest.raises(NoSuchNamespaceError):
                catalog.list_tables(("a", "b"))
            with pytest.raises(TableAlreadyExistsError):
                catalog.create_table(IDENTIFIER, catalog.load_table(IDENTIFIER).schema(), LOCATION)

        await there.with_catalog(look)

    run(work)


def test_a_refused_creation_leaves_no_object_behind() -> None:
    async def work() -> None:
        there = await made()
        before = await there.keys()
        await there.with_catalog(create)
        assert await there.keys() == before

    run(work)


@pytest.mark.parametrize("step", ["_write_metadata", "_move"])
def test_a_conflict_is_a_failed_commit_and_its_metadata_is_deleted(step: str) -> None:
    async def work() -> None:
        there = await made()

        def rival_first(catalog: BuiltinCatalog) -> None:
            table = catalog.load_table(IDENTIFIER)
            late_step = getattr(catalog, step)

            def late(*arguments: Any, **more: Any) -> None:
                del vars(catalog)[step]
                set_comment(catalog)
                late_step(*arguments, **more)

            vars(catalog)[step] = late  # a rival between read and write
            updates = (SetPropertiesUpdate(updates={"comment": "mine"}),)
            with pytest.raises(CommitFailedException):
                catalog.commit_table(table, (), updates)
            assert catalog.load_table(IDENTIFIER).properties["comment"] == "x"

        await there.with_catalog(rival_first)
        assert len([key for key in await there.keys() if key.endswith(".json")]) == 2

    run(work)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_a_doubt_is_never_a_failed_commit_and_nothing_is_deleted(fault: Fault) -> None:
    async def work() -> None:
        there = await made()
        weather = Weather(lambda kind, key: fault if kind == "key-put" else None)

        def doubt(catalog: BuiltinCatalog) -> None:
            with pytest.raises(CommitStateUnknownException):
                set_comment(catalog)

        if fault is Fault.LOST_REQUEST:
            await there.with_catalog(doubt, weather=weather)
        else:  # the repeated put finds our own value
            await there.with_catalog(set_comment, weather=weather)
        assert not [key for kind, key in weather.asked if kind == "delete"]
        found = await there.with_catalog(lambda catalog: catalog.load_table(IDENTIFIER))
        assert ("comment" in found.properties) == (fault is Fault.LOST_REPLY)

    run(work)


def test_an_unreachable_store_is_said_to_be_so() -> None:
    async def work() -> None:
        there = await made()
        for kind in ("key-put", "metadata"):

            def fate(asked: str, _: str, kind: str = kind) -> Fault | None:
                return Fault.UNAVAILABLE if asked == kind else None

            with pytest.raises(Unavailable):
                await there.with_catalog(set_comment, weather=Weather(fate))

    run(work)


def test_updates_that_do_not_apply_are_a_failed_commit() -> None:
    async def work() -> None:
        there = await made()

        def wrong(catalog: BuiltinCatalog) -> None:
            table = catalog.load_table(IDENTIFIER)
            remove = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [7]})
            with pytest.raises(CommitFailedException, match="does not exist"):
                catalog.commit_table(table, (), (remove,))
            needs = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 7})
            with pytest.raises(CommitFailedException):
                catalog.commit_table(table, (needs,), ())

        await there.with_catalog(wrong)

    run(work)


def test_a_stranger_cannot_touch_what_the_log_owns() -> None:
    async def work() -> None:
        there = await made()
        tables = there.tables()
        for start in (0, 5, 10):
            await appended(tables, advance(0, start, start + 5))
        await tables.close()
        before = await there.keys()

        def outside(catalog: BuiltinCatalog) -> None:
            table = catalog.load_table(IDENTIFIER)
            snapshot = table.metadata.snapshots[0]
            add = AddSnapshotUpdate(snapshot=snapshot)
            for updates in (
                (add,),
                (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot.snapshot_id]}),),
                (SetPropertiesUpdate(updates={"gc.enabled": "true"}),),
                (SetPropertiesUpdate(updates={"lakelog.offsets": "{}"}),),
            ):
                with pytest.raises(ForbiddenError):
                    catalog.commit_table(table, (), updates)
            with pytest.raises(ForbiddenError):
                table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
            with pytest.raises(ForbiddenError), table.update_schema(True) as schema:
                schema.delete_column("value")

        await there.with_catalog(outside, owner=False)
        assert {key for key in before if not key.endswith("avro")} <= await there.keys()
        named = await (tables := there.tables()).reachable(NAME)
        await tables.close()
        assert {key for key in named if key.startswith("tables")} <= await there.keys()

    run(work)


def test_a_stranger_makes_moves_and_drops_no_table() -> None:
    async def work() -> None:
        there = await made()

        def outside(catalog: BuiltinCatalog) -> None:
            table = catalog.load_table(IDENTIFIER)
            for attempt in (
                lambda: catalog.drop_table(IDENTIFIER),
                lambda: catalog.purge_table(IDENTIFIER),
                lambda: catalog.rename_table(IDENTIFIER, ("kafka", "y")),
                lambda: catalog.register_table(("kafka", "y"), table.metadata_location),
                lambda: catalog.create_table(("kafka", "y"), table.schema(), LOCATION),
                lambda: catalog.create_table_transaction(
                    ("kafka", "y"), table.schema(), LOCATION
                ).commit_transaction(),
                lambda: catalog.create_namespace("y"),
                lambda: catalog.drop_namespace("kafka"),
                lambda: catalog.update_namespace_properties("kafka", None, {"a": "b"}),
                lambda: catalog.load_view(IDENTIFIER),
                lambda: catalog.drop_view(IDENTIFIER),
                lambda: catalog.register_view(IDENTIFIER, "x"),
            ):
                with pytest.raises(ForbiddenError):
                    attempt()
            assert catalog.list_views("kafka") == []
            assert not catalog.view_exists(IDENTIFIER)

        await there.with_catalog(outside, owner=False)

    run(work)


def test_a_stranger_may_add_columns_comments_and_tags() -> None:
    async def work() -> None:
        there = await made()
        tables = there.tables()
        await appended(tables, advance(0, 0, 5))

        def outside(catalog: BuiltinCatalog) -> None:
            set_comment(catalog)
            table = catalog.load_table(IDENTIFIER)
            with table.update_schema() as schema:
                schema.add_column("country", StringType())
            snapshot = table.metadata.snapshots[0].snapshot_id
            table.manage_snapshots().create_tag(snapshot, "audit").commit()

        await there.with_catalog(outside, owner=False)
        added = await appended(tables, advance(0, 5, 9))
        assert added.added == (0,)
        assert added.table.properties["comment"] == "x"
        await tables.close()

    run(work)


def test_a_pointer_to_what_is_gone_or_no_metadata_is_corrupt_and_outside_is_refused() -> None:
    async def work() -> None:
        there = await made()
        key = keys.table(NAME.namespace, NAME.table)
        found = await there.meta.get(key)
        assert found is not None
        fields = json.loads(found.value)
        await there.objects.put("tables/bad.json", [b'{"format-version": 2}'])
        for location, failure in (
            ("memory:///tables/none.json", Corrupt),
            ("memory:///tables/bad.json", Corrupt),
            ("file:///etc/passwd", Refused),
        ):
            changed = json.dumps({**fields, "metadata_location": location}).encode()
            await there.meta.put(key, changed)
            with pytest.raises(failure):
                await there.with_catalog(lambda catalog: catalog.load_table(IDENTIFIER))

    run(work)


def test_metadata_deleted_while_it_was_looked_for_is_looked_for_again() -> None:
    async def work() -> None:
        there = await made()
        pointers = Pointers(there.meta)
        stale = await pointers.get(NAME)
        assert stale is not None
        await there.with_catalog(set_comment)
        await there.objects.delete([stale.metadata_location.removeprefix("memory:///")])

        def slow(catalog: BuiltinCatalog) -> str:
            answers = iter([stale])
            get = catalog._pointers.get

            async def late(name: TableName) -> Any:
                return next(answers, None) or await get(name)

            catalog._pointers.get = late  # type: ignore[method-assign]  # it read before the rival
            return catalog.load_table(IDENTIFIER).properties["comment"]

        assert await there.with_catalog(slow) == "x"

    run(work)


def test_only_whole_files_are_stored() -> None:
    async def work() -> None:
        there = await made()

        def write(catalog: BuiltinCatalog) -> None:
            files = catalog._load_file_io()
            output = files.new_output("memory:///x/whole")
            with output.create() as stream:
                stream.write(b"12345")
            assert (len(output), output.exists()) == (5, True)
            assert output.to_input_file().open().read() == b"12345"
            assert len(files.new_output("memory:///x/whole")) == 5
            assert len(files.new_input("memory:///x/whole")) == 5
            with (
                contextlib.suppress(KeyError),
                files.new_output("memory:///x/half").create() as half,
            ):
                half.write(b"123")
                raise KeyError
            assert not files.new_input("memory:///x/half").exists()
            files.delete(output)
            assert not output.exists()
            with pytest.raises(OSError, match="outside"):
                files.delete("file:///etc/passwd")

        await there.with_catalog(write)

    run(work)


def test_the_creation_without_a_reply_is_found() -> None:
    async def work() -> None:
        there = memory()
        weather = Weather(nth("key-put", 1, Fault.LOST_REPLY))
        table = await there.with_catalog(create, weather=weather)
        loaded = await there.with_catalog(lambda catalog: catalog.load_table(IDENTIFIER))
        assert loaded.metadata_location == table.metadata_location

    run(work)
