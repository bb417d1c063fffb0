"""Single rules, watched in a small simulated cluster without chance."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.sim.clients import make_batch
from tests.sim.log_cluster import LogBroker, LogCluster, Settings

from lakelog.domain.events import Horizon
from lakelog.domain.options import DomainOptions
from lakelog.log.options import LogOptions
from lakelog.log.values import StreamRead
from lakelog.model.failures import OutcomeUnknown
from lakelog.model.ids import TopicId
from lakelog.testing.faulty import Faults
from lakelog.testing.simulation import SimLoop, simulate

T = TypeVar("T")


def run(act: Callable[[LogCluster, LogBroker], Coroutine[Any, Any, T]]) -> T:
    """One broker with one stream, on stores that only take their time."""

    async def main(loop: SimLoop) -> T:
        options = LogOptions(orphan_ttl_ms=1_000, sweep_interval_ms=10**9)
        settings = Settings(1, DomainOptions(), options, (0,))
        cluster = LogCluster(
            loop, settings, meta_faults=Faults(), object_faults=Faults(latency_s=0.2)
        )
        broker = LogBroker(cluster, 0, 1)
        broker.start()
        while not broker.ready:
            await asyncio.sleep(0.1)
        topic = TopicId(bytes(16))
        await broker.spawn(broker.log.create_streams(topic, first_partition=0, streams=[1, 2]))
        return await act(cluster, broker)

    return simulate(main, seed=5)[0]


def puts(cluster: LogCluster) -> int:
    """WAL objects that were written."""
    mutations = cluster.journal.mutations
    return sum(one.kind == "put" and one.name.startswith("wal/") for one in mutations)


def test_a_void_commit_is_never_rewritten() -> None:
    """Rule 7: its client hears that the outcome is unknown, and nothing else happens."""

    async def act(cluster: LogCluster, broker: LogBroker) -> None:
        batch = make_batch(["value"], now_ms=0, producer=-1, sequence=-1)
        request = broker.spawn(broker.produce(1, batch))
        await asyncio.sleep(0.02)  # its object is on its way
        future = Horizon(broker.clock.now_ms() + 60_000)
        await broker.spawn(submitted(broker, future))
        await asyncio.wait([request])
        assert isinstance(request.exception(), OutcomeUnknown)
        await asyncio.sleep(30)
        assert puts(cluster) == 1
        assert cluster.auditor.heads()[1] == (0, 0)

    run(act)


async def submitted(broker: LogBroker, event: Horizon) -> None:
    await broker.replica.submit(event)


def test_an_object_that_could_not_be_put_for_long_gets_a_new_id() -> None:
    """Rule 18: an id older than half its life that was never appended is replaced."""

    async def act(cluster: LogCluster, broker: LogBroker) -> None:
        cluster.object_faults.outage_until_s = cluster.loop.time() + 1.4
        batch = make_batch(["value"], now_ms=0, producer=-1, sequence=-1)
        request = broker.spawn(broker.produce(1, batch))
        await asyncio.sleep(0.9)
        await broker.spawn(submitted(broker, Horizon(broker.clock.now_ms() - 50)))
        await asyncio.wait([request])
        await asyncio.sleep(10)
        assert cluster.auditor.heads()[1] == (0, 1)

    run(act)


def test_one_budget_serves_all_streams_of_a_read_and_the_first_batch_comes_anyway() -> None:
    """A budget of each stream's own would let a request of many streams grow without limit."""

    async def act(_: LogCluster, broker: LogBroker) -> None:
        batch = make_batch(["value"], now_ms=0, producer=-1, sequence=-1)
        for stream in (1, 2, 1, 2):
            await broker.spawn(broker.produce(stream, batch))
        size_bytes = len(batch.data)
        wanted = [StreamRead(stream, 0, 10 * size_bytes) for stream in (1, 2)]
        for budget, expected in ((1, [1, 0]), (size_bytes, [1, 0]), (3 * size_bytes, [2, 1])):
            got = await broker.spawn(
                broker.log.read(wanted, bytes_max=budget, deadline_s=float("inf"))
            )
            assert [one.size_bytes // size_bytes for one in got] == expected

    run(act)
