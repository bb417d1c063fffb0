"""A cluster as an administrator meets it: all brokers, leaders, and coordinators of groups.

Kafka answers for a partition only at its leader and for a group only at its coordinator, so a
command that works everywhere asks there. Connections are opened when they are first needed. What a
coordinator says while it moves or loads is asked again, for a bounded time: nothing was done yet.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from lakelog.cli.command import check, converse
from lakelog.model.errors import ErrorCode
from lakelog.server.client import Client, KafkaFailure, Unreachable
from lakelog.server.options import Address
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from lakelog.wire.schema import ZERO_UUID

GROUP_KEY: Final = 0
ATTEMPTS_MAX: Final = 60
PAUSE_S: Final = 0.25
MOVING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A broker of the cluster and where it says that it listens."""

    id: int
    address: Address


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """A topic and the leader of each of its partitions; -1 where there is none."""

    name: str
    id: bytes
    leaders: dict[int, int]


class ClusterConnections:
    """Connections to the brokers of one cluster, known through one of them."""

    def __init__(self, first: Client) -> None:
        self._first = first
        self._clients: dict[int, Client] = {}
        self._nodes: dict[int, ClusterNode] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    async def nodes(self) -> list[ClusterNode]:
        """All brokers, by their ids."""
        answer = await self._metadata(())
        self._nodes = {
            each.node_id: ClusterNode(each.node_id, Address(each.host, each.port))
            for each in answer.brokers
        }
        return [self._nodes[number] for number in sorted(self._nodes)]

    async def client(self, node: ClusterNode) -> Client:
        """The connection to a broker; raises Unreachable with the broker's name."""
        found = self._clients.get(node.id)
        if found is None:
            try:
                found = await Client.connect(node.address, client_id="lakelog-cli")
            except Unreachable as reason:
                raise Unreachable(f"broker {node.id}: {reason}") from None
            self._clients[node.id] = found
        return found

    async def leader(self, number: int) -> Client:
        """The connection to the broker that leads a partition."""
        if number not in self._nodes:
            await self.nodes()
        if number not in self._nodes:
            raise KafkaFailure(ErrorCode.LEADER_NOT_AVAILABLE)
        return await self.client(self._nodes[number])

    async def at_coordinator(
        self, group: str, ask: Callable[[Client], Awaitable[Result]]
    ) -> tuple[ClusterNode, Result]:
        """Ask a group's coordinator, again and again while the group is moving or loading."""

        async def once() -> tuple[ClusterNode, Result]:
            node = await self._find_coordinator(group)
            return node, await ask(await self.client(node))

        return await patiently(once)

    async def topics(
        self, *, names: Iterable[str] = (), ids: Iterable[bytes] = ()
    ) -> dict[str, TopicLeaders]:
        """Those of these topics that there are, by their names; none is created by asking."""
        wanted = (
            *(MetadataRequestTopic(name=name) for name in sorted(set(names))),
            *(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(set(ids))),
        )
        if not wanted:
            return {}
        answer = await self._metadata(wanted)
        found = [_topic(each.name, each) for each in answer.topics if each.name and _there(each)]
        return {topic.name: topic for topic in found}

    async def _metadata(self, topics: tuple[MetadataRequestTopic, ...]) -> MetadataResponse:
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        answer = await self._first.call(request, MetadataResponse)
        check(answer.error_code, about="Metadata")
        return answer

    async def _find_coordinator(self, group: str) -> ClusterNode:
        request = FindCoordinatorRequest(GROUP_KEY, coordinator_keys=(group,), key=group)
        answer = await self._first.call(request, FindCoordinatorResponse)
        found = answer.coordinators[0] if answer.coordinators else answer  # one key before v4
        check(found.error_code, found.error_message, about=group)
        return ClusterNode(found.node_id, Address(found.host, found.port))


def administer(broker: Address, talk: Callable[[ClusterConnections], Awaitable[Result]]) -> Result:
    """Connect to a cluster through one of its brokers, talk, hang up everywhere."""

    async def through(client: Client) -> Result:
        async with ClusterConnections(client) as cluster:
            return await talk(cluster)

    return converse(broker, through)


async def patiently(ask: Callable[[], Awaitable[Result]]) -> Result:
    """Ask until the answer is another than that a coordinator is moving; then that is raised."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return await ask()
        except KafkaFailure as failure:
            if failure.code not in MOVING:
                raise
        await asyncio.sleep(PAUSE_S)
    return await ask()


def _there(topic: MetadataResponseTopic) -> bool:
    gone = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
    if topic.error_code in gone:
        return False
    check(topic.error_code, about=topic.name or "")
    return True


def _topic(name: str, found: MetadataResponseTopic) -> TopicLeaders:
    leaders = {each.partition_index: each.leader_id for each in found.partitions}
    return TopicLeaders(name, found.topic_id, leaders)


def has_id(topic_id: bytes) -> bool:
    """Whether a message names a topic by its id; if not, by its name."""
    return topic_id != ZERO_UUID
