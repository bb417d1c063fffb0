"""Who may write under a broker's name: sessions that end, doubts, and another that took the id."""

import asyncio

import pytest
from tests.topics.test_cluster import Stage, node, now_s, run

from lakelog.meta import keys
from lakelog.model.failures import Refused
from lakelog.topics.cluster import RENEW_S, SESSION_TTL_S


def test_a_running_broker_never_takes_the_one_that_took_its_id_for_dead() -> None:
    """They may share a name of a machine and a port, as two containers can."""

    async def scenario(stage: Stage) -> None:
        first, second = await stage.cluster(), await stage.cluster()
        await first.register(node(1))
        await second.register(node(1))  # it takes the first one for its own past
        renewing = asyncio.get_running_loop().create_task(second.run())
        held = await stage.store.get(keys.broker(1))
        with pytest.raises(Refused, match="broker id 1 is in use"):
            await first.run()
        assert await stage.store.get(keys.broker(1)) == held
        renewing.cancel()

    run(scenario)


def test_a_doubted_name_counts_again_once_it_was_claimed_anew() -> None:
    async def scenario(stage: Stage) -> None:
        cluster = await stage.cluster()
        await cluster.register(node(1, machine=""))
        held = await stage.store.get(keys.broker(1))
        assert cluster.alive_until_s > now_s()
        cluster.doubt()
        assert cluster.alive_until_s < now_s() + 0.001
        await cluster.refresh()
        assert cluster.alive_until_s < now_s() + 0.001  # that the key stands is not enough
        renewing = asyncio.get_running_loop().create_task(cluster.run())
        await asyncio.sleep(RENEW_S + 0.1)
        assert cluster.alive_until_s > now_s()
        claimed = await stage.store.get(keys.broker(1))
        assert held is not None
        assert claimed is not None
        assert claimed.version > held.version
        renewing.cancel()

    run(scenario)


def test_a_doubted_name_that_another_has_ends_the_broker() -> None:
    async def scenario(stage: Stage) -> None:
        first, second = await stage.cluster(), await stage.cluster()
        await first.register(node(1))
        await asyncio.sleep(SESSION_TTL_S + 1)
        await second.register(node(1, 9092, "m2"))
        renewing = asyncio.get_running_loop().create_task(second.run())
        first.doubt()
        with pytest.raises(Refused, match="machine 'm2'"):
            await first.run()
        renewing.cancel()

    run(scenario)
