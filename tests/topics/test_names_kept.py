"""Who may write under a broker's name: sessions that end, doubts, and another that took the id."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.topics.stepped_stores import manual_clock
from tests.topics.test_cluster import SharedStore, node, now_s, run

from lakelog.clock import SeededEntropy
from lakelog.meta import keys
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.failures import Refused
from lakelog.testing.conformance_meta import ManualClock
from lakelog.topics.cluster import (
    LOOP_STALL_S_MAX,
    RENEW_S,
    SESSION_TTL_S,
    Cluster,
    open_cluster,
)


def test_a_running_broker_never_takes_the_one_that_took_its_id_for_dead() -> None:
    """They may share a name of a machine and a port, as two containers can."""

    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        await second.register(node(1))  # it takes the first one for its own past
        renewing = asyncio.get_running_loop().create_task(second.run())
        held = await shared.store.get(keys.broker(1))
        with pytest.raises(Refused, match="broker id 1 is in use"):
            await first.run()
        assert await shared.store.get(keys.broker(1)) == held
        renewing.cancel()

    run(scenario)


def test_a_doubted_name_counts_again_once_it_was_claimed_anew() -> None:
    async def scenario(shared: SharedStore) -> None:
        cluster = await shared.cluster()
        await cluster.register(node(1, machine=""))
        held = await shared.store.get(keys.broker(1))
        assert cluster.alive_until_s > now_s()
        cluster.doubt()
        assert cluster.alive_until_s < now_s() + 0.001
        await cluster.refresh()
        assert cluster.alive_until_s < now_s() + 0.001  # that the key stands is not enough
        renewing = asyncio.get_running_loop().create_task(cluster.run())
        await asyncio.sleep(RENEW_S + 0.1)
        assert cluster.alive_until_s > now_s()
        claimed = await shared.store.get(keys.broker(1))
        assert held is not None
        assert claimed is not None
        assert claimed.version > held.version
        renewing.cancel()

    run(scenario)


def test_a_doubted_name_that_another_has_ends_the_broker() -> None:
    async def scenario(shared: SharedStore) -> None:
        first, second = await shared.cluster(), await shared.cluster()
        await first.register(node(1))
        await asyncio.sleep(SESSION_TTL_S + 1)
        await second.register(node(1, 9092, "m2"))
        renewing = asyncio.get_running_loop().create_task(second.run())
        first.doubt()
        with pytest.raises(Refused, match="machine 'm2'"):
            await first.run()
        renewing.cancel()

    run(scenario)


class Mark:
    """A write that tells the thread which waits for it that it was done."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def run(self, _connection: sqlite3.Connection) -> None:
        self.done.set()


def hold_up(store: SqliteMetadataStore, clock: ManualClock, seconds: float) -> None:
    """What a handler that computes does to the loop: time passes, and only threads go on."""
    for _ in range(round(seconds)):
        clock.advance(1.0)
        write = Mark()
        store._writes.submit(write)  # the thread is not asleep, whatever the real clock says
        assert write.done.wait(60)


@pytest.mark.parametrize("stall_s", [LOOP_STALL_S_MAX - 2, LOOP_STALL_S_MAX + SESSION_TTL_S + 1])
def test_a_broker_whose_loop_is_held_up_keeps_its_name_for_a_while(
    tmp_path: Path, stall_s: float
) -> None:
    """K6: what it believes of its session is what others see of it."""

    async def scenario() -> None:
        clock = manual_clock()
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", clock)
        other = await SqliteMetadataStore.open(tmp_path / "meta.db", clock)
        entropy = SeededEntropy("x")
        cluster = Cluster(store, clock, entropy, await open_cluster(store, entropy))
        await cluster.register(node(1))
        hold_up(store, clock, stall_s)
        is_kept = stall_s < LOOP_STALL_S_MAX
        assert (cluster.alive_until_s > clock.monotonic_s()) is is_kept
        assert (await other.get(keys.broker(1)) is not None) is is_kept
        await cluster._renew(node(1))
        assert cluster.alive_until_s == clock.monotonic_s() + SESSION_TTL_S
        assert await other.get(keys.broker(1)) is not None
        await store.close()
        await other.close()

    asyncio.run(scenario())
