"""A stage for the group APIs: a coordinator in memory, topics, and clients that send bytes."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from msgspec import Struct
from tests.broker.data_stage import KnownTopics, SetClock
from tests.broker.memory_groups import MemoryGroups

from lakelog.broker.api import dispatch
from lakelog.broker.call import Answer, Broker, Call, EncodedAnswer, Later
from lakelog.broker.loop_turn import LoopTurn
from lakelog.broker.offset_commit_template import CommitTemplateTable
from lakelog.model.ids import BrokerId, TopicId
from lakelog.topics.routing import BrokerNode, RoutingView, views, zone_of
from lakelog.topics.settings import settings
from lakelog.topics.topic import StreamSpan, Topic
from lakelog.wire.apis import APIS
from lakelog.wire.codec import decode, encode

Response = TypeVar("Response", bound=Struct)
Result = TypeVar("Result")


class FixedCluster:
    """The brokers of a cluster, as all of them see it."""

    def __init__(self, *nodes: BrokerNode, domains: int = 1) -> None:
        self.domains = domains
        self._nodes = nodes
        self._views = views(nodes)

    def nodes(self) -> tuple[BrokerNode, ...]:
        return self._nodes

    def view(self, client_id: str | None) -> RoutingView:
        return self._views.get(zone_of(client_id)) or self._views[None]


LONE = BrokerNode(BrokerId(1), "a.test", 9092)


@dataclass
class GroupStage:
    """All that a handler of groups needs, in memory; `broker` is what handlers get."""

    cluster: FixedCluster = field(default_factory=lambda: FixedCluster(LONE))
    node_id: BrokerId = LONE.id
    topics: KnownTopics = field(default_factory=KnownTopics)
    clock: SetClock = field(default_factory=SetClock)
    client_id: str | None = "probe"
    groups: MemoryGroups = field(init=False)
    loop_turn: LoopTurn = field(init=False)
    offset_commit_templates: CommitTemplateTable = field(default_factory=CommitTemplateTable)

    def __post_init__(self) -> None:
        self.groups = MemoryGroups(domains=self.cluster.domains)
        self.loop_turn = LoopTurn(self.clock)

    @property
    def broker(self) -> Broker:
        return cast("Broker", self)

    def as_client(self, client_id: str | None) -> "GroupStage":
        """The same broker, talking to another client."""
        other = replace(self, client_id=client_id)
        other.groups = self.groups
        return other

    def topic(self, name: str, partitions: int = 1, *, made: int = 1) -> Topic:
        """Make a topic; made again, it has another id."""
        identity = TopicId(f"{name}/{made}".encode().ljust(16, b"\1")[:16])
        topic = Topic(name, identity, (StreamSpan(0, 1, partitions),), 1, {}, settings({}))
        self.topics.by_name[name] = topic
        self.groups.topics[name] = (identity, partitions)
        return topic

    def call(self, version: int, request_bytes: int = 100) -> Call:
        return Call(
            version=version,
            client_id=self.client_id,
            client_host="127.0.0.2",
            server_host="127.0.0.1",
            server_port=9092,
            connection=1,
            arrived_s=self.clock.monotonic,
            request_bytes=request_bytes,
        )

    async def begin(self, request: Struct, version: int) -> Answer | Later:
        """Hand a request's bytes to its handler, as a session does."""
        (api,) = (api for api in APIS.values() if api.request is type(request))
        body = memoryview(b"".join(encode(request, version)))
        call = self.call(version, request_bytes=len(body))
        return await dispatch(self.broker, api.key, call, body)

    async def ask(self, request: Struct, kind: type[Response], version: int) -> Response:
        """The answer to a request as its bytes tell it; it must be there by now."""
        return told(await settled(await self.begin(request, version)), kind, version)


def told(answer: Answer, kind: type[Response], version: int) -> Response:
    """What the bytes of an answer say."""
    if isinstance(answer, EncodedAnswer):
        return decode(kind, version, memoryview(answer.body))[0]
    assert isinstance(answer, kind)
    found, _ = decode(kind, version, memoryview(b"".join(encode(answer, version))))
    return found


async def settled(answer: Answer | Later) -> Answer:
    """What a session makes of what a handler returns, which nothing may hold up any more."""
    if not isinstance(answer, Later):
        return answer
    assert answer.finish is not None
    async with asyncio.timeout(1):
        return answer.finish(await answer.work)


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    """Run a scenario on a loop of its own."""
    return asyncio.run(scenario)
