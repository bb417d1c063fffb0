"""Who is there, on any Kafka: nodes that find each other and share partitions by a group.

Who does what:

- `kafka.KafkaDiscovery` is what users hold (`port.Discovery`); `static.StaticDiscovery` offers the
  same for nodes that are known from the start.
- `membership.step` decides, purely: a `member.Member` and an event (`membership_events`) become a
  new member and effects. `member` has the moves that several events share.
- `session.MembershipSession` is the shell: it sends heartbeats, watches the session timeout, and
  does the effects one after the other. `group_requests.GroupRequests` turns an effect into a
  request of the classic group protocol, and its answer into an event.
- The group's leader plans: `roster` reads every member's bytes, `assignor` decides
  who gets which partitions, by the shares of `apportionment`, and what may move now (KIP-429).
- `callbacks.MembershipView` is what the owner sees: the state now, a `watch.Publisher` of the
  members, and the user's callbacks on a thread of their own.

Values that pass between them: `node.NodeInfo` (a node as the others see it), `GroupMember` (a
member as the assignor sees it), `AssignmentFacts` (what the leader tells beside partitions),
events in, effects out, and changes (`PartitionsAssigned`, `PartitionsRevoked`, `PartitionsLost`,
...) to the owner. Whatever fails is a `failures.DiscoveryError`.
"""

from lakelog.discovery.assignor import GroupMember, LaminarPartitionAssignor
from lakelog.discovery.config import KafkaDiscoveryConfig, KafkaSecurityConfig
from lakelog.discovery.failures import (
    ConfigError,
    ConnectionFailed,
    DiscoveryError,
    Fenced,
    GroupRefused,
    NotRunning,
    PollTimeoutExceeded,
    SecurityError,
    TopicMissing,
)
from lakelog.discovery.kafka import KafkaDiscovery
from lakelog.discovery.node import (
    NodeId,
    NodeInfo,
    NodeMetadata,
    NodeState,
    PartitionCountChanged,
    TopicPartition,
)
from lakelog.discovery.static import Discovery, StaticDiscovery
from lakelog.discovery.watch import Watch

__all__ = [
    "ConfigError",
    "ConnectionFailed",
    "Discovery",
    "DiscoveryError",
    "Fenced",
    "GroupMember",
    "GroupRefused",
    "KafkaDiscovery",
    "KafkaDiscoveryConfig",
    "KafkaSecurityConfig",
    "LaminarPartitionAssignor",
    "NodeId",
    "NodeInfo",
    "NodeMetadata",
    "NodeState",
    "NotRunning",
    "PartitionCountChanged",
    "PollTimeoutExceeded",
    "SecurityError",
    "StaticDiscovery",
    "TopicMissing",
    "TopicPartition",
    "Watch",
]
