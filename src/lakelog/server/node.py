"""A whole broker, put together from its stores and options. It names no backend.

Order of a start: the port is taken (so that a second broker here is noticed first), the cluster is
found or founded, the domains are loaded, the broker becomes known to the others, and only then
clients are accepted. A stop goes the other way: no new clients, parked fetches answered, what was
accepted is committed and answered, then everything is let go.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from lakelog.broker.api import dispatch
from lakelog.broker.call import Answer, Broker, BrokerOptions, Call, Later
from lakelog.broker.fetch_sessions import FetchSessions
from lakelog.broker.loop_turn import LoopTurn
from lakelog.broker.offset_commit_template import CommitTemplateTable
from lakelog.broker.produce_rows import ProduceRows
from lakelog.catalog.pointers import TableCreation
from lakelog.clock import Clock, Entropy, Tasks, agreed_now_ms
from lakelog.coordinator.coordinator import GroupCoordinator
from lakelog.coordinator.options import GroupOptions
from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Identity, Replica
from lakelog.index.gather import describe
from lakelog.log.log import Log
from lakelog.log.options import CLOCK_HINT, LogOptions
from lakelog.meta import keys
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Failure, NotFound, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.objects.port import ObjectStore, probe
from lakelog.records import kernels
from lakelog.server.adapters import (
    InstrumentedObjects,
    KnownTopics,
    LiveBrokers,
    broker_configs,
    group_configs,
)
from lakelog.server.listener import Listener
from lakelog.server.options import Address, ServerOptions
from lakelog.telemetry import MetricsRegistry, event
from lakelog.topics.changes import OrphanStreams, policies
from lakelog.topics.cluster import Cluster, open_cluster
from lakelog.topics.registry import Topics
from lakelog.topics.routing import BrokerNode as ClusterNode
from lakelog.topics.settings import TopicDefaults
from lakelog.topics.tables import TableOptions, TableReconciler

CLOCK: Final = "clock"
"""The part that is no reason to send clients elsewhere: just nothing old is deleted."""

CLOSE_S: Final = 10.0
"""How long the last commit and the good-byes to the stores may take."""

log = logging.getLogger("lakelog.server")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What a broker is told, section by section."""

    listen: Address
    broker_id: int = 1
    advertised: Address | None = None
    zone: str = ""
    machine: str = ""  # brokers with the same one run on the same machine
    domains: int | None = None  # None: as many as the cluster has
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
    log: LogOptions = field(default_factory=LogOptions)
    domain: DomainOptions = field(default_factory=DomainOptions)
    topics: TopicDefaults = field(default_factory=TopicDefaults)
    groups: GroupOptions = field(default_factory=GroupOptions)
    http: Address | None = None  # where the HTTP port is, if there is one
    tables: TableOptions = field(default_factory=TableOptions)


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """What a broker gets from outside: its stores, time and chance."""

    store: MetadataStore
    objects: ObjectStore
    clock: Clock
    entropy: Entropy


class Node:
    """One broker of a cluster, from its port down to its stores; the stores are the caller's."""

    def __init__(self, world: NodeEnvironment, options: NodeOptions) -> None:
        self.metrics = MetricsRegistry()
        self.draining = False
        self.serving = False
        self.address = options.listen
        self._world = world
        self._options = options
        self._objects = InstrumentedObjects(world.objects, self.metrics)
        self._tasks = Tasks()
        self._replicas: list[Replica] = []
        self._log: Log | None = None
        self._broker: Broker | None = None
        self._cluster: Cluster | None = None
        self._listener = Listener(
            self._dispatch, clock=world.clock, metrics=self.metrics, options=options.server
        )

    async def start(self) -> None:
        """Begin to serve; raises `Refused` when that must not be."""
        world, options = self._world, self._options
        self.address = self._listener.bind(options.listen)
        fresh = await world.store.get(keys.CLUSTER) is None
        if fresh:
            await probe(self._objects, world.entropy)
        record = await open_cluster(world.store, world.entropy, domains=options.domains)
        if not fresh:
            await probe(self._objects, world.entropy)
        found = fresh or await self._is_untouched()
        # Before the first record under our name: it would fence whoever has the name by right.
        self._cluster = Cluster(world.store, world.clock, world.entropy, record)
        await self._cluster.claim(self._own_node())
        self._tasks.spawn(self._cluster.run(), name="cluster")
        writer = writer_name(BrokerId(options.broker_id))
        for domain in range(record.domains):
            identity = Identity(record.cluster_id, domain, writer)
            replica = Replica(identity, world.store, self._objects, world.clock, options.domain)
            replica.holds_name = self._holds_name
            replica.doubt_name = self._cluster.doubt
            position = self.metrics.position.labels(str(domain))
            position.set_function(functools.partial(_position, replica))
            self._replicas.append(replica)
        loading = asyncio.gather(*(replica.start(found=found) for replica in self._replicas))
        await self._unless_failed(loading)
        self._log = Log(
            self._replicas,
            self._objects,
            world.clock,
            world.entropy,
            zone=options.zone or "default",
            options=options.log,
            metrics=self.metrics,
        )
        self._log.writes.registered = self._registered
        self._broker = self._assemble(self._cluster, self._log)
        await self._open(self._broker)

    def _assemble(self, cluster: Cluster, own_log: Log) -> Broker:
        """Everything that answers requests, put together; nothing of it runs yet."""
        world, options = self._world, self._options
        own_id = BrokerId(options.broker_id)
        topics = Topics(world.store, own_log, world.clock, world.entropy, options.topics)
        configs = group_configs(world.store, world.clock, options.groups)
        groups = GroupCoordinator(
            self._replicas,
            LiveBrokers(cluster, own_id),
            KnownTopics(topics),
            world.clock,
            world.entropy,
            options.groups,
            self.metrics,
            configs,
        )
        groups.expire_offsets_if(self._is_clock_right)
        groups.registered = self._registered
        return Broker(
            node_id=own_id,
            cluster=cluster,
            topics=topics,
            groups=groups,
            group_configs=configs,
            broker_configs=broker_configs(world.store, own_id, topics, configs),
            log=own_log,
            clock=world.clock,
            entropy=world.entropy,
            metrics=self.metrics,
            options=options.broker,
            fetch_sessions=FetchSessions(world.entropy),
            loop_turn=LoopTurn(world.clock),
            offset_commit_templates=CommitTemplateTable(),
        )

    async def _open(self, broker: Broker) -> None:
        """Become known, accept clients, and keep house."""
        await broker.broker_configs.current()
        await broker.topics.current()
        await broker.group_configs.current()
        await broker.cluster.register(self._own_node())
        broker.log.start()
        broker.groups.start()
        if self._options.server.produce_rows:
            self._listener.take_rows(ProduceRows(broker))
        await self._listener.serve()
        self.serving = True
        broker.log.start_retention(
            functools.partial(policies, broker.topics, broker.broker_configs)
        )
        self._tasks.spawn(broker.topics.run(), name="topics")
        orphans = OrphanStreams(self._world.store, broker.log, self._world.clock)
        self._tasks.spawn(orphans.run(), name="orphan streams")
        self._tasks.spawn(broker.group_configs.run(), name="group configs")
        self._tasks.spawn(broker.broker_configs.run(), name="broker configs")
        if self._options.tables.enabled:
            self._tasks.spawn(self._table_reconciler(broker).run(), name="tables")
        for watched in (self._listener.failed, broker.log.failed, broker.groups.failed):
            self._tasks.spawn(watched(), name="watch")
        for replica in self._replicas:
            self._tasks.spawn(replica.failed(), name="watch")
        if kernels.native is None:
            # Nothing is wrong, only slower: the twins in Python read a record in microseconds.
            event(log, "kernels_missing", logging.WARNING, reason=kernels.missing_because)
        event(log, "serving", broker=broker.node_id, listen=str(self.address))

    def _table_reconciler(self, broker: Broker) -> TableReconciler:
        world = self._world
        return TableReconciler(
            broker.topics,
            world.store,
            TableCreation(world.store, self._objects, world.clock, world.entropy),
            cluster_id=broker.cluster.cluster_id,
            namespace=self._options.tables.namespace,
        )

    @property
    def broker(self) -> Broker:
        """What answers requests; `Unavailable` before the start is done."""
        if self._broker is None:
            raise Unavailable("the broker is starting")
        return self._broker

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    async def _unless_failed(self, work: "asyncio.Future[Any]") -> None:
        """Wait for the work, or raise what makes it pointless: our id was taken meanwhile."""
        watching = Tasks()
        failed = watching.spawn(self._tasks.failed(), name="watch")
        await asyncio.wait([work, failed], return_when=asyncio.FIRST_COMPLETED)
        if not failed.done():
            await watching.close()
            await work
            return
        work.cancel()
        failed.result()

    async def drain(self) -> None:
        """Accept nobody, answer what was asked (parked fetches with what there is), close."""
        self.draining = True
        if self._broker is not None:
            self._broker.fetch_sessions.draining = True
            self._broker.groups.drain()
            self._broker.log.wake_all()
        await self._listener.drain()

    async def close(self) -> None:
        """Commit what was accepted, say good-bye to the others, stop everything."""
        self.draining = True
        self.serving = False
        await self._listener.close()
        if self._broker is not None:
            await self._broker.groups.close()
        if self._log is not None:
            await self._log.close(timeout_s=CLOSE_S)
        if self._cluster is not None:
            try:
                await asyncio.wait_for(self._cluster.leave(), CLOSE_S)
            except (TimeoutError, Failure) as reason:
                # The session ends by itself; the others just hear of it later.
                event(log, "good_bye_failed", logging.WARNING, reason=repr(reason))
        await asyncio.gather(*(replica.close() for replica in self._replicas))
        await self._tasks.close()

    def checks(self) -> dict[str, Callable[[], str | None]]:
        """What can be wrong with this broker, by the part that it is wrong with."""
        return {
            "broker": self._broker_trouble,
            "metadata": self._metadata_trouble,
            "objects": lambda: self._objects.trouble,
            CLOCK: self._clock_trouble,
        }

    async def index_of(self, topic_name: str, partition: int) -> list[dict[str, object]]:
        """The offset index of a partition as keys and entries; raises `NotFound`."""
        broker = self.broker
        topic = await broker.topics.find(topic_name)
        if topic is None:
            raise NotFound(f"there is no topic {topic_name!r}")
        stream = topic.stream(partition)
        if stream is None:
            raise NotFound(f"{topic_name} has no partition {partition}")
        now_s = self._world.clock.monotonic_s()
        await broker.log.prove([stream], arrived_s=now_s, deadline_s=now_s + CLOSE_S)
        return describe(stream, broker.log.domain_of(stream), broker.log.pieces(stream))

    def _holds_name(self) -> bool:
        """Whether our session lives, so that no other broker may have our id."""
        cluster = self._cluster
        return cluster is not None and self._world.clock.monotonic_s() < cluster.alive_until_s

    async def _registered(self) -> list[str]:
        """The names under which the brokers that have a session write."""
        assert self._cluster is not None, "the log comes after the cluster"
        return [writer_name(broker) for broker in await self._cluster.registered()]

    async def _is_clock_right(self) -> bool:
        """Rule 20: what is deleted by age is deleted only by a clock that is the store's."""
        skew_max_ms = self._options.log.clock_skew_max_ms
        skew_ms, clock = self._objects.clock_skew_ms, self._world.clock
        return await agreed_now_ms(clock, skew_ms, skew_max_ms=skew_max_ms) is not None

    def _broker_trouble(self) -> str | None:
        if self.draining:
            return "the broker is stopping"
        return None if self.serving else "the broker is starting"

    def _metadata_trouble(self) -> str | None:
        for replica in self._replicas:
            try:
                replica.check_fresh()
            except Unavailable as reason:
                return str(reason)
        return None

    def _clock_trouble(self) -> str | None:
        """As of the last look of whoever deletes what is old."""
        skew_ms = self._objects.skew_ms
        if abs(skew_ms) <= self._options.log.clock_skew_max_ms:
            return None
        direction = "ahead" if skew_ms < 0 else "behind"
        return (
            f"the clock is {abs(skew_ms) // 1000} s {direction}, so what is old stays: {CLOCK_HINT}"
        )

    def _dispatch(
        self, key: int, call: Call, body: memoryview
    ) -> Coroutine[Any, Any, Answer | Later]:
        assert self._broker is not None, "clients are accepted when the broker is there"
        return dispatch(self._broker, key, call, body)

    async def _is_untouched(self) -> bool:
        """Whether nothing was ever created here, so that an empty log is no loss.

        A first broker that died between founding the cluster and its log leaves just that behind.
        """
        store = self._world.store
        return await store.get(keys.NEXT_STREAM) is None and not await store.range(keys.TOPICS)

    def _own_node(self) -> ClusterNode:
        options = self._options
        shown = options.advertised or self.address
        return ClusterNode(
            id=BrokerId(options.broker_id),
            host=shown.host,
            port=shown.port,
            rack=options.zone or None,
            machine=options.machine,
            advertised=options.advertised is not None,
            http="" if options.http is None else str(self._reachable(options.http)),
        )

    def _reachable(self, listening: Address) -> Address:
        """The address by which another machine finds a port that may listen on every interface."""
        if not listening.is_every_interface():
            return listening
        kafka = self._options.advertised or self.address
        here = self._options.machine or "127.0.0.1"
        return Address(here if kafka.is_every_interface() else kafka.host, listening.port)


def writer_name(broker: BrokerId) -> str:
    """The name under which a broker writes to the domain logs."""
    return f"broker-{broker}"


def _position(replica: Replica) -> float:
    return float(replica.state.position)
