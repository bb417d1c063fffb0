"""One request as a handler sees it: the broker, who asks, and the ways to answer.

A connection's requests are handed to their handlers in the order they came; the next one starts
when the handler before it has returned. A handler whose answer takes time returns `Later` as soon
as the request has its place in the log, so that requests overlap while their order holds. Answers
leave in the order of the requests, whatever finishes first (row 97).

What the group APIs share: who asks, how an answer is awaited, how much a request may name. What the
admin APIs share: a request's time (`Deadline`), and one item's failure that stays its own.

`Broker` is everything that handlers may use, and nothing else.

Of the cluster's brokers a client is told which ones there are, and at which address
(`shown_nodes`). Without an advertised address a client is told the address it reached us by,
because that one works for it. The same host is then right for the other brokers on this machine
too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from lakelog.broker.errors import Attempt, failure_code
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.model.ids import BrokerId
from lakelog.topics.failures import TopicFailure
from lakelog.wire.apis import ApiKey

if TYPE_CHECKING:
    import asyncio

    from lakelog.broker.fetch_sessions import FetchSessions
    from lakelog.broker.loop_turn import LoopTurn
    from lakelog.broker.offset_commit_template import CommitTemplateTable
    from lakelog.clock import Clock, Entropy
    from lakelog.coordinator.coordinator import GroupCoordinator
    from lakelog.log.log import Log
    from lakelog.telemetry import MetricsRegistry
    from lakelog.topics.broker_configs import BrokerConfigs
    from lakelog.topics.cluster import Cluster
    from lakelog.topics.group_configs import GroupConfigs
    from lakelog.topics.registry import Topics
    from lakelog.topics.routing import BrokerNode, RoutingView


class Call(Struct, frozen=True, gc=False):
    """Where a request came from, and when."""

    version: int
    client_id: str | None
    client_host: str
    server_host: str  # the address the client reached us by: what it can reach us by again
    server_port: int
    connection: int  # a number that no other connection of this process has
    arrived_s: float  # on the monotonic clock, when the request's last byte came
    request_bytes: int


class Later(Struct, frozen=True):
    """The answer will be `finish(await work)`; the connection's next request may begin."""

    work: "asyncio.Future[Any] | Coroutine[Any, Any, Any]"
    finish: Callable[[Any], "Answer"] | None = None


class NoAnswer:
    """The request gets no answer: Produce with acks=0 that went well."""


class EncodedAnswer(Struct, frozen=True, gc=False):
    """An answer whose bytes are known, without its header."""

    body: bytes


class CloseConnection(Exception):  # noqa: N818 - it says what the session does
    """The protocol's answer to this request is to close the connection."""


Answer: TypeAlias = Struct | NoAnswer

Handler: TypeAlias = Callable[..., Coroutine[Any, Any, Answer | Later]]
"""`handle(broker, call, request)`; each takes the request of its own API."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An API that is served, as the module of its handler names it in `API`."""

    key: ApiKey
    versions: range
    handler: Handler
    offered: Callable[["BrokerOptions"], bool] = lambda _options: True
    """Whether clients are told of it."""
    undecoded: "Callable[[Broker, Call, memoryview], Answer | Later | None] | None" = None
    """Takes a request by its bytes; None where it has to be decoded for its handler."""


NAMED_MAX: Final = 25_000
"""The most groups or members of one request: each costs an answer, and two megabytes of a hostile
request can name a million."""

Result = TypeVar("Result")


def check_named(named: Sized) -> None:
    """Close the connection of a client that names more groups or members than one request may."""
    if len(named) > NAMED_MAX:
        raise CloseConnection(f"{len(named)} names in one request; at most {NAMED_MAX}")


def client_id(call: Call) -> str:
    """The client's id as members are shown with it; a null one is the empty one."""
    return call.client_id or ""


def client_host(call: Call) -> str:
    """The client's address in the form that Kafka shows it (row 75)."""
    return f"/{call.client_host}"


def answered(work: "asyncio.Future[Result]", finish: Callable[[Result], Answer]) -> Answer | Later:
    """The answer `finish(await work)`: at once if the work is done, else later.

    What the coordinator was asked has its place in the log by now, so the connection's next
    request may begin (K11).
    """
    return finish(work.result()) if work.done() else Later(work, finish)


TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 120_000
TIMEOUT_MS: Final = 30_000
"""For requests that name no time-out themselves."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a client is told instead of a result."""

    code: ErrorCode
    message: str | None


class Deadline:
    """The time that a request may take, measured from when it came."""

    def __init__(self, broker: "Broker", call: Call, timeout_ms: int = TIMEOUT_MS) -> None:
        self._clock = broker.clock
        bounded_ms = min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        self._end_s = call.arrived_s + bounded_ms / 1000

    async def attempt(self, work: Callable[[], Awaitable[Result]]) -> Result | Fault:
        """The result of the work, or the fault to answer when it failed or the time was over."""
        left_s = self._end_s - self._clock.monotonic_s()
        if left_s <= 0:
            return Fault(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        try:
            async with asyncio.timeout(left_s):
                return await work()
        except TimeoutError:
            return Fault(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.")
        except TopicFailure as failure:
            return Fault(failure.code, str(failure))
        except Failure as failure:
            code = failure_code(failure, Attempt.ADMINISTERING)
            return Fault(code, f"The cluster's store did not answer as it must: {failure}")


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """What an operator may choose about how requests are answered."""

    auto_create_topics: bool = True
    """Whether asking for an unknown topic may make it (auto.create.topics.enable)."""
    num_partitions: int = 1
    """Of a topic that is made without saying how many (num.partitions)."""
    default_replication_factor: int = 1
    """What a topic is said to have when nobody asked for another (default.replication.factor)."""
    idempotence: bool = True
    """Whether idempotent producers are served (D1)."""

    def __post_init__(self) -> None:
        if self.num_partitions < 1:
            raise ValueError("num_partitions must be greater than 0")
        if not 1 <= self.default_replication_factor <= 32_767:
            raise ValueError("default_replication_factor must be between 1 and 32767")


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker of a cluster."""

    node_id: BrokerId
    cluster: "Cluster"
    topics: "Topics"
    groups: "GroupCoordinator"
    group_configs: "GroupConfigs"
    broker_configs: "BrokerConfigs"
    log: "Log"
    clock: "Clock"
    entropy: "Entropy"
    metrics: "MetricsRegistry"
    options: BrokerOptions
    fetch_sessions: "FetchSessions"
    loop_turn: "LoopTurn"
    offset_commit_templates: "CommitTemplateTable"


NO_OPERATIONS: Final = -2_147_483_648
"""Authorised operations that were not asked for."""

TOPIC_OPERATIONS: Final = 3576
CLUSTER_OPERATIONS: Final = 8096
"""Bit fields of AclOperation codes: everything is allowed."""


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A broker as a client is told of it."""

    id: int
    host: str
    port: int
    rack: str | None


def shown_nodes(broker: "Broker", call: Call, view: "RoutingView") -> list[ShownNode]:
    """The brokers of a client's view, by id."""
    own = next((node for node in broker.cluster.nodes() if node.id == broker.node_id), None)
    return [_shown(node, call, own) for node in view.nodes]


def _shown(node: "BrokerNode", call: Call, own: "BrokerNode | None") -> ShownNode:
    host, port = node.host, node.port
    if not node.advertised and own is not None:
        if node.id == own.id:
            host, port = call.server_host, call.server_port
        elif node.machine and node.machine == own.machine:
            host = call.server_host
    return ShownNode(node.id, host, port, node.rack)


def controller(broker: "Broker", view: "RoutingView") -> int:
    """Whom a client shall send its admin requests to: us, as we surely live, if it sees us."""
    ids = [int(node.id) for node in view.nodes]
    return broker.node_id if broker.node_id in ids else ids[0]
