"""The brokers of the cluster as one client sees them: which ones, and at which address.

Without an advertised address a client is told the address it reached us by, because that one works
for it. The same host is then right for the other brokers on this machine too.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakelog.broker.call import Call

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker
    from lakelog.topics.routing import BrokerNode, RoutingView

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
