"""Tables in memory behave as those of the built-in catalog do."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.catalog.kit import DEFINITION, NAME, TOPIC_ID, advance, facts, memory, run

from lakelog.catalog.port import Replacement, TableDefinition, TableName, Tables, TableView
from lakelog.clock import SystemClock
from lakelog.model.failures import Conflict, NotFound, Refused
from lakelog.testing.memory_tables import MemoryTables

KINDS: dict[str, Callable[[int], Tables]] = {
    "memory": lambda kept: MemoryTables(SystemClock(), snapshots_kept=kept),
    "builtin": lambda kept: memory().tables(snapshots_kept=kept),
}
WORDS: dict[str, Any] = {"topic_id": TOPIC_ID, "commit_id": "c"}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[[int], Tables]:
    return KINDS[request.param]


def check(make: Callable[[int], Tables], work: Callable[[Tables], Awaitable[None]]) -> None:
    async def scenario() -> None:
        tables = make(3)
        try:
            await work(tables)
        finally:
            await tables.close()

    run(scenario)


async def keys(tables: Tables, partition: int = 0) -> list[str]:
    found = await tables.files(NAME, partition=partition, start=0, end=1 << 40)
    return [file.key for file in found]


def test_a_table_is_made_once_and_is_its_topics(make: Callable[[int], Tables]) -> None:
    async def work(tables: Tables) -> None:
        assert await tables.load(NAME) is None
        made = await tables.create(DEFINITION)
        assert await tables.create(DEFINITION) == made == await tables.load(NAME)
        assert (made.vector, made.snapshots, made.snapshot_id) == ({}, (), None)
        assert made.properties["lakelog.topic_id"] == TOPIC_ID
        assert made.properties["lakelog.cluster_id"] == "cluster-1"
        other = TableDefinition(NAME, "Orders.v1-eu", "f" * 32, "cluster-1")
        with pytest.raises(Refused):
            await tables.create(other)
        assert await tables.names("kafka") == [NAME]
        assert await tables.names("other") == []

    check(make, work)


def test_the_vector_admits_each_advance_once(make: Callable[[int], Tables]) -> None:
    async def work(tables: Tables) -> None:
        made = await tables.create(DEFINITION)
        both = [advance(0, 0, 5), advance(1, 3, 7)]
        done = await tables.append(NAME, both, expect=made.token, **WORDS)
        assert (done.added, done.present) == ((0,), ())
        assert [one.partition for one in done.refused] == [1]
        again = await tables.append(NAME, both[:1], expect=done.table.token, **WORDS)
        assert (again.added, again.present) == ((), (0,))
        assert again.table.token == done.table.token != made.token
        assert again.table.vector == {0: 5}
        assert await keys(tables) == [both[0].files[0].key]
        assert (await tables.files(NAME, partition=0, start=5, end=9)) == []

    check(make, work)


def test_a_change_of_another_token_or_topic_changes_nothing(make: Callable[[int], Tables]) -> None:
    async def work(tables: Tables) -> None:
        made = await tables.create(DEFINITION)
        moved = await tables.move(NAME, topic_id=TOPIC_ID, expect=made.token)
        assert moved.token != made.token
        replacement = Replacement(0, ("x",), (), drops_rows=True)
        with pytest.raises(Conflict):
            await tables.append(NAME, [advance(0, 0, 5)], expect=made.token, **WORDS)
        with pytest.raises(Conflict):
            await tables.move(NAME, topic_id=TOPIC_ID, expect=made.token)
        with pytest.raises(Conflict):
            await tables.replace(NAME, replacement, expect=made.token, **WORDS)
        with pytest.raises(Conflict):
            await tables.replace(NAME, replacement, expect=moved.token, **WORDS)
        others: dict[str, Any] = {"topic_id": "f" * 32, "commit_id": "c", "expect": moved.token}
        with pytest.raises(NotFound):
            await tables.append(NAME, [advance(0, 0, 5)], **others)
        nowhere = TableName("kafka", "nowhere")
        with pytest.raises(NotFound):
            await tables.append(nowhere, [advance(0, 0, 5)], expect=moved.token, **WORDS)
        with pytest.raises(NotFound):
            await tables.files(nowhere, partition=0, start=0, end=1)
        loaded = await tables.load(NAME)
        assert loaded is not None
        assert (loaded.token, loaded.vector) == (moved.token, {})

    check(make, work)


def test_files_give_way_to_others_and_the_vector_stays(make: Callable[[int], Tables]) -> None:
    async def work(tables: Tables) -> None:
        view = await tables.create(DEFINITION)
        for start in (0, 5, 10):
            step = [advance(0, start, start + 5), advance(1, start, start + 5)]
            view = (await tables.append(NAME, step, expect=view.token, **WORDS)).table
        before = await keys(tables)
        merged = facts(0, 0, 10, attempt="b")
        swap = Replacement(0, tuple(before[:2]), (merged,), drops_rows=False)
        view = await tables.replace(NAME, swap, expect=view.token, **WORDS)
        assert await keys(tables) == [merged.key, before[2]]
        assert len(await keys(tables, 1)) == 3
        assert view.snapshots[-1].operation == "replace"
        gone = Replacement(0, (merged.key,), (), drops_rows=True)
        view = await tables.replace(NAME, gone, expect=view.token, **WORDS)
        assert await keys(tables) == [before[2]]
        assert (view.vector, view.snapshots[-1].operation) == ({0: 15, 1: 15}, "delete")

    check(make, work)


def test_old_snapshots_expire_and_what_is_left_is_reachable(make: Callable[[int], Tables]) -> None:
    async def work(tables: Tables) -> None:
        view: TableView = await tables.create(DEFINITION)
        for start in range(0, 25, 5):
            done = await tables.append(
                NAME, [advance(0, start, start + 5)], expect=view.token, **WORDS
            )
            view = done.table
        assert [one.vector for one in view.snapshots] == [{0: 15}, {0: 20}, {0: 25}]
        data = {key for key in await tables.reachable(NAME) if key.startswith("data/")}
        assert data == set(await keys(tables))
        await tables.drop(NAME, topic_id="f" * 32)
        assert await tables.load(NAME) is not None
        await tables.drop(NAME, topic_id=TOPIC_ID)
        await tables.drop(NAME, topic_id=TOPIC_ID)
        assert await tables.load(NAME) is None
        assert await tables.reachable(NAME) == frozenset()
        made = await tables.create(DEFINITION)
        assert (made.vector, made.uuid != view.uuid) == ({}, True)

    check(make, work)
