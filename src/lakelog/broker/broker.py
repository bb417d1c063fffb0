"""The broker as its handlers see it: everything they may use, and nothing else."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
