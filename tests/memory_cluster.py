"""A cluster over memory stores, in real time: the stores, and the nodes that share them.

Every test that needs a real replica or a real log without faults builds it here: whole brokers
(`tests.broker.whole`), pipelines (`tests.pipeline.pipeline_place`) and readers stand on it. A
test may bring a clock or stores of its own. Virtual time and faults are those of
`tests.simulated_cluster`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lakelog.clock import Clock, Entropy, SeededEntropy, SystemClock
from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.log.log import Log
from lakelog.log.options import LogOptions
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import MetadataStore
from lakelog.model.ids import TopicId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.records.acceptance import AcceptedBatch, BatchRules, inspect
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.telemetry import MetricsRegistry

ResultT = TypeVar("ResultT")

CLUSTER_ID = "c"
TOPIC = TopicId(bytes(range(16)))
QUICK = LogOptions(linger_ms=1, put_retry_ms=1, put_retry_max_ms=5)
DOMAIN = DomainOptions(idle_read_s=0.02, retry_s=0.001, retry_max_s=0.01)


@dataclass
class MemoryNode:
    """One broker's part: a replica of each domain, and the log on them."""

    replicas: list[Replica]
    log: Log
    metrics: MetricsRegistry

    @property
    def replica(self) -> Replica:
        """The replica of the only domain."""
        (replica,) = self.replicas
        return replica

    async def close(self) -> None:
        await self.log.close(timeout_s=5)
        for replica in self.replicas:
            await replica.close()


class MemoryCluster:
    """Stores that several nodes share."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        metadata: MetadataStore | None = None,
        objects: ObjectStore | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.metadata: MetadataStore = metadata or MemoryMetadataStore(self.clock)
        self.objects: ObjectStore = objects or MemoryObjectStore(self.clock)
        self.nodes: list[MemoryNode] = []

    def replica(
        self,
        name: str = "broker-1",
        options: DomainOptions = DOMAIN,
        *,
        cluster_id: str = CLUSTER_ID,
        domain: int = 0,
    ) -> Replica:
        """A replica of that broker, which was not started."""
        identity = Identity(cluster_id, domain, name)
        return Replica(identity, self.metadata, self.objects, self.clock, options)

    def log(
        self,
        replicas: Sequence[Replica],
        entropy: Entropy,
        options: LogOptions = QUICK,
        *,
        metrics: MetricsRegistry | None = None,
    ) -> Log:
        """A log on these replicas, which was not started: nothing is swept or trimmed."""
        metrics = metrics or MetricsRegistry()
        return Log(
            replicas,
            self.objects,
            self.clock,
            entropy,
            zone="z",
            options=options,
            metrics=metrics,
        )

    async def node(
        self,
        name: str = "broker-1",
        options: LogOptions = QUICK,
        *,
        domain_options: DomainOptions = DOMAIN,
        domains: int = 1,
        cluster_id: str = CLUSTER_ID,
        entropy: Entropy | None = None,
    ) -> MemoryNode:
        """A node that serves until it is closed."""
        replicas = []
        for domain in range(domains):
            replica = self.replica(name, domain_options, cluster_id=cluster_id, domain=domain)
            await replica.start(found=True)
            replicas.append(replica)
        metrics = MetricsRegistry()
        log = self.log(replicas, entropy or SeededEntropy(name), options, metrics=metrics)
        log.start()
        self.nodes.append(MemoryNode(replicas, log, metrics))
        return self.nodes[-1]

    def soon(self, seconds: float = 5.0) -> float:
        return self.clock.monotonic_s() + seconds

    async def close_node(self, node: MemoryNode) -> None:
        """Close this one before the others."""
        self.nodes.remove(node)
        await node.close()

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


def run(
    scenario: Callable[[MemoryCluster], Awaitable[ResultT]], cluster: MemoryCluster | None = None
) -> ResultT:
    """Run a scenario in a cluster of its own, bounded in time."""

    async def bounded() -> ResultT:
        async with asyncio.timeout(30):
            made = cluster or MemoryCluster()
            result = await scenario(made)
            await made.close()
            return result

    return asyncio.run(bounded())


def batch(
    *values: bytes, timestamp_ms: int = 1000, options: BatchOptions | None = None
) -> AcceptedBatch:
    """A batch of these values, a millisecond apart, as the broker accepts it."""
    records = [
        Record(timestamp_ms=timestamp_ms + number, key=b"k", value=value, headers=())
        for number, value in enumerate(values)
    ]
    data = memoryview(build_batch(records, options or BatchOptions()))
    accepted = inspect(data, BatchRules(now_ms=timestamp_ms + 1_000_000, produce_version=9))
    assert isinstance(accepted, AcceptedBatch), accepted
    return accepted
