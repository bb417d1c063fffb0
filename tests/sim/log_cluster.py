"""A simulated cluster that serves a log, and an auditor who sees everything."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tests.sim.audit import Auditor
from tests.simulated_cluster import SimulatedBroker, SimulatedCluster

from lakelog.domain.options import DomainOptions
from lakelog.log.log import Log
from lakelog.log.options import LogOptions
from lakelog.log.values import Appended, Fetched, ReadStatus, StreamRead
from lakelog.model.failures import Unavailable
from lakelog.records.acceptance import AcceptedBatch
from lakelog.telemetry import MetricsRegistry
from lakelog.testing.faulty import Faults
from lakelog.testing.invariants import History
from lakelog.testing.simulation import SimLoop

REQUEST_S = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a seed draws for the whole run."""

    brokers: int
    domain: DomainOptions
    log: LogOptions
    skews_ms: tuple[int, ...]


class LogCluster(SimulatedCluster):
    """Brokers that append and read, what clients saw of it, and what the stores had to bear."""

    def __init__(
        self, loop: SimLoop, settings: Settings, *, meta_faults: Faults, object_faults: Faults
    ) -> None:
        super().__init__(loop, "simulated-cluster")
        self.settings = settings
        self.meta_faults = meta_faults
        self.object_faults = object_faults
        self.auditor = Auditor(
            self.journal,
            checkpoint_records=settings.domain.checkpoint_records,
            grace_ms=settings.log.grace_ms,
        )
        self.history = History()
        self.brokers: list[LogBroker] = []

    async def inventory(self) -> dict[str, int]:
        """What the object store really holds."""
        return {info.key: info.size_bytes async for info in self.objects.list("")}

    def running(self) -> list["LogBroker"]:
        return [broker for broker in self.brokers if broker.running]


class LogBroker(SimulatedBroker):
    """One life of a broker process: its stores as it sees them, a replica, a log."""

    def __init__(self, cluster: LogCluster, number: int, life: int) -> None:
        name, settings = f"broker-{number}.{life}", cluster.settings
        dice = cluster.loop.dice(name)
        start_s, skew_ms = dice.between(0, 1000), settings.skews_ms[number]
        super().__init__(cluster, number, name, start_s=start_s, skew_ms=skew_ms)
        metadata = self.metadata_store(cluster.meta_faults)
        objects = self.object_store(cluster.object_faults)
        (self.replica,) = self.replicas_of(metadata, objects, settings.domain, 1)
        self.log = Log(
            [self.replica],
            objects,
            self.clock,
            dice.entropy,
            zone="here",
            options=settings.log,
            metrics=MetricsRegistry(),
        )

    async def produce(self, stream: int, batch: AcceptedBatch) -> Appended:
        """Append one batch."""
        deadline_s = self.clock.monotonic_s() + REQUEST_S
        await self.log.room(len(batch.data), deadline_s=deadline_s)
        return await self.log.append([stream], [batch], deadline_s=deadline_s)

    async def fetch(self, stream: int, offset: int) -> tuple[Fetched, bool]:
        """Read from an offset on; an answer without data is proved current first (rule 16)."""
        arrived_s = self.clock.monotonic_s()
        deadline_s = arrived_s + REQUEST_S
        self.log.check_fresh(stream)
        wanted = [StreamRead(stream, offset, 4096)]
        (got,) = await self.log.read(wanted, bytes_max=4096, deadline_s=deadline_s)
        if got.status is ReadStatus.OK and got.size_bytes:
            return got, False
        await self.log.prove([stream], arrived_s=arrived_s, deadline_s=deadline_s)
        (got,) = await self.log.read(wanted, bytes_max=4096, deadline_s=deadline_s)
        return got, True

    async def marks(self, stream: int) -> tuple[int, int]:
        """Log start and head, proved current: what ListOffsets answers."""
        arrived_s = self.clock.monotonic_s()
        await self.log.prove([stream], arrived_s=arrived_s, deadline_s=arrived_s + REQUEST_S)
        facts = self.log.facts(stream)
        if facts is None:
            raise Unavailable("no such stream")
        return facts.log_start, facts.head

    async def begin(self) -> Sequence[asyncio.Task[None]]:
        await self.replica.start(found=True)
        self.log.start()
        self.ready = True
        self._cluster.loop.note(self.name, "serves", self.replica.state.position)
        return [self.spawn(self.replica.failed()), self.spawn(self.log.failed())]
