"""A group as an administrator sees it: who is in it, what is committed, where the log ends.

Groups are asked for with our own small client, which retries nothing and gives up soon: brokers are
killed and paused here, and every answer must be of one moment. `tools` tries the clients of others.
"""

import asyncio
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.model.failures import Failure
from lakelog.server.options import Address
from lakelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

HOST = "127.0.0.1"
TIMEOUT_S = 30.0
PATIENCE_S = 3.0
RETRY_S = 0.3

Result = TypeVar("Result")


class UnansweredError(Exception):
    """Nobody tells about the group now; the message says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A group at one moment: its state, and the partitions of each member by its client id."""

    state: str
    assignments: dict[str, tuple[int, ...]]

    def twice(self) -> list[int]:
        """Partitions that two members have at this moment."""
        counted = Counter(each for owned in self.assignments.values() for each in owned)
        return sorted(partition for partition, count in counted.items() if count > 1)

    def partitions(self) -> set[int]:
        """All partitions that anybody has."""
        return {each for owned in self.assignments.values() for each in owned}


def parse_assignment(raw: bytes) -> tuple[int, ...]:
    """Return the partitions in an assignment of the consumer protocol with one topic or none."""
    if len(raw) < 6 or struct.unpack_from(">hi", raw)[1] == 0:
        return ()
    (name_length,) = struct.unpack_from(">h", raw, 6)
    (count,) = struct.unpack_from(">i", raw, 8 + name_length)
    return struct.unpack_from(f">{count}i", raw, 12 + name_length)


async def describe_classic(client: BrokerConnection, group: str) -> Seen:
    """Describe a classic group at its coordinator."""
    request = DescribeGroupsRequest(groups=(group,))
    answer = await client.call(request, DescribeGroupsResponse, timeout_s=PATIENCE_S)
    row = answer.groups[0]
    if row.error_code:
        raise UnansweredError(f"DescribeGroups answered {row.error_code}")
    return Seen(
        row.group_state,
        {each.client_id: parse_assignment(each.member_assignment) for each in row.members},
    )


async def describe_consumer(client: BrokerConnection, group: str) -> Seen:
    """Describe a KIP-848 group at its coordinator."""
    request = ConsumerGroupDescribeRequest(group_ids=(group,))
    answer = await client.call(request, ConsumerGroupDescribeResponse, timeout_s=PATIENCE_S)
    row = answer.groups[0]
    if row.error_code:
        raise UnansweredError(f"ConsumerGroupDescribe answered {row.error_code}")
    return Seen(
        row.group_state,
        {
            each.client_id: tuple(
                number for topic in each.assignment.topic_partitions for number in topic.partitions
            )
            for each in row.members
        },
    )


async def fetch_committed(client: BrokerConnection, group: str) -> dict[int, int]:
    """Return what a group committed, by partition of its only topic."""
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group, topics=None),))
    answer = await client.call(request, OffsetFetchResponse, timeout_s=PATIENCE_S)
    row = answer.groups[0]
    if row.error_code:
        raise UnansweredError(f"OffsetFetch answered {row.error_code}")
    return {
        part.partition_index: part.committed_offset
        for topic in row.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


class Admin:
    """Administration of brokers any of which may be dead or paused."""

    def __init__(self, bootstrap: str) -> None:
        self._ports = [int(each.rpartition(":")[2]) for each in bootstrap.split(",")]
        settings = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2}
        self._client = AdminClient(settings)

    def create_topic(self, topic: str, partitions: int, replicas: int) -> None:
        """Create a topic and wait until it is there."""
        made = self._client.create_topics([NewTopic(topic, partitions, replicas)])
        made[topic].result(TIMEOUT_S)

    def look(self, group: str, *, classic: bool) -> Seen:
        """Return the group as it is now."""
        return self._ask(group, describe_classic if classic else describe_consumer)

    def committed(self, group: str) -> dict[int, int]:
        """Return what the group committed, by partition of its only topic."""
        return self._ask(group, fetch_committed)

    def _ask(self, group: str, ask: Callable[[BrokerConnection, str], Awaitable[Result]]) -> Result:
        reasons = []
        for port in self._ports:
            try:
                return asyncio.run(ask_coordinator(port, group, ask))
            except (Failure, UnansweredError) as reason:
                reasons.append(str(reason))
        raise UnansweredError("; ".join(reasons))

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the end offset of every partition."""
        asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(partitions)}
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            found = self._client.list_offsets(asked, request_timeout=TIMEOUT_S)
            try:
                return {at.partition: each.result(TIMEOUT_S).offset for at, each in found.items()}
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                # The client may still hold the leaders of before a broker went.
                self._client.list_topics(timeout=TIMEOUT_S)
                time.sleep(RETRY_S)

    def is_whole(self, brokers: int) -> bool:
        """Whether all brokers are there and every partition has all its replicas."""
        try:
            metadata = self._client.list_topics(timeout=TIMEOUT_S)
        except KafkaException:
            return False
        parts = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        return len(metadata.brokers) == brokers and all(
            part.leader >= 0 and len(part.isrs) == len(part.replicas) for part in parts
        )


async def ask_coordinator(
    port: int, group: str, ask: Callable[[BrokerConnection, str], Awaitable[Result]]
) -> Result:
    """Ask a broker for the coordinator, and the coordinator for what is wanted."""
    async with await dial(f"{HOST}:{port}", timeout_s=PATIENCE_S) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
        answer = await client.call(request, FindCoordinatorResponse, timeout_s=PATIENCE_S)
    row = answer.coordinators[0]
    if row.error_code:
        raise UnansweredError(f"FindCoordinator answered {row.error_code}")
    address = Address(row.host, row.port)
    async with await dial(str(address), timeout_s=PATIENCE_S) as client:
        return await ask(client, group)


def find_coordinator(port: int, group: str) -> int:
    """Return the node id of the broker that FindCoordinator names; -1 if it names none."""

    async def ask(client: BrokerConnection) -> int:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=(group,))
        row = (await client.call(request, FindCoordinatorResponse)).coordinators[0]
        return -1 if row.error_code else row.node_id

    return with_client(port, ask)


def with_client(
    port: int, ask: Callable[[BrokerConnection], Coroutine[None, None, Result]]
) -> Result:
    """Connect to one broker, ask, and hang up."""

    async def run() -> Result:
        async with await dial(f"{HOST}:{port}") as client:
            return await ask(client)

    return asyncio.run(run())
