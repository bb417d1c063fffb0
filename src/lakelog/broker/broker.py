"""The broker as its handlers see it, and the brokers of the cluster as one client sees them.

`Broker` is everything that handlers may use, and nothing else.

Of the cluster's brokers a client is told which ones there are, and at which address
(`shown_nodes`). Without an advertised address a client is told the address it reached us by,
because that one works for it. The same host is then right for the other brokers on this machine
too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call
from lakelog.model.ids import BrokerId

if TYPE_CHECKING:
    from lakelog.broker.fetch_sessions import FetchSessions
    from lakelog.broker.loop_turn import LoopTurn
    from lakelog.clock import Clock, Entropy
    from lakelog.coordinator.coordinator import Coordinator
    from lakelog.log.log import Log
    from lakelog.telemetry import Metrics
    from lakelog.topics.broker_configs import BrokerConfigs
    from lakelog.topics.cluster import Cluster
    from lakelog.topics.group_configs import GroupConfigs
    from lakelog.topics.registry import Topics
    from lakelog.topics.routing import BrokerNode, RoutingView


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
    groups: "Coordinator"
    group_configs: "GroupConfigs"
    broker_configs: "BrokerConfigs"
    log: "Log"
    clock: "Clock"
    entropy: "Entropy"
    metrics: "Metrics"
    options: BrokerOptions
    fetch_sessions: "FetchSessions"
    loop_turn: "LoopTurn"


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
