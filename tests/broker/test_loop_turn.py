"""The loop goes on while requests that name much are answered (R2).

Nothing here depends on how fast the machine is: time moves only when the clock is read, by more
than a turn may take, so every part has to be followed by a pause, and what is counted is the work
between two turns of the loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import Struct
from tests.broker.data_requests import fetch as fetch_request
from tests.broker.data_stage import batch
from tests.broker.whole import call, finish, whole_broker
from tests.memory_cluster import MemoryCluster, run

from lakelog.broker import produce as produce_api
from lakelog.broker.api import dispatch
from lakelog.broker.call import Broker
from lakelog.broker.loop_turn import (
    HELD_S_MAX,
    ITEMS_PER_LOOK,
    SLOW_ITEMS_MIN,
    LoopTurn,
    is_large,
)
from lakelog.clock import SystemClock
from lakelog.wire.apis import ApiKey
from lakelog.wire.codec import encode
from lakelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from lakelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lakelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lakelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from lakelog.wire.messages.delete_topics import DeleteTopicsRequest
from lakelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from lakelog.wire.messages.describe_groups import DescribeGroupsRequest
from lakelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from lakelog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from lakelog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from lakelog.wire.messages.fetch import FetchResponse
from lakelog.wire.messages.find_coordinator import FindCoordinatorRequest
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from lakelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lakelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from lakelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lakelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

COUNT = 10 * ITEMS_PER_LOOK
NAMES = tuple(f"name-{number}" for number in range(COUNT))
PARTITIONS = range(COUNT)


class SteppingClock(SystemClock):
    """Every look at it finds that a turn's time is over."""

    def __init__(self) -> None:
        self._now_s = 1_000.0

    def monotonic_s(self) -> float:
        self._now_s += 2 * HELD_S_MAX
        return self._now_s


class Turns:
    """Counts the turns of the loop."""

    def __init__(self) -> None:
        self.count = 0

    def _turn(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._turn)

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._turn()
        yield
        self._next.cancel()


def offsets() -> ListOffsetsRequest:
    partitions = tuple(ListOffsetsPartition(number, -1, -1) for number in PARTITIONS)
    return ListOffsetsRequest(topics=(ListOffsetsTopic("big", partitions),))


def commits() -> OffsetCommitRequest:
    partitions = tuple(OffsetCommitRequestPartition(number, 5) for number in PARTITIONS)
    topic = OffsetCommitRequestTopic(name="big", partitions=partitions)
    return OffsetCommitRequest("g", -1, "", topics=(topic,))


def committed() -> OffsetFetchRequest:
    topic = OffsetFetchRequestTopics(name="big", partition_indexes=tuple(PARTITIONS))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup("g", None, -1, (topic,)),))


def epochs() -> OffsetForLeaderEpochRequest:
    partitions = tuple(OffsetForLeaderPartition(number, -1, 0) for number in PARTITIONS)
    return OffsetForLeaderEpochRequest(topics=(OffsetForLeaderTopic("big", partitions),))


def deletions() -> DeleteRecordsRequest:
    partitions = tuple(DeleteRecordsPartition(number, 0) for number in PARTITIONS)
    return DeleteRecordsRequest((DeleteRecordsTopic("big", partitions),), 5_000)


REQUESTS: dict[str, tuple[ApiKey, int, Callable[[], Struct]]] = {
    "metadata by name": (
        ApiKey.METADATA,
        9,
        lambda: MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in NAMES),
            allow_auto_topic_creation=False,
        ),
    ),
    "metadata of one topic": (
        ApiKey.METADATA,
        9,
        lambda: MetadataRequest(topics=(MetadataRequestTopic(name="big"),)),
    ),
    "fetch": (ApiKey.FETCH, 12, lambda: fetch_request(("big", [(at, 0) for at in PARTITIONS]))),
    "fetch of unknown topics": (
        ApiKey.FETCH,
        12,
        lambda: fetch_request(*((name, [(0, 0)]) for name in NAMES)),
    ),
    "list offsets": (ApiKey.LIST_OFFSETS, 7, offsets),
    "offset commit": (ApiKey.OFFSET_COMMIT, 9, commits),
    "offset fetch": (ApiKey.OFFSET_FETCH, 9, committed),
    "offset fetch of groups": (
        ApiKey.OFFSET_FETCH,
        9,
        lambda: OffsetFetchRequest(
            groups=tuple(OffsetFetchRequestGroup(name, None, -1, None) for name in NAMES)
        ),
    ),
    "epochs": (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, epochs),
    "delete records": (ApiKey.DELETE_RECORDS, 2, deletions),
    "producers": (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda: DescribeProducersRequest(
            (DescribeProducersTopicRequest("big", tuple(PARTITIONS)),)
        ),
    ),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        lambda: DescribeConfigsRequest(
            tuple(DescribeConfigsResource(2, name, None) for name in NAMES)
        ),
    ),
    "log dirs": (ApiKey.DESCRIBE_LOG_DIRS, 4, lambda: DescribeLogDirsRequest(topics=None)),
    "topic pages": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda: DescribeTopicPartitionsRequest(
            topics=tuple(DescribeTopicPartitionsTopicRequest(name) for name in NAMES)
        ),
    ),
    "groups": (ApiKey.DESCRIBE_GROUPS, 5, lambda: DescribeGroupsRequest(groups=NAMES)),
    "consumer groups": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        lambda: ConsumerGroupDescribeRequest(group_ids=NAMES),
    ),
    "coordinators": (
        ApiKey.FIND_COORDINATOR,
        4,
        lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES),
    ),
    "creations": (
        ApiKey.CREATE_TOPICS,
        7,
        lambda: CreateTopicsRequest(
            tuple(CreatableTopic(f"no {name}", 1, 1) for name in NAMES), 60_000, True
        ),
    ),
    "topic deletions": (
        ApiKey.DELETE_TOPICS,
        5,
        lambda: DeleteTopicsRequest(topic_names=NAMES, timeout_ms=60_000),
    ),
    "growth": (
        ApiKey.CREATE_PARTITIONS,
        3,
        lambda: CreatePartitionsRequest(
            tuple(CreatePartitionsTopic(name, 3, None) for name in NAMES), 60_000, True
        ),
    ),
}


async def turns_of(broker: Broker, key: ApiKey, version: int, request: Struct) -> int:
    """The turns of the loop while a request is answered."""
    body = memoryview(b"".join(bytes(part) for part in encode(request, version)))
    turns = Turns()
    with turns.counted():
        await finish(await dispatch(broker, key, call(broker, version), body))
    return turns.count


def stepping(broker: Broker) -> None:
    object.__setattr__(broker, "loop_turn", LoopTurn(SteppingClock()))


@pytest.mark.parametrize("name", REQUESTS)
def test_every_part_of_a_large_request_is_followed_by_a_turn_of_the_loop(name: str) -> None:
    key, version, request = REQUESTS[name]

    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await broker.topics.create("big", partitions=COUNT, replication_factor=1, configs={})
            few = await turns_of(broker, key, version, request())
            stepping(broker)
            many = await turns_of(broker, key, version, request())
            # The first part needs no pause: nobody has held the loop before.
            assert many - few >= COUNT // ITEMS_PER_LOOK - 2

    run(scenario)


def test_requests_that_are_ready_together_share_the_time_of_a_turn() -> None:
    requests, items = 100, 4 * ITEMS_PER_LOOK

    async def scenario() -> None:
        turns, turn = Turns(), LoopTurn(SteppingClock())
        done: dict[int, int] = {}

        async def request() -> None:
            async for part in turn.parts(range(items)):
                done[turns.count] = done.get(turns.count, 0) + len(part)

        with turns.counted():
            await asyncio.gather(*(request() for _ in range(requests)))
        assert sum(done.values()) == requests * items
        assert max(done.values()) <= 2 * ITEMS_PER_LOOK

    asyncio.run(scenario())


def test_a_small_request_does_not_wait_behind_large_ones() -> None:
    async def scenario() -> None:
        turn = LoopTurn(SteppingClock())
        order: list[str] = []

        async def request(name: str, items: int) -> None:
            async for _ in turn.parts(range(items)):
                pass
            order.append(name)

        large = [request("large", 4 * ITEMS_PER_LOOK) for _ in range(10)]
        await asyncio.gather(*large, request("small", ITEMS_PER_LOOK))
        assert order[0] == "small"

    asyncio.run(scenario())


def test_who_gives_up_waiting_holds_up_nobody() -> None:
    async def scenario() -> None:
        turn = LoopTurn(SteppingClock())

        async def request() -> None:
            async for _ in turn.parts(range(10 * ITEMS_PER_LOOK)):
                pass

        tasks = [asyncio.create_task(request()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        async with asyncio.timeout(5):
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(end) for end in ended[1::2]] == [asyncio.CancelledError] * 2
        assert ended[0::2] == [None] * 3

    asyncio.run(scenario())


def test_fetches_that_wait_together_are_woken_without_looking_at_all_they_name() -> None:
    waiting, partitions = 20, 10 * ITEMS_PER_LOOK

    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            await broker.topics.create(
                "big", partitions=partitions, replication_factor=1, configs={}
            )
            wants = [(number, 0) for number in range(partitions)]

            async def fetch() -> FetchResponse:
                request = fetch_request(("big", wants), wait_ms=20_000)
                body = memoryview(b"".join(bytes(part) for part in encode(request, 12)))
                answer = await finish(await dispatch(broker, ApiKey.FETCH, call(broker, 12), body))
                assert isinstance(answer, FetchResponse)
                return answer

            fetches = [asyncio.create_task(fetch()) for _ in range(waiting)]
            board = broker.log._board
            while sum(map(len, board._watches.values())) < waiting * partitions:
                await asyncio.sleep(0)
            for _ in range(waiting * 20):
                await asyncio.sleep(0)
            looks = 0
            marks = broker.log.marks

            def counted(stream: int) -> Any:
                nonlocal looks
                looks += 1
                return marks(stream)

            broker.log.marks = counted  # type: ignore[method-assign]  # counts, changes nothing
            data = PartitionProduceData(0, batch(b"x"))
            topic = TopicProduceData(name="big", partition_data=(data,))
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=(topic,))
            await finish(await produce_api.handle(broker, call(broker, 9), request))
            answers = await asyncio.gather(*fetches)
            assert {len(answer.responses[0].partitions) for answer in answers} == {partitions}
            assert looks <= 2 * waiting

    run(scenario)


class Inner(Struct, frozen=True):
    numbers: tuple[int, ...] = ()


class Outer(Struct, frozen=True):
    inner: tuple[Inner, ...] = ()
    text: str = ""


def test_an_answer_is_large_by_the_items_it_holds_on_two_levels() -> None:
    assert not is_large(Outer())
    assert not is_large(Outer(text="x" * 10_000))
    assert not is_large(Outer((Inner(tuple(range(SLOW_ITEMS_MIN // 2))),)))
    assert is_large(Outer((Inner(tuple(range(SLOW_ITEMS_MIN))),)))
    assert is_large(Outer((Inner(),) * SLOW_ITEMS_MIN))
