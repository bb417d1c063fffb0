"""Records go where Kafka's own producers put them, and are read from whoever leads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.partitioner import murmur2 as oracle
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from tests.kafka_client.scripted import Script, Scripted, scripted

from lakelog.cli.command import open_cluster
from lakelog.cli.offsets import End, ReadBounds, Start
from lakelog.cli.record_clients import (
    Sender,
    Sending,
    TopicRead,
    _Place,
    _records,
    consume,
)
from lakelog.kafka_client.admin import EARLIEST_MS
from lakelog.kafka_client.cluster import KafkaCluster
from lakelog.kafka_client.failures import BrokerError
from lakelog.model.errors import ErrorCode
from lakelog.records.build import BatchOptions, Record, build_batch, murmur2, partition_of
from lakelog.wire.apis import ApiKey
from lakelog.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartitionData,
    FetchRequest,
    FetchResponse,
)
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lakelog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lakelog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafka_s_own_tests(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_every_key_agrees_with_another_client(key: bytes, partitions: int) -> None:
    assert murmur2(key) & 0x7FFFFFFF == oracle(key) & 0x7FFFFFFF
    assert 0 <= partition_of(key, partitions) < partitions


# --- two brokers, each of which leads a partition ------------------------------------------------

TOPIC_ID = bytes(range(16))
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Pair:
    """Two brokers with a topic of two partitions; who leads which of them can be changed."""

    def __init__(self) -> None:
        self.brokers: list[Scripted] = []
        self.leaders = [1, 2]
        self.truth = [1, 2]  # what a leader knows before the metadata does
        self.logs: list[list[bytes]] = [[], []]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[KafkaCluster]:
        async with scripted(self._script(1)) as first, scripted(self._script(2)) as second:
            self.brokers = [first, second]
            config = {"bootstrap.servers": str(first.endpoint), "retry.backoff.ms": 1}
            async with open_cluster(config) as cluster:
                yield cluster

    def _script(self, number: int) -> Script:
        return {
            ApiKey.METADATA: lambda _: self._metadata(),
            ApiKey.PRODUCE: lambda asked: self._produce(number, asked.message),
            ApiKey.LIST_OFFSETS: lambda asked: self._list_offsets(asked.message),
            ApiKey.FETCH: lambda asked: self._fetch(number, asked.message),
        }

    def _metadata(self) -> MetadataResponse:
        partitions = tuple(
            MetadataResponsePartition(0, index, leader) for index, leader in enumerate(self.leaders)
        )
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(number, broker.endpoint.host, broker.endpoint.port)
                for number, broker in enumerate(self.brokers, 1)
            ),
            topics=(MetadataResponseTopic(0, "t", TOPIC_ID, partitions=partitions),),
        )

    def _leads(self, number: int, partition: int) -> bool:
        if self.truth[partition] == number:
            return True
        self.leaders = list(self.truth)  # now the metadata knows it too
        return False

    def _produce(self, number: int, request: Struct) -> ProduceResponse:
        assert isinstance(request, ProduceRequest)
        (data,) = request.topic_data[0].partition_data
        code, at = 0, len(self.logs[data.index])
        if self._leads(number, data.index):
            self.logs[data.index].append(bytes(data.records or b""))
        else:
            code = NOT_LEADER
        result = PartitionProduceResponse(data.index, code, at)
        return ProduceResponse((TopicProduceResponse(TOPIC_ID, (result,)),))

    def _list_offsets(self, request: Struct) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        answers = tuple(
            ListOffsetsPartitionResponse(
                asked.partition_index,
                offset=0
                if asked.timestamp == EARLIEST_MS
                else len(self.logs[asked.partition_index]),
            )
            for asked in request.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse("t", answers),))

    def _fetch(self, number: int, request: Struct) -> FetchResponse:
        assert isinstance(request, FetchRequest)
        answers = []
        for asked in request.topics[0].partitions:
            log = self.logs[asked.partition]
            if not self._leads(number, asked.partition):
                answers.append(FetchPartitionData(asked.partition, NOT_LEADER))
            else:
                found = b"".join(log[asked.fetch_offset : asked.fetch_offset + 1])
                answers.append(FetchPartitionData(asked.partition, records=found))
        return FetchResponse(responses=(FetchableTopicResponse(TOPIC_ID, tuple(answers)),))


def batch_of(value: bytes, offset: int, **options: Any) -> bytes:
    return build_batch([Record(None, value, 0)], BatchOptions(base_offset=offset, **options))


def test_a_batch_goes_to_the_leader_of_its_partition_also_when_that_has_moved() -> None:
    async def run() -> None:
        pair = Pair()
        async with pair.running() as cluster:
            sender = await Sender.open(cluster, Sending("t"))
            record = Record(None, b"v", 0)
            await sender.send([(record, 0), (record, 1)])
            assert [broker.apis().count(ApiKey.PRODUCE) for broker in pair.brokers] == [1, 1]
            pair.truth = [2, 2]
            (produced,) = await sender.send([(record, 0)])
            assert (produced.partition, produced.offset) == (0, 1)
            assert [len(log) for log in pair.logs] == [2, 1]

    asyncio.run(run())


def test_what_may_have_been_written_is_not_sent_again() -> None:
    async def run() -> None:
        pair = Pair()
        async with pair.running() as cluster:
            sender = await Sender.open(cluster, Sending("t"))
            refusal = PartitionProduceResponse(0, ErrorCode.REQUEST_TIMED_OUT)
            answer = ProduceResponse((TopicProduceResponse(TOPIC_ID, (refusal,)),))
            pair._produce = lambda *_: answer  # type: ignore[method-assign]  # one broker is lame
            with pytest.raises(BrokerError, match="t, partition 0: REQUEST_TIMED_OUT"):
                await sender.send([(Record(None, b"v", 0), 0)])
            assert pair.brokers[0].apis().count(ApiKey.PRODUCE) == 1

    asyncio.run(run())


def test_all_leaders_are_read_also_when_one_has_moved() -> None:
    async def run() -> list[tuple[int, int, bytes | None]]:
        pair = Pair()
        pair.logs = [[batch_of(b"%d" % at, at) for at in range(count)] for count in (3, 2)]
        found = []
        async with pair.running() as cluster:
            async for some in consume(cluster, TopicRead("t", ReadBounds(Start(), End()))):
                pair.truth = [2, 1]
                found += [(each.partition, each.offset, each.record.value) for each in some]
        return sorted(found)

    wanted = [(0, 0, b"0"), (0, 1, b"1"), (0, 2, b"2"), (1, 0, b"0"), (1, 1, b"1")]
    assert asyncio.run(run()) == wanted


def test_aborted_transactions_are_left_out_where_the_broker_names_them() -> None:
    marker = {"control": True, "transactional": True}
    batches = [
        batch_of(b"plain", 0),
        batch_of(b"aborted", 1, producer_id=7, transactional=True),
        batch_of(b"other", 2, producer_id=8, transactional=True),
        batch_of(b"", 3, producer_id=7, **marker),
        batch_of(b"committed", 4, producer_id=7, transactional=True),
    ]
    part = FetchPartitionData(
        0, records=b"".join(batches), aborted_transactions=(AbortedTransaction(7, 1),)
    )
    found = [each.record.value for each in _records(part, _Place(0, None))]
    assert found == [b"plain", b"other", b"committed"]
