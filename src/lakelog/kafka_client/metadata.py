"""What a Metadata answer says, as values: the brokers, the topics, who leads what. Pure.

Rules: partitions stand in the order of their numbers, each once; a broker without a usable address
is left out. An error belongs to its topic or partition and does not hide the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakelog.kafka_client.setting_keys import PORT_MAX, BrokerAddress
from lakelog.model.errors import ErrorCode
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from lakelog.wire.schema import ZERO_UUID

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as the cluster describes it; `error` is a code of the protocol."""

    partition: int
    leader: int
    leader_epoch: int
    error: int = ErrorCode.NONE

    @property
    def has_leader(self) -> bool:
        """Whether there is a broker to ask."""
        return self.leader > NO_LEADER


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic as the cluster describes it; `error` is a code of the protocol."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    error: int = ErrorCode.NONE

    @property
    def has_id(self) -> bool:
        """Whether the cluster gives topics an identity; Kafka did not before 2.8."""
        return any(self.topic_id)

    @property
    def leaders(self) -> dict[int, int]:
        """The numbers of its partitions, in order, and who leads each of them."""
        return {partition.partition: partition.leader for partition in self.partitions}


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A broker of the cluster, and where it says that it listens."""

    id: int
    address: BrokerAddress


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One answer: the brokers, and the topics that were asked for."""

    brokers: dict[int, BrokerAddress] = field(default_factory=dict)
    topics: dict[str, TopicMetadata] = field(default_factory=dict)
    cluster_id: str | None = None
    controller: int = NO_LEADER
    error: int = ErrorCode.NONE


def metadata_request(names: Iterable[str] | None, *, may_create: bool) -> MetadataRequest:
    """Ask about these topics, or about all."""
    topics = None
    if names is not None:
        topics = tuple(MetadataRequestTopic(name=name) for name in names)
    return MetadataRequest(topics, may_create)


def parse_metadata(answer: MetadataResponse) -> ClusterMetadata:
    """What an answer says."""
    brokers = {
        broker.node_id: BrokerAddress(broker.host, broker.port)
        for broker in answer.brokers
        if broker.host and 0 < broker.port <= PORT_MAX
    }
    topics = {topic.name: _topic(topic.name, topic) for topic in answer.topics if topic.name}
    return ClusterMetadata(
        brokers, topics, answer.cluster_id, answer.controller_id, answer.error_code
    )


def absent(name: str) -> TopicMetadata:
    """A topic about which the cluster said nothing."""
    return TopicMetadata(name, ZERO_UUID, (), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _topic(name: str, topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {
        each.partition_index: PartitionMetadata(
            each.partition_index, each.leader_id, each.leader_epoch, each.error_code
        )
        for each in topic.partitions
        if each.partition_index >= 0
    }
    ordered = tuple(partitions[number] for number in sorted(partitions))
    return TopicMetadata(name, bytes(topic.topic_id), ordered, topic.error_code)
