"""A whole broker over memory stores: the real log, the real topics, the real cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from tests.log.world import DOMAIN, QUICK

from lakelog.broker.call import Answer, Broker, BrokerOptions, Call, Later
from lakelog.broker.fetch_sessions import FetchSessions
from lakelog.broker.loop_turn import LoopTurn
from lakelog.clock import Clock, SeededEntropy, SystemClock
from lakelog.coordinator.coordinator import GroupCoordinator
from lakelog.coordinator.options import GroupOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.log.log import Log
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import MetadataStore
from lakelog.model.ids import BrokerId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.server.adapters import (
    KnownTopics,
    LiveBrokers,
    broker_configs,
    group_configs,
)
from lakelog.telemetry import MetricsRegistry
from lakelog.topics.cluster import Cluster, open_cluster
from lakelog.topics.registry import Topics
from lakelog.topics.routing import BrokerNode

QUICK_GROUPS = GroupOptions(initial_rebalance_delay_ms=0)

ResultT = TypeVar("ResultT")


class Stores:
    """What several brokers share."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.metadata: MetadataStore = MemoryMetadataStore(self.clock)
        self.objects: ObjectStore = MemoryObjectStore(self.clock)


@asynccontextmanager
async def whole_broker(
    stores: Stores, node_id: int = 1, *, domains: int = 1
) -> AsyncIterator[Broker]:
    """A broker that serves until the block ends."""
    clock, entropy, metrics = stores.clock, SeededEntropy(f"broker-{node_id}"), MetricsRegistry()
    record = await open_cluster(stores.metadata, entropy, domains=domains)
    replicas = []
    for domain in range(domains):
        identity = Identity(record.cluster_id, domain, f"broker-{node_id}")
        replica = Replica(identity, stores.metadata, stores.objects, clock, DOMAIN)
        await replica.start(found=True)
        replicas.append(replica)
    log = Log(replicas, stores.objects, clock, entropy, zone="z", options=QUICK, metrics=metrics)
    log.start()
    cluster = Cluster(stores.metadata, clock, entropy, record)
    await cluster.register(BrokerNode(BrokerId(node_id), "127.0.0.1", 9092 + node_id))
    topics = Topics(stores.metadata, log, clock, entropy)
    configs = group_configs(stores.metadata, clock, QUICK_GROUPS)
    groups = GroupCoordinator(
        replicas,
        LiveBrokers(cluster, BrokerId(node_id)),
        KnownTopics(topics),
        clock,
        entropy,
        QUICK_GROUPS,
        metrics,
        configs,
    )
    groups.start()
    try:
        yield Broker(
            node_id=BrokerId(node_id),
            cluster=cluster,
            topics=topics,
            groups=groups,
            group_configs=configs,
            broker_configs=broker_configs(stores.metadata, BrokerId(node_id), topics, configs),
            log=log,
            clock=clock,
            entropy=entropy,
            metrics=metrics,
            options=BrokerOptions(),
            fetch_sessions=FetchSessions(entropy),
            loop_turn=LoopTurn(clock),
        )
    finally:
        await groups.close()
        await cluster.leave()
        await log.close(timeout_s=5)
        for replica in replicas:
            await replica.close()


def call(broker: Broker, version: int) -> Call:
    """A request of that version that came just now."""
    return Call(
        version=version,
        client_id="test",
        client_host="127.0.0.1",
        server_host="127.0.0.1",
        server_port=9092,
        connection=1,
        arrived_s=broker.clock.monotonic_s(),
        request_bytes=100,
    )


async def finish(answer: Answer | Later) -> Answer:
    """What a session does with what a handler returns."""
    if not isinstance(answer, Later):
        return answer
    done = await answer.work
    return done if answer.finish is None else answer.finish(done)


def run(scenario: Callable[[Stores], Awaitable[ResultT]], stores: Stores | None = None) -> ResultT:
    """Run a scenario on stores of its own, bounded in time."""

    async def bounded() -> ResultT:
        async with asyncio.timeout(30):
            return await scenario(stores or Stores())

    return asyncio.run(bounded())
