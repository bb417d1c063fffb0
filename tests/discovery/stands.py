"""The brokers under a group of nodes: ours in this process, Apache Kafka beside it.

Both allow short sessions, so that a node that died is missed within a second or two.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.broker import HOST, Launch, ProcessBroker, free_ports
from bench.peer import CLUSTER_ID, PROPERTIES, Peer
from msgspec import Struct

from lakelog.coordinator.options import GroupOptions
from lakelog.kafka_client.dialing import dial
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions
from lakelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.describe_groups import (
    DescribeGroupsDescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

SESSION_MS_MIN = 500
FORMAT_S_MAX = 60.0
READY_S_MAX = 90.0
TOPIC_EXISTS = 36
MORE_PROPERTIES = f"""
group.min.session.timeout.ms={SESSION_MS_MIN}
offsets.topic.num.partitions=4
auto.create.topics.enable=false
"""

AnswerT = TypeVar("AnswerT", bound=Struct)


@dataclass(frozen=True, slots=True)
class Stand:
    """Where brokers can be reached, and what a test asks of them beside discovery."""

    name: str
    bootstrap: str

    def call(self, request: Struct, answer: type[AnswerT]) -> AnswerT:
        """One request to the first broker."""

        async def ask() -> AnswerT:
            async with await dial(self.bootstrap) as client:
                return await client.call(request, answer)

        return asyncio.run(ask())

    def create(self, **topics: int) -> None:
        """Create topics with so many partitions; `a_b` is the topic a-b."""
        wanted = tuple(
            CreatableTopic(name.replace("_", "-"), count, -1) for name, count in topics.items()
        )
        found = self.call(CreateTopicsRequest(wanted), CreateTopicsResponse)
        assert all(each.error_code in {0, TOPIC_EXISTS} for each in found.topics), found

    def grow(self, topic: str, count: int) -> None:
        """Give a topic so many partitions."""
        wanted = CreatePartitionsTopic(topic, count, None)
        request = CreatePartitionsRequest((wanted,), 10_000)
        found = self.call(request, CreatePartitionsResponse)
        assert not found.results[0].error_code, found

    def described(self, group: str) -> DescribeGroupsDescribedGroup:
        """The group as the brokers know it."""
        return self.call(DescribeGroupsRequest((group,)), DescribeGroupsResponse).groups[0]


@contextmanager
def our_stand() -> Iterator[Stand]:
    """Our broker, in this process."""
    groups = GroupOptions(initial_rebalance_delay_ms=0, session_timeout_min_ms=SESSION_MS_MIN)
    with EmbeddedBroker(EmbeddedOptions(groups=groups)) as broker:
        yield Stand("ours", broker.bootstrap)


@dataclass(frozen=True, slots=True)
class KafkaPlace:
    """A directory and ports for one node of Apache Kafka, which may be started again and again."""

    peer: Peer
    folder: Path
    port: int
    controller_port: int

    @classmethod
    def prepare(cls, peer: Peer, folder: Path) -> "KafkaPlace":
        """Write the settings and format the directory."""
        port, controller_port = free_ports(2)
        place = cls(peer, folder, port, controller_port)
        text = PROPERTIES.format(
            host=HOST, port=port, controller_port=controller_port, data=folder / "data"
        )
        place.properties.write_text(text + MORE_PROPERTIES)
        arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(place.properties))
        subprocess.run(
            peer.command("kafka.tools.StorageTool", *arguments),
            check=True,
            capture_output=True,
            timeout=FORMAT_S_MAX,
        )
        return place

    @property
    def properties(self) -> Path:
        """Where the settings are."""
        return self.folder / "kafka.properties"

    def start(self) -> ProcessBroker:
        """Start the node and wait until it serves."""
        command = self.peer.command("kafka.Kafka", str(self.properties), heap="512m")
        log_path = self.folder / "kafka.log"
        broker = ProcessBroker(
            Launch("kafka", command, self.port, log_path, ready_timeout_s=READY_S_MAX)
        )
        try:
            broker.wait_ready()
        except BaseException:
            broker.kill()
            raise
        return broker


@contextmanager
def kafka_stand(peer: Peer, folder: Path) -> Iterator[Stand]:
    """Apache Kafka, as a process."""
    broker = KafkaPlace.prepare(peer, folder).start()
    try:
        yield Stand(f"kafka {peer.version}", broker.bootstrap)
    finally:
        broker.kill()
