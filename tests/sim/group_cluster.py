"""A simulated cluster that serves groups: brokers with sessions, replicas and coordinators."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.sim.group_audit import GroupAuditor
from tests.simulated_cluster import SimulatedBroker, SimulatedCluster, TopicBook

from lakelog.coordinator.coordinator import GroupCoordinator
from lakelog.coordinator.options import GroupOptions
from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Replica
from lakelog.groups.state import CommittedOffset, Group
from lakelog.groups.table import domain_index
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import MetadataLog
from lakelog.model.ids import BrokerId, TopicId
from lakelog.server.adapters import LiveBrokers
from lakelog.telemetry import MetricsRegistry
from lakelog.testing.faulty import (
    CallOutcome,
    Faults,
    FaultyLink,
    FaultyLog,
    FaultyMetadataStore,
)
from lakelog.testing.group_history import GroupHistory, Place
from lakelog.testing.simulation import SimLoop
from lakelog.topics.cluster import Cluster, ClusterRecord
from lakelog.topics.routing import BrokerNode

T = TypeVar("T")
CLOCK_SKEW_MAX_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a seed draws for the whole run."""

    brokers: int
    domains: int
    domain: DomainOptions
    options: GroupOptions
    skews_ms: tuple[int, ...]
    session_ms: int
    """Of classic members; what those of consumer groups have is an option."""
    rebalance_ms: int
    client_timeout_s: float
    is_calm: bool
    """The stores never fail: then nobody who speaks up in time may be expelled."""


class Topics:
    """The topics that there are, in truth; brokers hear of changes after a while."""

    def __init__(self) -> None:
        self.table: dict[str, tuple[TopicId, int]] = {}

    def put(self, name: str, partitions: int) -> None:
        """Make the topic, or let it grow."""
        known = self.table.get(name)
        topic = known[0] if known else TopicId(name.encode().ljust(16, b"."))
        self.table = {**self.table, name: (topic, partitions)}

    def places(self, names: tuple[str, ...]) -> frozenset[Place]:
        """All partitions of these topics."""
        return frozenset(
            (bytes(self.table[name][0]), partition)
            for name in names
            for partition in range(self.table[name][1])
        )


class GroupCluster(SimulatedCluster):
    """Brokers that coordinate groups, the topics, and what members saw."""

    def __init__(
        self, loop: SimLoop, settings: GroupSettings, *, meta_faults: Faults, object_faults: Faults
    ) -> None:
        super().__init__(loop, "simulated-groups")
        self.settings = settings
        self.meta_faults = [replace(meta_faults) for _ in range(settings.brokers)]
        """One for each broker: some can be cut off while others are not."""
        self.object_faults = object_faults
        self.auditor = GroupAuditor(
            self.journal,
            domains=settings.domains,
            checkpoint_records=settings.domain.checkpoint_records,
        )
        self.topics = Topics()
        self.history = GroupHistory()
        self.brokers: list[GroupBroker] = []
        self.violations: list[str] = []
        self.assigned_from: dict[str, frozenset[Place]] = {}
        """By classic group: the partitions that its last leader gave away."""
        self.loses_replies = 0.0
        """How often a client's connection breaks before it has its answer."""

    def running(self) -> list["GroupBroker"]:
        return [broker for broker in self.brokers if broker.running]

    def group(self, group_id: str) -> Group | None:
        """The group as the log has it at this moment."""
        return self.auditor.group(group_id)

    def change_topic(self, name: str, partitions: int) -> None:
        """Change a topic; each broker hears of it in its own time."""
        self.topics.put(name, partitions)
        for broker in self.running():
            broker.learn_topics()


@dataclass(slots=True)
class Lag:
    """What is wrong with a broker's way to the store that it can still read."""

    until_s: float = 0.0
    """Appends are held up until then …"""
    most_s: float = 5.0
    """… for so long at most."""
    mute_until_s: float = 0.0
    """Nothing can be written until then, the session cannot be renewed."""


class _SlowLog(FaultyLog):
    """A log that a broker reads well and writes to slowly."""

    def __init__(self, link: FaultyLink, inner: MetadataLog, name: str, lag: Lag) -> None:
        super().__init__(link, inner, name)
        self._lag = lag

    async def append(self, record: bytes) -> int:
        """Add a record and return its position, after a while."""
        if self._link.loop.time() < self._lag.until_s:
            await asyncio.sleep(self._link.dice.between(0.0, self._lag.most_s))
        return await super().append(record)


class _SlowStore(FaultyMetadataStore):
    """The store of such a broker."""

    def __init__(self, link: FaultyLink, inner: MemoryMetadataStore, lag: Lag) -> None:
        super().__init__(link, inner)
        self._lag = lag

    def log(self, name: str) -> FaultyLog:
        """The log of that name."""
        return _SlowLog(self._link, self._inner.log(name), name, self._lag)


class _MutedLink(FaultyLink):
    """A link that loses whatever is to be written, at times."""

    lag: Lag = Lag()

    def _fate(self, *, write: bool) -> CallOutcome:
        fate = super()._fate(write=write)
        is_mute = write and self.loop.time() < self.lag.mute_until_s
        return CallOutcome.LOST_REQUEST if is_mute else fate


class GroupBroker(SimulatedBroker):
    """One life of a broker process."""

    _cluster: GroupCluster

    def __init__(self, cluster: GroupCluster, number: int, life: int, *, machine: str) -> None:
        name, settings = f"broker-{number}.{life}", cluster.settings
        self._dice = cluster.loop.dice(name)
        start_s, skew_ms = self._dice.between(0, 100_000), settings.skews_ms[number]
        super().__init__(cluster, number, name, start_s=start_s, skew_ms=skew_ms)
        self.gone: asyncio.Future[None] = cluster.loop.create_future()
        """Done when whoever is connected to it hears that it is dead."""
        self.unwell_s = -1.0
        """When it was stopped last."""
        self._node = BrokerNode(BrokerId(number), "host", 9000 + number, None, machine)
        self.lag = Lag()
        link = self.link_of(_MutedLink, "meta", cluster.meta_faults[number])
        link.lag = self.lag
        store = _SlowStore(link, cluster.metadata, self.lag)
        self._objects = self.object_store(cluster.object_faults)
        record = ClusterRecord(1, cluster.cluster_id, settings.domains)
        self.membership = Cluster(store, self.clock, self._dice.entropy, record)
        self.replicas = self.replicas_of(store, self._objects, settings.domain, settings.domains)
        for replica in self.replicas:
            replica.holds_name = self.holds_name
            replica.doubt_name = self.membership.doubt
        self.book = TopicBook(cluster.topics.table)
        self.coordinator = self._make_coordinator()

    def _make_coordinator(self) -> GroupCoordinator:
        made = GroupCoordinator(
            self.replicas,
            LiveBrokers(self.membership, BrokerId(self.number)),
            self.book,
            self.clock,
            self._cluster.loop.dice(f"{self.name}/ids").entropy,
            self._cluster.settings.options,
            MetricsRegistry(),
        )
        made.expire_offsets_if(self._is_clock_right)
        return made

    def ask(self, act: Callable[["GroupBroker"], Awaitable[T]]) -> "asyncio.Task[T]":
        """A request; what it queues is queued when the broker reads it."""

        async def work() -> T:
            return await act(self)

        return self.spawn(work())

    async def offsets(self, group_id: str) -> Mapping[Place, CommittedOffset]:
        """What OffsetFetch would show; raises `Unavailable`."""
        await self.coordinator.prove(group_id, arrived_s=self.clock.monotonic_s())
        return dict(self.coordinator.table(group_id).offsets.get(group_id, {}))

    def replica_of(self, group_id: str) -> Replica:
        return self.replicas[domain_index(group_id, len(self.replicas))]

    def learn_topics(self) -> None:
        """Hear of the topics as they are now, some time later."""
        delay_s = self._dice.waiting_s(0.5)

        async def learn() -> None:
            await asyncio.sleep(delay_s)
            self.book.set(self._cluster.topics.table)

        self.spawn(learn())

    async def leave(self) -> None:
        """A stop in good order."""
        self.coordinator.drain()
        await asyncio.sleep(0.1)
        self.ready = False
        await self.coordinator.close()
        await self.membership.leave()
        for replica in self.replicas:
            await replica.close()

    async def begin(self) -> "Sequence[asyncio.Task[None]]":
        """What a broker does at its start, in the order of `server.node`."""
        await self.membership.claim(self._node)
        keeping = self.spawn(self.membership.run())
        starting = self.spawn(self._load())
        await asyncio.wait([keeping, starting], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            keeping.result()
        starting.result()
        self.ready = True
        self._cluster.loop.note(self.name, "serves")
        watched = [keeping, self.spawn(self.coordinator.failed())]
        return [*watched, *(self.spawn(replica.failed()) for replica in self.replicas)]

    async def _load(self) -> None:
        await asyncio.gather(*(replica.start(found=True) for replica in self.replicas))
        await self.membership.register(self._node)
        self.book.set(self._cluster.topics.table)
        self.coordinator.start()

    def holds_name(self) -> bool:
        """Whether its session lives for certain."""
        return self.clock.monotonic_s() < self.membership.alive_until_s

    async def _is_clock_right(self) -> bool:
        return abs(await self._objects.clock_skew_ms()) <= CLOCK_SKEW_MAX_MS
