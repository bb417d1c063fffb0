"""A log over memory stores, for tests: one or several brokers on the same stores."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lakelog.clock import Clock, SeededEntropy, SystemClock
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

TOPIC = TopicId(bytes(range(16)))
QUICK = LogOptions(linger_ms=1, put_retry_ms=1, put_retry_max_ms=5)
DOMAIN = DomainOptions(idle_read_s=0.02, retry_s=0.001, retry_max_s=0.01)


@dataclass
class Node:
    """One broker's part: its replica and its log."""

    replica: Replica
    log: Log

    async def close(self) -> None:
        await self.log.close(timeout_s=5)
        await self.replica.close()


class World:
    """Stores that several nodes share."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.store: MetadataStore = MemoryMetadataStore(self.clock)
        self.objects: ObjectStore = MemoryObjectStore(self.clock)
        self.nodes: list[Node] = []

    async def node(self, name: str = "broker-1", options: LogOptions = QUICK) -> Node:
        identity = Identity("c", 0, name)
        replica = Replica(identity, self.store, self.objects, self.clock, DOMAIN)
        await replica.start(found=True)
        entropy = SeededEntropy(name)
        log = Log(
            [replica],
            self.objects,
            self.clock,
            entropy,
            zone="z",
            options=options,
            metrics=MetricsRegistry(),
        )
        log.start()
        self.nodes.append(Node(replica, log))
        return self.nodes[-1]

    def soon(self, seconds: float = 5.0) -> float:
        return self.clock.monotonic_s() + seconds

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario in a world of its own, bounded in time."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            world = World()
            await scenario(world)
            await world.close()

    asyncio.run(bounded())


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
