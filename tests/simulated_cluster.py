"""A simulated cluster: stores in memory, and processes that reach them over links that fail.

Time is virtual, and a seed decides everything that happens by chance. Every simulation stands on
it: that of the log (`tests.sim.log_cluster`), of groups (`tests.sim.group_cluster`), of pipelines
(`tests.sim.pipeline_worker`) and of coordinators (`tests.coordinator.coordinator_cluster`). What a
seed means depends on the names of processes and dice and on the order in which they are made:
whoever changes them has other runs for the seeds that are kept. Real time and stores that never
fail are those of `tests.memory_cluster`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Failure
from lakelog.model.ids import TopicId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.testing.faulty import (
    Faults,
    FaultyLink,
    FaultyMetadataStore,
    FaultyObjectStore,
    Journal,
)
from lakelog.testing.simulation import Process, SimClock, SimEntropy, SimLoop

T = TypeVar("T")
LinkT = TypeVar("LinkT", bound=FaultyLink)


class SimulatedCluster:
    """The stores as they are in truth, and the journal of everything that was written to them."""

    def __init__(self, loop: SimLoop, cluster_id: str) -> None:
        self.loop = loop
        self.cluster_id = cluster_id
        self.clock = SimClock(loop)
        """True time, which is also that of the stores."""
        self.journal = Journal()
        self.metadata = MemoryMetadataStore(self.clock)
        self.objects = MemoryObjectStore(self.clock)
        self.reached: set[str] = set()
        """The states that this run came to, of those that some run must come to."""


class SimulatedProcess:
    """One life of a process: its clock, and its links to the stores."""

    _cluster: SimulatedCluster

    def __init__(
        self, cluster: SimulatedCluster, name: str, *, start_s: float = 0.0, skew_ms: int = 0
    ) -> None:
        self.name = name
        self.process = Process(name)
        self.clock = SimClock(cluster.loop, start_s=start_s, skew_ms=skew_ms)
        self.died: BaseException | None = None
        self._cluster = cluster

    def link_of(
        self, kind: type[LinkT], to: str, faults: Faults, dice: SimEntropy | None = None
    ) -> LinkT:
        """A link of that kind; it throws dice of its own."""
        loop = self._cluster.loop
        dice = dice or loop.dice(f"{self.name}/{to}")
        return kind(loop, self.process, dice, faults, self._cluster.journal)

    def link(self, to: str, faults: Faults, dice: SimEntropy | None = None) -> FaultyLink:
        return self.link_of(FaultyLink, to, faults, dice)

    def metadata_store(self, faults: Faults, dice: SimEntropy | None = None) -> FaultyMetadataStore:
        """The metadata store as this process sees it."""
        return FaultyMetadataStore(self.link("meta", faults, dice), self._cluster.metadata)

    def object_store(self, faults: Faults) -> FaultyObjectStore:
        """The object store as this process sees it."""
        cluster = self._cluster
        link = self.link("objects", faults)
        return FaultyObjectStore(link, cluster.objects, own=self.clock, theirs=cluster.clock)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Have the process do this, as if asked over a connection."""
        name = f"request at {self.name}"
        request = self._cluster.loop.spawn(work, process=self.process, name=name)
        request.add_done_callback(_forget)
        return request


class SimulatedBroker(SimulatedProcess, ABC):
    """One life of a broker: it loads, serves, and ends with the first of its parts that fails."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, name: str, *, start_s: float, skew_ms: int
    ) -> None:
        super().__init__(cluster, name, start_s=start_s, skew_ms=skew_ms)
        self.number = number
        self.ready = False

    @property
    def running(self) -> bool:
        """Whether clients find it."""
        return self.ready and not self.process.dead

    def replicas_of(
        self, metadata: MetadataStore, objects: ObjectStore, options: DomainOptions, domains: int
    ) -> list[Replica]:
        """A replica of each domain; all lives of a broker write under one name."""
        cluster_id, writer = self._cluster.cluster_id, f"broker-{self.number}"
        made = []
        for domain in range(domains):
            identity = Identity(cluster_id, domain, writer)
            made.append(Replica(identity, metadata, objects, self.clock, options))
            made[-1].on_reload.append(self._reloaded)
        return made

    def start(self) -> None:
        """Begin to live; `ready` says when it serves."""
        self._cluster.loop.spawn(self._live(), process=self.process, name=self.name)

    @abstractmethod
    async def begin(self) -> "Sequence[asyncio.Task[None]]":
        """Load and serve; the broker ends when the first of these tasks does."""

    async def _live(self) -> None:
        try:
            parts = await self.begin()
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            self.died = next(iter(done)).exception()
        except Failure as error:
            self.died = error
        self.ready = False
        self._cluster.loop.note(self.name, "died", repr(self.died))

    def _reloaded(self) -> None:
        if self.ready:
            self._cluster.reached.add("a living replica reloaded")


class TopicBook:
    """The topics as a broker knows them: names, ids and how many partitions there are."""

    def __init__(self, table: Mapping[str, tuple[TopicId, int]] | None = None) -> None:
        self._table = table or {}
        self._callbacks: list[Callable[[], None]] = []

    def topics(self) -> Mapping[str, tuple[TopicId, int]]:
        return self._table

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def set(self, table: Mapping[str, tuple[TopicId, int]]) -> None:
        self._table = table
        for callback in self._callbacks:
            callback()


def _forget(request: "asyncio.Task[Any]") -> None:
    """Whoever asked may have gone away; then nobody reads the answer."""
    if not request.cancelled():
        request.exception()
