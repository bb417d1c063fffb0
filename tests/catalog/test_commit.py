"""One append is one compare-and-swap, whatever is lost, expired or done by others meanwhile."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    Place,
    Weather,
    advance,
    append,
    appending,
    facts,
    loaded,
    made,
    memory,
    nth,
    run,
)

import lakelog.catalog
from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.commit import create_table, drop_table, load_table
from lakelog.catalog.live_files import vector_of
from lakelog.catalog.port import Advance, TableDefinition
from lakelog.model.failures import (
    Conflict,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)


def paths(table: Table) -> list[str]:
    """The files that the newest snapshot names, twice if it names one twice."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(table.io)]
    return sorted(entry.data_file.file_path for entry in entries)


async def look(there: Place) -> tuple[list[str], dict[int, int]]:
    return await there.with_catalog(
        lambda catalog: (paths(loaded(catalog)), vector_of(loaded(catalog)))
    )


def named(*advances: Advance) -> list[str]:
    return sorted(f"memory:///{file.key}" for one in advances for file in one.files)


def test_an_append_brings_files_vector_and_commit_id_in_one_snapshot() -> None:
    async def work() -> None:
        there = await made()
        one, two = advance(0, 0, 5), Advance(1, 0, 9, (facts(1, 0, 4), facts(1, 6, 9)))
        done = await there.with_catalog(appending(two, one))
        assert (done.added, done.present, done.refused) == ((0, 1), (), ())
        assert done.table.vector == {0: 5, 1: 9}
        (snapshot,) = done.table.snapshots
        assert (snapshot.vector, snapshot.operation) == ({0: 5, 1: 9}, "append")
        assert done.table.snapshot_id == snapshot.snapshot_id
        assert await look(there) == (named(one, two), {0: 5, 1: 9})
        summary = await there.with_catalog(lambda catalog: loaded(catalog).metadata.snapshots[0])
        assert summary.summary is not None
        assert summary.summary["lakelog.commit_id"] == "round-1"
        assert summary.summary["added-records"] == "12"

    run(work)


def test_what_is_there_is_not_added_and_what_does_not_fit_is_refused_alone() -> None:
    async def work() -> None:
        there = await made()
        first = advance(0, 0, 5)
        await there.with_catalog(appending(first))
        again = advance(0, 0, 5, attempt="b")
        fresh, gap = advance(1, 0, 3), advance(2, 4, 6)
        done = await there.with_catalog(appending(again, fresh, gap))
        assert (done.added, done.present) == ((1,), (0,))
        assert [misfit.partition for misfit in done.refused] == [2]
        assert await look(there) == (named(first, fresh), {0: 5, 1: 3})

    run(work)


def test_with_nothing_fresh_nothing_is_written() -> None:
    async def work() -> None:
        there = await made()
        await there.with_catalog(appending(advance(0, 0, 5)))
        weather = Weather()
        done = await there.with_catalog(appending(advance(0, 0, 5)), weather=weather)
        assert done.present == (0,)
        assert {kind for kind, _ in weather.asked} == {"key-get", "get"}

    run(work)


def test_an_advance_without_files_moves_the_vector_and_the_snapshot() -> None:
    async def work() -> None:
        there = await made()
        stale = await there.with_catalog(loaded)
        done = await there.with_catalog(appending(Advance(0, 0, 5, ())))
        assert done.table.vector == {0: 5}
        assert done.table.snapshot_id is not None

        def late(catalog: BuiltinCatalog) -> None:
            table = Table(
                stale.name(), stale.metadata, stale.metadata_location, catalog._files, catalog
            )
            with pytest.raises(Conflict):
                append(table, advance(0, 0, 5))

        await there.with_catalog(late)
        done = await there.with_catalog(appending(advance(0, 5, 7)))
        assert await look(there) == (named(advance(0, 5, 7)), {0: 7})

    run(work)


def stopped(there: Place, stale: Table, *advances: Advance) -> Callable[[BuiltinCatalog], Any]:
    """A worker that loaded the table, was stopped, and now goes on."""

    def go_on(catalog: BuiltinCatalog) -> Any:
        place, files = stale.metadata_location, catalog._files
        return append(Table(stale.name(), stale.metadata, place, files, catalog), *advances)

    return go_on


@pytest.mark.parametrize("retries", ["0", "4"])
@pytest.mark.parametrize("expired", [False, True])
def test_a_worker_stopped_before_its_commit_adds_nothing_after_a_rival(
    retries: str, expired: bool
) -> None:
    async def work() -> None:
        there = await made()

        def set_retries(catalog: BuiltinCatalog) -> Table:
            # Somebody turned the library's own loop on, which would add the rows again.
            with loaded(catalog).transaction() as change:
                change.set_properties({"commit.retry.num-retries": retries})
            return loaded(catalog)

        stale = await there.with_catalog(set_retries)
        ours, theirs = advance(0, 0, 5), advance(0, 0, 5, attempt="rival")
        await there.with_catalog(appending(theirs))
        more = [advance(0, start, start + 1) for start in range(5, 17)] if expired else []
        for one in more:
            await there.with_catalog(appending(one, kept=3))
        before = await there.keys()
        with pytest.raises(Conflict):
            await there.with_catalog(stopped(there, stale, ours))
        assert await there.keys() == before
        done = await there.with_catalog(appending(ours))
        assert done.present == (0,)
        expected = (named(theirs, *more), {0: 17 if expired else 5})
        assert await look(there) == expected

    run(work)


PUTS = ("manifest", "manifest-list", "metadata", "key-put")


@pytest.mark.parametrize("kind", PUTS)
@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
@pytest.mark.parametrize("merging", [False, True])
def test_one_lost_message_at_any_put_is_made_good(kind: str, fault: Fault, merging: bool) -> None:
    async def work() -> None:
        there = await made()
        earlier = [advance(0, start, start + 1) for start in range(7 if merging else 1)]
        for one in earlier:
            await there.with_catalog(appending(one))
        last = advance(0, len(earlier), 50)
        weather = Weather(nth(kind, 1, fault))
        done = await there.with_catalog(appending(last), weather=weather)
        assert done.added == (0,)
        assert await look(there) == (named(*earlier, last), {0: 50})
        kinds = [asked for asked, _ in weather.asked]
        assert kinds.count("manifest") - (kind == "manifest") == (2 if merging else 1)

    run(work)


@pytest.mark.parametrize("kind", PUTS)
@pytest.mark.parametrize("fault", list(Fault))
def test_messages_lost_for_good_leave_a_table_that_reads_and_takes_the_append(
    kind: str, fault: Fault
) -> None:
    async def work() -> None:
        there = await made()
        first, second = advance(0, 0, 5), advance(0, 5, 9)
        await there.with_catalog(appending(first))
        weather = Weather(lambda asked, _: fault if asked == kind else None)
        if kind == "key-put" and fault is Fault.LOST_REPLY:
            assert (await there.with_catalog(appending(second), weather=weather)).added == (0,)
        else:
            unknown = kind == "key-put" and fault is Fault.LOST_REQUEST
            with pytest.raises(OutcomeUnknown if unknown else Unavailable):
                await there.with_catalog(appending(second), weather=weather)
            assert await look(there) == (named(first), {0: 5})
        assert not [key for asked, key in weather.asked if asked == "delete"]
        done = await there.with_catalog(appending(second))
        assert (*done.added, *done.present) == (0,)
        assert await look(there) == (named(first, second), {0: 9})

    run(work)


def test_a_commit_that_landed_without_a_reply_before_a_rival_is_found_by_its_vector() -> None:
    """The pointer's put is lost for the caller, and a rival builds on it at once."""

    async def work() -> None:
        there = await made()
        ours, theirs = advance(0, 0, 5), advance(1, 0, 3)

        def lose(catalog: BuiltinCatalog) -> None:
            pointers = catalog._pointers
            move = pointers.move

            async def landed(*arguments: Any, **more: Any) -> Any:
                await move(*arguments, **more)
                raise OutcomeUnknown("the reply was lost, and a rival was fast")

            pointers.move = landed  # type: ignore[method-assign]  # done, but unknown
            append(loaded(catalog), ours)

        with pytest.raises(OutcomeUnknown):
            await there.with_catalog(lose)
        await there.with_catalog(appending(theirs))
        assert (await there.with_catalog(appending(ours))).present == (0,)
        assert await look(there) == (named(ours, theirs), {0: 5, 1: 3})

    run(work)


def test_old_snapshots_go_in_the_same_commit_but_not_those_with_a_name() -> None:
    async def work() -> None:
        there = await made()
        await there.with_catalog(appending(advance(0, 0, 1)))

        def tag(catalog: BuiltinCatalog) -> int:
            table = loaded(catalog)
            first = table.metadata.snapshots[0].snapshot_id
            table.manage_snapshots().create_tag(first, "kept").commit()
            return first

        first = await there.with_catalog(tag)
        for start in range(1, 9):
            await there.with_catalog(appending(advance(0, start, start + 1), kept=3))
        table = await there.with_catalog(loaded)
        assert len(table.metadata.snapshots) == 4
        assert table.metadata.snapshots[0].snapshot_id == first
        assert len(table.metadata.snapshot_log) == 4
        assert await look(there) == (named(*(advance(0, s, s + 1) for s in range(9))), {0: 9})

    run(work)


def test_a_table_that_vanished_is_not_found() -> None:
    async def work() -> None:
        there = await made()
        stale = await there.with_catalog(loaded)
        await there.with_catalog(lambda catalog: drop_table(catalog, NAME, topic_id=TOPIC_ID))
        await there.with_catalog(lambda catalog: drop_table(catalog, NAME, topic_id=TOPIC_ID))
        assert await there.with_catalog(lambda catalog: load_table(catalog, NAME)) is None
        with pytest.raises(Conflict):
            await there.with_catalog(stopped(there, stale, advance(0, 0, 5)))

    run(work)


def test_a_topic_made_again_gets_nothing_of_the_old_one_and_keeps_its_table() -> None:
    async def work() -> None:
        there = await made()
        stale = await there.with_catalog(loaded)
        await there.with_catalog(lambda catalog: drop_table(catalog, NAME, topic_id=TOPIC_ID))
        new = replace(DEFINITION, topic_id="f" * 32)
        await there.with_catalog(lambda catalog: create_table(catalog, new, "memory:///tables/u"))
        with pytest.raises(NotFound, match="another topic"):
            await there.with_catalog(appending(advance(0, 0, 5)))
        with pytest.raises(Conflict):
            await there.with_catalog(stopped(there, stale, advance(0, 0, 5)))
        await there.with_catalog(lambda catalog: drop_table(catalog, NAME, topic_id=TOPIC_ID))
        assert await look(there) == ([], {})

    run(work)


def test_a_drop_does_not_hit_the_table_that_was_made_after_it_looked() -> None:
    async def work() -> None:
        there = await made()

        def slow(catalog: BuiltinCatalog) -> None:
            drop = catalog.drop_table

            def late(identifier: Any) -> None:
                pointers = catalog._pointers
                found = catalog._calls.read(lambda: pointers.get(NAME))
                assert found is not None
                catalog._calls.write(lambda: pointers.drop(NAME, expect=found.version))
                catalog._calls.write(lambda: pointers.move(NAME, found.metadata_location, expect=0))
                drop(identifier)

            vars(catalog)["drop_table"] = late
            drop_table(catalog, NAME, topic_id=TOPIC_ID)

        with pytest.raises(Conflict):
            await there.with_catalog(slow)
        assert await look(there) == ([], {})

    run(work)


def test_the_name_of_another_topics_table_is_refused() -> None:
    async def work() -> None:
        there = await made()
        other = TableDefinition(NAME, DEFINITION.topic, "f" * 32, "cluster-1")
        with pytest.raises(Refused, match="another topic"):
            await there.with_catalog(lambda c: create_table(c, other, "memory:///tables/u"))

    run(work)


@pytest.mark.parametrize(
    ("raised", "failure"),
    [
        (CommitFailedException("no"), Conflict),
        (CommitStateUnknownException("perhaps"), OutcomeUnknown),
        (ConnectionResetError("a library of HTTP"), OutcomeUnknown),
        (ValueError("anything at all"), OutcomeUnknown),
        (Unavailable("ours"), Unavailable),
    ],
)
def test_what_a_catalog_raises_is_a_definite_no_only_when_it_says_so(
    raised: Exception, failure: type[Exception]
) -> None:
    async def work() -> None:
        there = await made()
        weather = Weather()

        def refuse(catalog: BuiltinCatalog) -> None:
            def commit_table(*_: object) -> CommitTableResponse:
                raise raised

            vars(catalog)["commit_table"] = commit_table  # as a foreign catalog would
            append(loaded(catalog), advance(0, 0, 5))

        with pytest.raises(failure):
            await there.with_catalog(refuse, weather=weather)
        deleted = [key for kind, key in weather.asked if kind == "delete"]
        assert len(deleted) == (2 if failure is Conflict else 0)

    run(work)


def test_no_code_here_says_failed_where_the_outcome_is_unknown() -> None:
    """A handler that catches a doubt raises no `CommitFailedException`, and no `Conflict`."""
    handlers = 0
    for path in sorted(Path(lakelog.catalog.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                caught = ast.unparse(node.type)
                if any(word in caught for word in ("Unknown", "Failure", "Timeout", "Cancelled")):
                    handlers += 1
                    raised: Sequence[ast.AST] = [
                        one for part in node.body for one in ast.walk(part)
                    ]
                    text = " ".join(ast.unparse(n) for n in raised if isinstance(n, ast.Raise))
                    assert "CommitFailed" not in text, path
                    assert "Conflict" not in text, path
    assert handlers > 5


def test_a_table_that_is_not_there_is_not_appended_to() -> None:
    async def work() -> None:
        tables = memory().tables()
        with pytest.raises(NotFound):
            await tables.append(
                NAME, [advance(0, 0, 1)], topic_id=TOPIC_ID, commit_id="c", expect="x"
            )
        await tables.close()

    run(work)
