"""Replacing files and moving a table: one compare-and-swap each, whoever else is at work."""

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table import Table
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    Weather,
    advance,
    append,
    appended,
    appending,
    exchange,
    loaded,
    memory,
    move,
    nth,
    run,
)
from tests.catalog.replaced import (
    OTHERS,
    Work,
    filled,
    keys,
    look,
    merged,
    replacing,
    rewrite,
    small,
)

from lakelog.catalog.builtin import BuiltinCatalog
from lakelog.catalog.commit import drop_table
from lakelog.catalog.live_files import token_of
from lakelog.catalog.tables import PyIcebergTables
from lakelog.model.failures import Conflict, NotFound, OutcomeUnknown, Unavailable


def stopped(stale: Table, act: Callable[[Table], Any]) -> Work:
    """A worker that loaded the table, was stopped, and now goes on."""

    def go_on(catalog: BuiltinCatalog) -> Any:
        place = stale.metadata_location
        return act(Table(stale.name(), stale.metadata, place, catalog._files, catalog))

    return go_on


OURS: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: append(table, advance(0, 20, 25)),
    "move": move,
    "replace": lambda table: exchange(table, rewrite(0, 5, 15)),
}
"""What each change does to a table as `filled` leaves it."""


@pytest.mark.parametrize("rival", list(OURS))
@pytest.mark.parametrize("ours", list(OURS))
@pytest.mark.parametrize("expired", [False, True])
def test_a_worker_stopped_before_its_commit_changes_nothing_after_a_rival(
    ours: str, rival: str, expired: bool
) -> None:
    async def work() -> None:
        there = await filled()

        def turn_retries_on(catalog: BuiltinCatalog) -> Table:
            with loaded(catalog).transaction() as change:
                change.set_properties({"commit.retry.num-retries": "4"})
            return loaded(catalog)

        stale = await there.with_catalog(turn_retries_on)
        await there.with_catalog(lambda catalog: OURS[rival](loaded(catalog)))
        for number in range(12 if expired else 0):
            one = advance(1, 20 + number, 21 + number)
            await there.with_catalog(appending(one, kept=3))
        before, named = await there.keys(), await look(there)
        with pytest.raises(Conflict):
            await there.with_catalog(stopped(stale, OURS[ours]))
        assert await there.keys() == before
        assert await look(there) == named

    run(work)


PUTS = ("manifest", "manifest-list", "metadata", "key-put")


@pytest.mark.parametrize("ours", ["move", "replace"])
@pytest.mark.parametrize("kind", PUTS)
@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_one_lost_message_at_any_put_is_made_good(ours: str, kind: str, fault: Fault) -> None:
    async def work() -> None:
        there, calm = await filled(), await filled()
        weather = Weather(nth(kind, 1, fault))
        await there.with_catalog(lambda catalog: OURS[ours](loaded(catalog)), weather=weather)
        await calm.with_catalog(lambda catalog: OURS[ours](loaded(catalog)))
        assert await look(there) == await look(calm)

    run(work)


@pytest.mark.parametrize("kind", PUTS)
@pytest.mark.parametrize("fault", list(Fault))
def test_messages_lost_for_good_leave_a_table_that_reads_and_takes_the_replacement(
    kind: str, fault: Fault
) -> None:
    async def work() -> None:
        there = await filled()
        before = await look(there)
        weather = Weather(lambda asked, _: fault if asked == kind else None)
        after = keys(small(0, 0), merged(0, 5, 15), small(0, 15), *OTHERS)
        if kind == "key-put" and fault is Fault.LOST_REPLY:
            await there.with_catalog(replacing(rewrite(0, 5, 15)), weather=weather)
        else:
            unknown = kind == "key-put" and fault is Fault.LOST_REQUEST
            with pytest.raises(OutcomeUnknown if unknown else Unavailable):
                await there.with_catalog(replacing(rewrite(0, 5, 15)), weather=weather)
            assert await look(there) == before
            await there.with_catalog(replacing(rewrite(0, 5, 15)))
        assert not [key for asked, key in weather.asked if asked == "delete"]
        assert await look(there) == (after, {0: 20, 1: 20})
        with pytest.raises(Conflict):
            await there.with_catalog(replacing(rewrite(0, 5, 15)))

    run(work)


@pytest.mark.parametrize("ours", ["move", "replace"])
def test_a_change_that_landed_without_a_reply_is_unknown_and_seen_by_the_token(ours: str) -> None:
    async def work() -> None:
        there = await filled()
        stale = await there.with_catalog(loaded)

        def lose(catalog: BuiltinCatalog) -> None:
            pointers = catalog._pointers
            put = pointers.move

            async def landed(*arguments: Any, **more: Any) -> Any:
                await put(*arguments, **more)
                raise OutcomeUnknown("the reply was lost, and a rival was fast")

            pointers.move = landed  # type: ignore[method-assign]  # done, but unknown
            OURS[ours](loaded(catalog))

        with pytest.raises(OutcomeUnknown):
            await there.with_catalog(lose)
        found, _ = await look(there)
        assert (merged(0, 5, 15).key in found) == (ours == "replace")
        assert token_of(await there.with_catalog(loaded)) != token_of(stale)
        with pytest.raises(Conflict):
            await there.with_catalog(stopped(stale, OURS[ours]))

    run(work)


def test_another_token_is_a_conflict_before_anything_is_written() -> None:
    async def work() -> None:
        there = await filled()
        weather = Weather()
        tables, rival = there.tables(weather), there.tables()
        old = await tables.load(NAME)
        assert old is not None
        await appended(rival, advance(0, 20, 25))
        for attempt in changes(tables, TOPIC_ID, old.token):
            with pytest.raises(Conflict):
                await attempt()
        assert {kind for kind, _ in weather.asked} == {"key-get", "get"}
        await tables.close()
        await rival.close()

    run(work)


def changes(tables: PyIcebergTables, topic_id: str, token: str) -> list[Callable[[], Any]]:
    """Every change of a table, through the port."""
    advances, one = [advance(0, 20, 25)], rewrite(0, 5, 15)
    return [
        lambda: tables.append(NAME, advances, topic_id=topic_id, commit_id="c", expect=token),
        lambda: tables.move(NAME, topic_id=topic_id, expect=token),
        lambda: tables.replace(NAME, one, topic_id=topic_id, commit_id="c", expect=token),
    ]


def test_no_table_and_the_table_of_another_topic_are_not_found() -> None:
    async def work() -> None:
        there = await filled()
        tables = there.tables()
        view = await tables.load(NAME)
        assert view is not None
        for attempt in changes(tables, "f" * 32, view.token):
            with pytest.raises(NotFound, match="another topic"):
                await attempt()
        await there.with_catalog(lambda catalog: drop_table(catalog, NAME, topic_id=TOPIC_ID))
        for attempt in changes(tables, TOPIC_ID, view.token):
            with pytest.raises(NotFound, match="no such table"):
                await attempt()
        await tables.close()

    run(work)


def test_a_table_made_again_has_another_token_though_it_is_as_empty() -> None:
    async def work() -> None:
        tables = memory().tables()
        first = await tables.create(DEFINITION)
        await tables.drop(NAME, topic_id=TOPIC_ID)
        second = await tables.create(DEFINITION)
        assert first.token != second.token
        with pytest.raises(Conflict):
            await tables.move(NAME, topic_id=TOPIC_ID, expect=first.token)
        await tables.close()

    run(work)


def test_a_lost_object_of_the_table_is_no_missing_table() -> None:
    async def work() -> None:
        there = await filled()
        token = token_of(await there.with_catalog(loaded))
        avro = [key for key in await there.keys() if key.endswith(".avro")]
        await there.objects.delete(avro)
        tables = there.tables()
        for attempt in changes(tables, TOPIC_ID, token):
            with pytest.raises(Unavailable):
                await attempt()
        with pytest.raises(Unavailable):
            await tables.files(NAME, partition=0, start=0, end=9)
        with pytest.raises(Unavailable):
            await tables.reachable(NAME)
        await tables.close()

    run(work)
