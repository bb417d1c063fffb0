"""Snapshots are known after tables let go of them, whatever stops in between."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.catalog.kit import (
    DEFINITION,
    NAME,
    TOPIC_ID,
    Fault,
    FaultyMeta,
    Place,
    Weather,
    advance,
    memory,
    on_disk,
)

from lakelog.catalog import history as history_module
from lakelog.catalog.history import SnapshotHistory
from lakelog.catalog.port import CatalogLimits, SnapshotView, Tables, TableView
from lakelog.catalog.snapshot_page import SnapshotFact, decode_page
from lakelog.catalog.tables import external_tables
from lakelog.clock import SystemClock
from lakelog.meta import keys
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable


@dataclass
class Watch:
    """A clock that a test sets."""

    time_ms: int = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


def view(number: int, *, partitions: int = 1) -> SnapshotView:
    vector = dict.fromkeys(range(partitions), number * 10)
    return SnapshotView(7_000_000 + number, number, number * 1000, "append", vector)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakelog.catalog.snapshot_page.PAGE_BYTES", 200)
    monkeypatch.setattr("lakelog.catalog.snapshot_page.PAGE_FACTS", 2)


async def everything(history: SnapshotHistory, topic_id: str = TOPIC_ID) -> list[SnapshotFact]:
    """Every fact, in the order in which snapshots went."""
    head = await history.head(topic_id)
    found: list[SnapshotFact] = []
    for number in range(head.first, head.end):
        page = await history.page(topic_id, number)
        found += [] if page is None else decode_page(page).facts
    return [*found, *head.page.facts]


async def commit(tables: Tables, view: TableView, number: int) -> TableView:
    done = await tables.append(
        NAME,
        [advance(0, number, number + 1)],
        topic_id=TOPIC_ID,
        commit_id="c",
        expect=view.token,
    )
    return done.table


async def whole(there: Place, tables: Tables) -> list[tuple[int, int]]:
    """Sequence number and end offset of every snapshot that is known, each once."""
    loaded = await tables.load(NAME)
    assert loaded is not None
    facts = await everything(SnapshotHistory(there.meta, SystemClock()))
    found = {one.snapshot_id: (one.sequence_number, one.vector[0]) for one in facts}
    for one in loaded.snapshots:
        assert one.vector is not None
        found[one.snapshot_id] = (one.sequence_number, one.vector[0])
    return sorted(found.values())


@pytest.mark.parametrize("kind", ["builtin", "sql"])
def test_every_snapshot_is_known_though_the_table_has_but_two(kind: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with on_disk(tmp_path) as there:
            tables: Tables = there.tables(snapshots_kept=2)
            if kind == "sql":
                tables = external_tables(
                    {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"},
                    there.objects,
                    SystemClock(),
                    CatalogLimits(snapshots_kept=2),
                    history=SnapshotHistory(there.meta, SystemClock()),
                )
            table = await tables.create(DEFINITION)
            for number in range(9):
                table = await commit(tables, table, number)
            table = await tables.move(NAME, topic_id=TOPIC_ID, expect=table.token)
            assert len(table.snapshots) == 2
            expected = [(number + 1, number + 1) for number in range(9)]
            assert await whole(there, tables) == [*expected, (10, 9)]
            head = await SnapshotHistory(there.meta, SystemClock()).head(TOPIC_ID)
            shown = [one.sequence_number for one in head.live]
            assert shown == ([9, 10] if kind == "sql" else [])
            (root,) = await there.meta.range(keys.SNAPSHOTS)
            assert json.loads(root.value) == {"format": 1, "topic": NAME.table}
            await tables.close()

    run(work)


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("at", ["history", "pointer"])
def test_no_fault_of_the_store_makes_a_gap(fault: Fault, at: str) -> None:
    async def work() -> None:
        there = memory()
        part = keys.SNAPSHOT_PAGES if at == "history" else keys.TABLES
        countdown = [0]

        def fate(kind: str, key: str) -> Fault | None:
            if kind == "key-put" and key.startswith(part):
                countdown[0] += 1
                return fault if countdown[0] % 3 == 0 else None
            return None

        tables = there.tables(Weather(fate), snapshots_kept=1)
        table = await tables.create(DEFINITION)
        made, tries = 0, 0
        while made < 20:
            tries += 1
            try:
                table = await commit(tables, table, made)
            except (Conflict, Unavailable, OutcomeUnknown):
                loaded = await tables.load(NAME)
                assert loaded is not None
                table = loaded
            made = table.vector.get(0, 0)
        assert tries >= 20
        found = await whole(there, tables)
        assert [end for _, end in found] == list(range(1, 21))
        await tables.close()

    run(work)


def test_a_commit_waits_for_its_history() -> None:
    async def work() -> None:
        there = memory()
        tables = there.tables(
            Weather(
                lambda _, key: Fault.UNAVAILABLE if key.startswith(keys.SNAPSHOT_PAGES) else None
            ),
            snapshots_kept=1,
        )
        table = await commit(tables, await tables.create(DEFINITION), 0)
        with pytest.raises(Unavailable):
            await commit(tables, table, 1)
        assert await tables.load(NAME) == table
        await tables.close()

    run(work)


def test_a_history_that_cannot_be_read_stops_no_commit(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        there = memory()
        await there.meta.put(keys.snapshot_head(TOPIC_ID), b"nonsense")
        tables = there.tables(snapshots_kept=1)
        table = await tables.create(DEFINITION)
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                table = await commit(tables, table, number)
        assert table.vector == {0: 3}
        await tables.close()

    run(work)
    assert "history_not_kept" in caplog.text


def test_rivals_lose_nothing_of_a_history_while_pages_are_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pages(monkeypatch)
    monkeypatch.setattr(history_module, "ATTEMPTS", 200)

    async def work() -> None:
        there = memory()
        lost = [0]

        def fate(kind: str, _: str) -> Fault | None:
            lost[0] += kind == "key-put"
            return Fault.LOST_REPLY if lost[0] % 5 == 0 else None

        store = FaultyMeta(there.meta, Weather(fate))
        histories = [SnapshotHistory(store, Watch()) for _ in range(4)]

        async def worker(number: int) -> None:
            for each in range(40):
                await histories[number].remember("t", TOPIC_ID, [view(each * 4 + number)])

        await asyncio.gather(*(worker(number) for number in range(4)))
        found = await everything(histories[0])
        assert {one.sequence_number for one in found} == set(range(160))
        assert (await histories[0].head(TOPIC_ID)).end > 5

    run(work)


def test_a_page_that_was_sealed_before_a_crash_is_sealed_again_with_what_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pages(monkeypatch)

    async def work() -> None:
        there = memory()
        stopped = [False]

        def fate(kind: str, key: str) -> Fault | None:
            is_head = kind == "key-put" and key == keys.snapshot_head(TOPIC_ID)
            return Fault.UNAVAILABLE if stopped[0] and is_head else None

        watch = Watch()
        history = SnapshotHistory(FaultyMeta(there.meta, Weather(fate)), watch)
        number = 0
        while True:
            stopped[0] = (await history.page(TOPIC_ID, 0)) is None and number > 2
            try:
                await history.remember("t", TOPIC_ID, [view(number)])
            except Unavailable:
                stopped[0] = False
                if await history.page(TOPIC_ID, 0) is not None:
                    break
                await history.remember("t", TOPIC_ID, [view(number)])
            number += 1
            watch.time_ms += 10
        before = await history.head(TOPIC_ID)
        assert before.end == 0
        cut_ms = before.page.facts[0].expired_ms + 1
        await history.trim(TOPIC_ID, kept_from_ms=cut_ms)
        await history.remember("t", TOPIC_ID, [view(number)])
        found = await everything(history)
        assert [one.sequence_number for one in found] == list(range(1, number + 1))
        await history.forget(TOPIC_ID)
        assert await there.meta.range("") == []

    run(work)


def test_what_is_too_old_goes_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)

    async def work() -> None:
        there = memory()
        watch = Watch()
        history = SnapshotHistory(there.meta, watch)
        for number in range(100):
            watch.time_ms = number * 10
            await history.remember("t", TOPIC_ID, [view(number)])
        before = await history.head(TOPIC_ID)
        assert before.end > 4
        deleted = await history.trim(TOPIC_ID, kept_from_ms=500)
        assert deleted == (await history.head(TOPIC_ID)).first
        left = [one.sequence_number for one in await everything(history)]
        assert set(range(50, 100)) <= set(left)
        assert len(left) < 70  # whole pages, so a few more
        assert await history.trim(TOPIC_ID, kept_from_ms=500) == 0
        await history.trim(TOPIC_ID, kept_from_ms=1 << 60)
        assert await everything(history) == []
        pages = await there.meta.range(keys.snapshot_pages(TOPIC_ID))
        assert [one.key for one in pages] == [keys.snapshot_head(TOPIC_ID)]
        await history.remember("t", TOPIC_ID, [view(100)])
        assert [one.sequence_number for one in await everything(history)] == [100]

    run(work)


def test_a_history_that_nobody_wrote_is_empty_and_can_be_trimmed_and_forgotten() -> None:
    async def work() -> None:
        history = SnapshotHistory(memory().meta, Watch())
        assert await everything(history) == []
        assert await history.trim(TOPIC_ID, kept_from_ms=1) == 0
        await history.forget(TOPIC_ID)
        assert await history.topic_ids() == []
        await history.remember("t", TOPIC_ID, [])
        assert await history.topic_ids() == []

    run(work)


def test_live_snapshots_that_do_not_fit_beside_the_page_lose_the_oldest() -> None:
    async def work() -> None:
        history = SnapshotHistory(memory().meta, Watch())
        views = []
        for number in range(4):
            noise = {one: (one * 2654435761 * (number + 1)) % (1 << 40) for one in range(100_000)}
            views.append(SnapshotView(number, number, number, "append", noise))
        await history.show_live("t", TOPIC_ID, views)
        shown = [one.sequence_number for one in (await history.head(TOPIC_ID)).live]
        assert shown
        assert shown == list(range(4))[-len(shown) :]
        assert len(shown) < 4

    run(work)
