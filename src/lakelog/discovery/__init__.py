"""Who is there, on any Kafka: nodes that find each other and share partitions by a group."""

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
from lakelog.discovery.port import Discovery
from lakelog.discovery.static import StaticDiscovery
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
