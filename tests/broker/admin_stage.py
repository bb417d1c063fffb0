"""A stage for the admin APIs: one or two brokers on stores in memory."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import Struct
from tests.broker.memory_groups import MemoryGroups
from tests.topics.stepped_stores import (
    LoopClock,
    MemoryStreams,
    SteppedStore,
    SteppedStreams,
    Steps,
    run_virtual,
)

from lakelog.broker.api import dispatch
from lakelog.broker.call import Answer, Broker, BrokerOptions, Call, Later
from lakelog.broker.fetch_sessions import FetchSessions
from lakelog.broker.loop_turn import LoopTurn
from lakelog.broker.offset_commit_template import CommitTemplateTable
from lakelog.clock import SeededEntropy
from lakelog.coordinator.options import GroupOptions
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.ids import BrokerId
from lakelog.server.adapters import broker_configs, group_configs
from lakelog.streams.table import StreamFacts
from lakelog.telemetry import MetricsRegistry
from lakelog.topics.cluster import Cluster, open_cluster
from lakelog.topics.registry import Topics
from lakelog.topics.routing import BrokerNode
from lakelog.topics.settings import TopicDefaults
from lakelog.wire.apis import APIS
from lakelog.wire.codec import encode

if TYPE_CHECKING:
    from lakelog.coordinator.coordinator import GroupCoordinator
    from lakelog.log.log import Log

Response = TypeVar("Response", bound=Struct)


class AdminLog(SteppedStreams):
    """As much of a log as the admin APIs ask for."""

    url = "memory:///lake"

    def __init__(self, streams: MemoryStreams, steps: Steps) -> None:
        super().__init__(streams, steps)
        self.sizes: dict[int, int] = {}

    def facts(self, stream: int) -> StreamFacts | None:
        found = self._streams.alive.get(stream)
        if found is None:
            return None
        return StreamFacts(stream, found[0], found[1], 0, 0, self.sizes.get(stream, 0))


@dataclass
class AdminStage:
    """What the brokers share."""

    clock: LoopClock = field(default_factory=LoopClock)
    streams: MemoryStreams = field(default_factory=MemoryStreams)
    defaults: TopicDefaults = field(default_factory=TopicDefaults)
    options: BrokerOptions = field(default_factory=BrokerOptions)
    groups: GroupOptions = field(default_factory=GroupOptions)

    def __post_init__(self) -> None:
        self.store = MemoryMetadataStore(self.clock)

    async def broker(self, number: int = 1, node: BrokerNode | None = None) -> "Scene":
        steps = Steps()
        store = SteppedStore(self.store.another(), steps)
        entropy = SeededEntropy(f"broker {number}")
        log = AdminLog(self.streams, steps)
        cluster = Cluster(store, self.clock, entropy, await open_cluster(store, entropy))
        identity = BrokerId(number)
        await cluster.register(
            node or BrokerNode(identity, "broker.test", 9092, None, f"m{number}", advertised=False)
        )
        topics = Topics(store, log, self.clock, entropy, self.defaults)
        await topics.refresh()
        configs = group_configs(store, self.clock, self.groups)
        broker = Broker(
            node_id=identity,
            cluster=cluster,
            topics=topics,
            groups=cast("GroupCoordinator", MemoryGroups(domains=cluster.domains)),
            group_configs=configs,
            broker_configs=broker_configs(store, identity, topics, configs),
            log=cast("Log", log),
            clock=self.clock,
            entropy=entropy,
            metrics=MetricsRegistry(),
            options=self.options,
            fetch_sessions=FetchSessions(entropy),
            loop_turn=LoopTurn(self.clock),
            offset_commit_templates=CommitTemplateTable(),
        )
        return Scene(broker, log, steps)


@dataclass
class Scene:
    """A broker, and a client that talks to it."""

    broker: Broker
    log: AdminLog
    steps: Steps
    client_id: str | None = "test"

    def call(self, version: int) -> Call:
        return Call(
            version=version,
            client_id=self.client_id,
            client_host="127.0.0.2",
            server_host="127.0.0.1",
            server_port=19092,
            connection=1,
            arrived_s=self.broker.clock.monotonic_s(),
            request_bytes=100,
        )

    async def ask(self, request: Struct, kind: type[Response], version: int) -> Response:
        """The answer to a request, through its bytes; it must fit its version."""
        (api,) = (api for api in APIS.values() if api.request is type(request))
        body = memoryview(b"".join(encode(request, version)))
        answer = await self.ask_bytes(api.key, version, body)
        assert isinstance(answer, kind)
        encode(answer, version)
        return answer

    async def ask_bytes(self, key: int, version: int, body: memoryview) -> Answer:
        found = await dispatch(self.broker, key, self.call(version), body)
        assert not isinstance(found, Later)
        return found

    def as_client(self, client_id: str | None) -> "Scene":
        return replace(self, client_id=client_id)

    def size(self, topic: str, partition: int, size_bytes: int) -> None:
        found = self.broker.topics.cached(topic)
        assert found is not None
        stream = found.stream(partition)
        assert stream is not None
        self.log.sizes[stream] = size_bytes


def run(scenario: Callable[[AdminStage], Awaitable[None]], stage: AdminStage | None = None) -> None:
    """Run a scenario in virtual time."""

    async def played() -> None:
        await scenario(stage or AdminStage())

    run_virtual(played())
