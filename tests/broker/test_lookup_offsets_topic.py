"""`__consumer_offsets` is there for those who look for it, and for nobody who does not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from tests.broker.data_requests import fetch, produce
from tests.broker.data_stage import batch
from tests.broker.test_groups_whole import Client
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker import produce as produce_api
from lakelog.broker.lookup import (
    ADMIN_CLIENT_ID,
    OFFSETS_TOPIC_CONFIGS,
    OFFSETS_TOPIC_PARTITIONS,
)
from lakelog.coordinator.owner import owner_events
from lakelog.groups.events import Resolved
from lakelog.groups.state import ConsumerGroup, ConsumerMember
from lakelog.index.ports import TopicStreams
from lakelog.lake.read.range_plan import chosen_partitions
from lakelog.lake.read.read_request import Matching
from lakelog.model.ids import OFFSETS_TOPIC, TopicId
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopicRequest,
)
from lakelog.wire.messages.fetch import FetchResponse
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.metadata import MetadataRequest, MetadataResponse
from lakelog.wire.messages.produce import ProduceResponse

Scenario = Callable[[Client], Awaitable[None]]


def play(scenario: Scenario) -> None:
    """Run it against a broker that was asked for a coordinator."""

    async def main(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            client = Client(broker)
            await found(client)
            await scenario(client)

    run(main)


async def found(client: Client, key_type: int = 0) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("g",))
    await client.ask(request, FindCoordinatorResponse, 6)


async def listed(client: Client) -> dict[str, tuple[bool, int]]:
    answer = await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
    return {topic.name or "": (topic.is_internal, len(topic.partitions)) for topic in answer.topics}


def test_it_appears_with_the_first_question_for_a_coordinator_of_a_group() -> None:
    async def main(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            client = Client(broker)
            assert await listed(client) == {}
            await found(client, key_type=1)
            assert await listed(client) == {}
            await asyncio.gather(*(found(client) for _ in range(5)))
            assert await listed(client) == {OFFSETS_TOPIC: (True, OFFSETS_TOPIC_PARTITIONS)}

    run(main)


def test_two_brokers_make_it_once() -> None:
    async def main(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, 1) as one, whole_broker(cluster, 2) as two:
            await asyncio.gather(found(Client(one)), found(Client(two)))
            topics = [await broker.topics.find(OFFSETS_TOPIC) for broker in (one, two)]
            assert len({topic.id for topic in topics if topic is not None}) == 1

    run(main)


def test_it_can_be_described_and_its_offsets_listed_and_it_is_empty() -> None:
    async def scenario(client: Client) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=(DescribeTopicPartitionsTopicRequest(OFFSETS_TOPIC),)
        )
        described = await client.ask(request, DescribeTopicPartitionsResponse, 0)
        assert (described.topics[0].is_internal, len(described.topics[0].partitions)) == (True, 50)
        ends = ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(
                    OFFSETS_TOPIC,
                    (ListOffsetsPartition(49, -1, -1), ListOffsetsPartition(7, -1, -2)),
                ),
            )
        )
        answer = await client.ask(ends, ListOffsetsResponse, 7)
        assert [(row.error_code, row.offset) for row in answer.topics[0].partitions] == [(0, 0)] * 2
        fetched = await client.ask(fetch((OFFSETS_TOPIC, [(3, 0)])), FetchResponse, 12)
        (row,) = fetched.responses[0].partitions
        assert (row.error_code, row.high_watermark, row.log_start_offset) == (0, 0, 0)
        assert not row.records

    play(scenario)


def test_nobody_produces_to_it_but_who_may() -> None:
    async def scenario(client: Client) -> None:
        request = produce((OFFSETS_TOPIC, [(0, batch(b"v"))]))
        answer = await client.ask(request, ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == 17
        two = produce((OFFSETS_TOPIC, [(0, batch(b"v")), (1, batch(b"v"))]))
        answer = await client.ask(two, ProduceResponse, 9)
        assert [row.error_code for row in answer.responses[0].partition_responses] == [17, 17]
        topic = client.broker.topics.cached(OFFSETS_TOPIC)
        assert topic is not None
        facts = client.broker.log.facts(topic.streams()[0])
        assert facts is not None
        assert facts.head == 0
        tool = replace(call(client.broker, 9), client_id=ADMIN_CLIENT_ID)
        written = await finish(await produce_api.handle(client.broker, tool, request))
        assert isinstance(written, ProduceResponse)
        assert written.responses[0].partition_responses[0].error_code == 0

    play(scenario)


def test_it_is_made_once_and_has_kafkas_configs() -> None:
    async def scenario(client: Client) -> None:
        request = CreateTopicsRequest(
            topics=(CreatableTopic(OFFSETS_TOPIC, 1, 1),), timeout_ms=5_000
        )
        answer = await client.ask(request, CreateTopicsResponse, 7)
        assert answer.topics[0].error_code == 36
        topic = client.broker.topics.cached(OFFSETS_TOPIC)
        assert topic is not None
        assert topic.configs == OFFSETS_TOPIC_CONFIGS
        assert topic.settings.compacted

    play(scenario)


@pytest.mark.parametrize("pattern", [".*", "__.*", "__consumer_offsets"])
def test_no_pattern_matches_it(pattern: str) -> None:
    topics = {"orders": (TopicId(b"o" * 16), 1), OFFSETS_TOPIC: (TopicId(b"i" * 16), 50)}
    member = ConsumerMember(
        "m", None, None, "c", "/h", 45_000, 60_000, (), pattern, None, holder=1, holder_epoch=0
    )
    group = ConsumerGroup("g", members={"m": member})
    (event,) = owner_events(group, topics, assignor_default="uniform")
    expected = ("orders",) if pattern == ".*" else ()
    assert event == Resolved("g", pattern, expected)
    streams = [
        TopicStreams("orders", b"o" * 16, (1,)),
        TopicStreams(OFFSETS_TOPIC, b"i" * 16, (2,)),
    ]
    chosen = chosen_partitions(Matching(pattern), streams)
    assert {partition.topic for partition in chosen} == set(expected)
