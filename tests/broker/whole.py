"""A whole broker over memory stores: the real log, the real topics, the real cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.memory_cluster import MemoryCluster

from lakelog.broker.call import Answer, Broker, BrokerOptions, Call, Later
from lakelog.broker.fetch_sessions import FetchSessions
from lakelog.broker.loop_turn import LoopTurn
from lakelog.broker.offset_commit_template import CommitTemplateTable
from lakelog.clock import SeededEntropy
from lakelog.coordinator.coordinator import GroupCoordinator
from lakelog.coordinator.options import GroupOptions
from lakelog.model.ids import BrokerId
from lakelog.server.adapters import (
    KnownTopics,
    LiveBrokers,
    broker_configs,
    group_configs,
)
from lakelog.topics.cluster import Cluster, open_cluster
from lakelog.topics.registry import Topics
from lakelog.topics.routing import BrokerNode

QUICK_GROUPS = GroupOptions(initial_rebalance_delay_ms=0)


@asynccontextmanager
async def whole_broker(
    cluster: MemoryCluster, node_id: int = 1, *, domains: int = 1
) -> AsyncIterator[Broker]:
    """A broker that serves until the block ends."""
    clock, metadata, name = cluster.clock, cluster.metadata, f"broker-{node_id}"
    entropy = SeededEntropy(name)
    record = await open_cluster(metadata, entropy, domains=domains)
    node = await cluster.node(name, domains=domains, cluster_id=record.cluster_id, entropy=entropy)
    membership = Cluster(metadata, clock, entropy, record)
    await membership.register(BrokerNode(BrokerId(node_id), "127.0.0.1", 9092 + node_id))
    topics = Topics(metadata, node.log, clock, entropy)
    configs = group_configs(metadata, clock, QUICK_GROUPS)
    groups = GroupCoordinator(
        node.replicas,
        LiveBrokers(membership, BrokerId(node_id)),
        KnownTopics(topics),
        clock,
        entropy,
        QUICK_GROUPS,
        node.metrics,
        configs,
    )
    groups.start()
    try:
        yield Broker(
            node_id=BrokerId(node_id),
            cluster=membership,
            topics=topics,
            groups=groups,
            group_configs=configs,
            broker_configs=broker_configs(metadata, BrokerId(node_id), topics, configs),
            log=node.log,
            clock=clock,
            entropy=entropy,
            metrics=node.metrics,
            options=BrokerOptions(),
            fetch_sessions=FetchSessions(entropy),
            loop_turn=LoopTurn(clock),
            offset_commit_templates=CommitTemplateTable(),
        )
    finally:
        await groups.close()
        await membership.leave()
        await cluster.close_node(node)


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
