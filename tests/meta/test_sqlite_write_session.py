"""Who renews a session while the event loop is held up, and for how long."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.topics.stepped_stores import manual_clock

from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.meta.sqlite_write import Outcome, RenewedSessions, SqliteSession, SqliteWrite
from lakelog.model.failures import Conflict, Unavailable
from lakelog.testing.conformance_meta import ManualClock

TTL_S = 0.1
KEEP_S = 1.0
STEP_S = 0.06
"""Longer than the half of a session after which the thread renews it."""
PATIENCE_S = 60.0


async def unwritten(_write: SqliteWrite) -> object:
    raise Unavailable("the file cannot be written")


def kept(clock: ManualClock, *, ttl_s: float = 3.0, keep_s: float = 10.0) -> SqliteSession:
    return SqliteSession(
        "s", clock, unwritten, ttl_s=ttl_s, keep_s=keep_s, began_s=clock.monotonic_s()
    )


def test_the_thread_waits_for_the_loop_and_then_for_the_file() -> None:
    clock = manual_clock()
    sessions = RenewedSessions(clock)
    outcomes: list[Outcome] = [Unavailable("locked"), None, None]
    assert sessions.pause_s() is None
    session = kept(clock)
    sessions.add(session)
    assert sessions.pause_s() == 1.5
    clock.advance(1.5)
    assert sessions.pause_s() == 0.0
    sessions.keep_alive(lambda _writes: [outcomes.pop(0)])
    assert session.kept_alive_s == -math.inf
    assert sessions.pause_s() == 0.375
    clock.advance(0.375)
    sessions.keep_alive(lambda _writes: [outcomes.pop(0)])
    assert session.kept_alive_s == clock.monotonic_s()
    assert sessions.pause_s() == 1.5
    sessions.keep_alive(lambda _writes: [outcomes.pop(0)])
    assert len(outcomes) == 1  # nothing was due


def test_nobody_renews_what_has_ended_or_what_its_loop_forgot() -> None:
    clock = manual_clock()
    sessions = RenewedSessions(clock)
    ended, forgotten = kept(clock), kept(clock, keep_s=2.0)
    asked: list[str] = []

    def commit(writes: Sequence[SqliteWrite]) -> list[Outcome]:
        asked.append(repr(writes))
        return [Conflict("it has ended")]

    sessions.add(ended)
    clock.advance(1.6)
    sessions.keep_alive(commit)
    assert len(asked) == 1
    assert sessions.pause_s() is None
    sessions.add(forgotten)
    clock.advance(0.4)
    assert sessions.pause_s() is None
    sessions.keep_alive(commit)
    assert len(asked) == 1


def held_up(session: SqliteSession, clock: ManualClock, seconds: float) -> None:
    """Hold the loop up for so long, on the store's clock; the thread may act meanwhile."""
    until_s = clock.monotonic_s() + seconds
    pause = threading.Event()
    for _ in range(math.ceil(seconds / STEP_S)):
        clock.advance(min(STEP_S, until_s - clock.monotonic_s()))
        for _ in range(10_000):
            if session.due_s(clock.monotonic_s()) > clock.monotonic_s():
                break
            pause.wait(0.001)
        else:
            raise AssertionError("the thread did not renew what was due")


Scenario = Callable[[SqliteMetadataStore, SqliteMetadataStore, ManualClock], Awaitable[None]]


def run(folder: Path, scenario: Scenario) -> None:
    """Run a scenario with two handles on one file."""

    async def bounded() -> None:
        clock = manual_clock()
        async with asyncio.timeout(PATIENCE_S):
            store = await SqliteMetadataStore.open(folder / "meta.db", clock)
            other = await SqliteMetadataStore.open(folder / "meta.db", clock)
            try:
                await scenario(store, other, clock)
            finally:
                await store.close()
                await other.close()

    asyncio.run(bounded())


def test_a_loop_that_is_held_up_for_longer_than_its_session_keeps_it(tmp_path: Path) -> None:
    async def scenario(
        store: SqliteMetadataStore, other: SqliteMetadataStore, clock: ManualClock
    ) -> None:
        session = await store.session(ttl_s=TTL_S, keep_s=KEEP_S)
        await store.put("k", b"v", session=session)
        held_up(session, clock, KEEP_S - 2 * STEP_S)
        assert session.kept_alive_s > clock.monotonic_s() - TTL_S
        assert await other.get("k") is not None
        await session.renew()
        held_up(session, clock, KEEP_S - 2 * STEP_S)  # the loop was there: it counts from then
        assert await other.get("k") is not None

    run(tmp_path, scenario)


def test_a_loop_that_is_held_up_for_too_long_loses_its_session(tmp_path: Path) -> None:
    async def scenario(
        store: SqliteMetadataStore, other: SqliteMetadataStore, clock: ManualClock
    ) -> None:
        session = await store.session(ttl_s=TTL_S, keep_s=KEEP_S)
        await store.put("k", b"v", session=session)
        held_up(session, clock, KEEP_S + TTL_S + STEP_S)
        assert session.kept_alive_s <= clock.monotonic_s() - TTL_S
        assert await other.get("k") is None
        with pytest.raises(Conflict):
            await session.renew()

    run(tmp_path, scenario)


def test_a_session_that_nobody_asked_to_keep_ends_as_ever(tmp_path: Path) -> None:
    async def scenario(
        store: SqliteMetadataStore, other: SqliteMetadataStore, clock: ManualClock
    ) -> None:
        session = await store.session(ttl_s=TTL_S)
        await store.put("k", b"v", session=session)
        held_up(session, clock, TTL_S + STEP_S)
        assert session.kept_alive_s == -math.inf
        assert await other.get("k") is None

    run(tmp_path, scenario)


def test_a_closed_session_is_not_kept(tmp_path: Path) -> None:
    async def scenario(
        store: SqliteMetadataStore, other: SqliteMetadataStore, clock: ManualClock
    ) -> None:
        session = await store.session(ttl_s=TTL_S, keep_s=KEEP_S)
        await store.put("k", b"v", session=session)
        await session.close()
        assert await other.get("k") is None
        assert session.due_s(clock.monotonic_s()) == math.inf

    run(tmp_path, scenario)
