"""A topic that grew at one broker is as large at every other, whatever is asked of it (T1)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.data_requests import codes, fetch, produced_codes, produced_rows
from tests.broker.data_stage import DataStage, batch
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker import fetch as fetch_api
from lakelog.broker import list_offsets, offset_commit, offset_for_leader_epoch
from lakelog.broker import produce as produce_api
from lakelog.broker.call import Broker
from lakelog.broker.errors import Attempt
from lakelog.broker.lookup import TopicFinder
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.topics.topic import Topic
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from lakelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NEW = 2
"""The partition that the topic grew by."""


@asynccontextmanager
async def grown(cluster: MemoryCluster) -> AsyncIterator[tuple[Broker, bytes]]:
    """A broker that knows a topic "t" of two partitions, which has three, and the topic's id."""
    async with whole_broker(cluster, 1) as first, whole_broker(cluster, 2) as second:
        made = await first.topics.create("t", partitions=2, replication_factor=1, configs={})
        await second.topics.current()
        await first.topics.grow(made, NEW + 1)
        known = second.topics.cached("t")
        assert known is not None
        assert known.partition_count == NEW
        yield second, made.id


async def asked_list_offsets(broker: Broker, _: bytes, version: int) -> list[int]:
    topic = ListOffsetsTopic("t", (ListOffsetsPartition(NEW, -1, -1),))
    request = ListOffsetsRequest(topics=(topic,))
    answer = await list_offsets.handle(broker, call(broker, version), request)
    return [row.error_code for row in answer.topics[0].partitions]


async def asked_epochs(broker: Broker, _: bytes, version: int) -> list[int]:
    topic = OffsetForLeaderTopic("t", (OffsetForLeaderPartition(NEW, -1, 0),))
    request = OffsetForLeaderEpochRequest(topics=(topic,))
    answer = await offset_for_leader_epoch.handle(broker, call(broker, version), request)
    return [row.error_code for row in answer.topics[0].partitions]


async def asked_produce(broker: Broker, topic_id: bytes, version: int) -> list[int]:
    data = (PartitionProduceData(NEW, batch(b"x")),)
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
    answer = await finish(await produce_api.handle(broker, call(broker, version), request))
    return produced_codes(produced_rows(answer))


async def asked_fetch(broker: Broker, topic_id: bytes, version: int) -> list[int]:
    partition = FetchPartition(partition=NEW, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", topic_id=topic_id, partitions=(partition,))
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=(topic,))
    answer = await finish(await fetch_api.handle(broker, call(broker, version), request))
    assert isinstance(answer, FetchResponse)
    return codes(answer)


async def asked_commit(broker: Broker, topic_id: bytes, version: int) -> list[int]:
    partitions = (OffsetCommitRequestPartition(NEW, 5),)
    topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=partitions)
    request = OffsetCommitRequest("g", -1, "", topics=(topic,))
    answer = await finish(await offset_commit.handle(broker, call(broker, version), request))
    assert isinstance(answer, OffsetCommitResponse)
    return [row.error_code for row in answer.topics[0].partitions]


Ask = Callable[[Broker, bytes, int], Coroutine[Any, Any, list[int]]]


@pytest.mark.parametrize(
    ("ask", "version"),
    [
        (asked_list_offsets, 7),
        (asked_epochs, 4),
        (asked_produce, 12),
        (asked_produce, 13),
        (asked_fetch, 12),
        (asked_fetch, 13),
        (asked_commit, 9),
        (asked_commit, 10),
    ],
)
def test_a_new_partition_is_there_at_every_broker(ask: Ask, version: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with grown(cluster) as (broker, topic_id):
            assert await ask(broker, topic_id, version) == [0]

    run(scenario)


def find(
    stage: DataStage, *wanted: tuple[str, list[int]]
) -> tuple[list[Topic | ErrorCode], ErrorCode]:
    async def ask() -> tuple[list[Topic | ErrorCode], ErrorCode]:
        finder = TopicFinder(stage.broker, Attempt.READING)
        return [await finder.find(name, asked) for name, asked in wanted], finder.no_partition

    return asyncio.run(ask())


def test_partitions_that_nobody_has_cost_one_look_at_the_store_for_a_request() -> None:
    stage = DataStage()
    topics = [stage.topic(f"t{number}", 2) for number in range(100)]
    found, code = find(stage, *((topic.name, [0, 5]) for topic in topics))
    assert found == topics
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.topics.asked == 1
    found, _ = find(stage, *((topic.name, [0, 1, -1]) for topic in topics))
    assert found == topics
    assert stage.topics.asked == 1


def test_while_the_store_is_down_a_partition_that_is_not_known_is_retriable() -> None:
    stage = DataStage()
    made = stage.topic("t", 2)
    stage.topics.failure = Unavailable("down")
    assert find(stage, ("t", [0, 2])) == ([made], ErrorCode.NOT_LEADER_OR_FOLLOWER)
    request = fetch(("t", [(0, 0), (2, 0)]))

    async def ask() -> list[int]:
        answer = await finish(await fetch_api.handle(stage.broker, stage.call(12), request))
        assert isinstance(answer, FetchResponse)
        return codes(answer)

    assert asyncio.run(ask()) == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
