"""The simulated world: stores, the brokers that share them, and an auditor who sees everything."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.sim.audit import Auditor

from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.log.log import Log
from lakelog.log.options import LogOptions
from lakelog.log.values import Appended, Fetched, ReadStatus, StreamRead
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Failure, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.records.acceptance import AcceptedBatch
from lakelog.telemetry import MetricsRegistry
from lakelog.testing.faulty import (
    Faults,
    FaultyLink,
    FaultyMetadataStore,
    FaultyObjectStore,
    Journal,
)
from lakelog.testing.invariants import History
from lakelog.testing.simulation import Process, SimClock, SimLoop

T = TypeVar("T")
CLUSTER = "simulated-cluster"
REQUEST_S = 2.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What a seed draws for the whole run."""

    brokers: int
    domain: DomainOptions
    log: LogOptions
    skews_ms: tuple[int, ...]


@dataclass(slots=True)
class World:
    """Everything there is."""

    loop: SimLoop
    settings: Settings
    meta_faults: Faults
    object_faults: Faults
    clock: SimClock
    journal: Journal
    meta: MemoryMetadataStore
    objects: MemoryObjectStore
    auditor: Auditor
    history: History = field(default_factory=History)
    brokers: list["Broker"] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)

    @classmethod
    def make(
        cls, loop: SimLoop, settings: Settings, *, meta_faults: Faults, object_faults: Faults
    ) -> "World":
        clock = SimClock(loop)
        journal = Journal()
        auditor = Auditor(
            journal,
            checkpoint_records=settings.domain.checkpoint_records,
            grace_ms=settings.log.grace_ms,
        )
        return cls(
            loop=loop,
            settings=settings,
            meta_faults=meta_faults,
            object_faults=object_faults,
            clock=clock,
            journal=journal,
            meta=MemoryMetadataStore(clock),
            objects=MemoryObjectStore(clock),
            auditor=auditor,
        )

    async def inventory(self) -> dict[str, int]:
        """What the object store really holds."""
        return {info.key: info.size_bytes async for info in self.objects.list("")}

    def running(self) -> list["Broker"]:
        return [one for one in self.brokers if one.ready and not one.process.dead]


class Broker:
    """One life of a broker process: its stores as it sees them, a replica, a log."""

    def __init__(self, world: World, number: int, life: int) -> None:
        self.number = number
        self.name = f"broker-{number}.{life}"
        self.process = Process(self.name)
        self.ready = False
        self.died: BaseException | None = None
        self._world = world
        dice = world.loop.dice(self.name)
        skew_ms = world.settings.skews_ms[number]
        self.clock = SimClock(world.loop, start_s=dice.between(0, 1000), skew_ms=skew_ms)
        meta_link = FaultyLink(
            world.loop,
            self.process,
            world.loop.dice(f"{self.name}/meta"),
            world.meta_faults,
            world.journal,
        )
        object_link = FaultyLink(
            world.loop,
            self.process,
            world.loop.dice(f"{self.name}/objects"),
            world.object_faults,
            world.journal,
        )
        store = FaultyMetadataStore(meta_link, world.meta)
        objects = FaultyObjectStore(object_link, world.objects, own=self.clock, theirs=world.clock)
        identity = Identity(CLUSTER, 0, f"broker-{number}")
        self.replica = Replica(identity, store, objects, self.clock, world.settings.domain)
        self.replica.on_reload.append(self._reloaded)
        self.log = Log(
            [self.replica],
            objects,
            self.clock,
            dice.entropy,
            zone="here",
            options=world.settings.log,
            metrics=MetricsRegistry(),
        )

    def start(self) -> None:
        """Begin to live; `ready` says when it serves."""
        self._world.loop.spawn(self._live(), process=self.process, name=self.name)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have the broker do this, as if asked over a connection."""
        name = f"request at {self.name}"
        request = self._world.loop.spawn(work, process=self.process, name=name)
        request.add_done_callback(_forget)
        return request

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

    async def _live(self) -> None:
        try:
            await self.replica.start(found=True)
            self.log.start()
            self.ready = True
            self._world.loop.note(self.name, "serves", self.replica.state.position)
            failures = [self.spawn(self.replica.failed()), self.spawn(self.log.failed())]
            done, _ = await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
            self.died = next(iter(done)).exception()
        except Failure as error:
            self.died = error
        self.ready = False
        self._world.loop.note(self.name, "died", repr(self.died))

    def _reloaded(self) -> None:
        if self.ready:
            self._world.reached.add("a living replica reloaded")


def _forget(request: "asyncio.Task[Any]") -> None:
    """Whoever asked may have gone away; then nobody reads the answer."""
    if not request.cancelled():
        request.exception()
