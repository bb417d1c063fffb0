"""Produce requests of more batches than one record of the domain log takes (rule 25, B6)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.server.test_node import OPTIONS, new_world, running

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.log.options import LogOptions
from lakelog.model.failures import Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.columns import decode_columns
from lakelog.records.header import split_batches
from lakelog.server.options import Address
from lakelog.testing.broker import EmbeddedBroker
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCHES = 25_000
REQUESTS = 32
PATIENCE_S = 60.0


def one_record(number: int, sequence: int, producer: int) -> memoryview:
    """A batch of one record, whose value says which it is."""
    options = BatchOptions(producer_id=producer, producer_epoch=0, base_sequence=sequence)
    record = Record(None, b"%d/%d" % (number, sequence), 1_794_717_942_000)
    return memoryview(build_batch([record], options))


def one_batch_each(topic: bytes, partitions: range, sequence: int, producer: int) -> ProduceRequest:
    data = tuple(PartitionProduceData(at, one_record(at, sequence, producer)) for at in partitions)
    return ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=(TopicProduceData(topic_id=topic, partition_data=data),),
    )


async def topic_of(client: BrokerConnection, name: str, partitions: int) -> bytes:
    made = CreateTopicsRequest((CreatableTopic(name, partitions, -1),))
    assert (await client.call(made, CreateTopicsResponse)).topics[0].error_code == 0
    asked = MetadataRequest((MetadataRequestTopic(name=name),))
    return bytes((await client.call(asked, MetadataResponse)).topics[0].topic_id)


async def producer_of(client: BrokerConnection) -> int:
    """A producer id that was given out; another one is refused."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    return (await client.call(request, InitProducerIdResponse)).producer_id


async def sent(
    client: BrokerConnection, request: ProduceRequest
) -> Sequence[PartitionProduceResponse]:
    answer = await client.call(request, ProduceResponse, timeout_s=PATIENCE_S)
    return answer.responses[0].partition_responses


async def values(
    client: BrokerConnection, topic: bytes, partitions: Sequence[int]
) -> dict[int, list[bytes]]:
    """The values of each partition, by one fetch."""
    wanted = tuple(
        FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1 << 20)
        for at in partitions
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=32 << 20,
        session_id=0,
        session_epoch=-1,
        topics=(FetchTopic(topic_id=topic, partitions=wanted),),
    )
    answer = await client.call(request, FetchResponse, timeout_s=PATIENCE_S)
    found = {}
    for row in answer.responses[0].partitions:
        assert row.error_code == 0, row
        assert isinstance(row.records, memoryview), row
        read = [
            decode_columns(batch, decompressed_bytes_max=1 << 20)
            for batch in split_batches(row.records)
        ]
        found[row.partition_index] = [bytes(columns.value(0) or b"") for columns in read]
    return found


@pytest.mark.proof  # 25,000 partitions are made, written twice and read
def test_a_request_of_more_batches_than_a_record_takes_is_stored_and_its_repeat_is_known() -> None:
    async def scenario(address: Address) -> None:
        async with await dial(str(address)) as client:
            topic = await topic_of(client, "many", BATCHES)
            request = one_batch_each(topic, range(BATCHES), 0, await producer_of(client))
            for _ in range(2):  # D1: the second time they are duplicates
                rows = await sent(client, request)
                assert [row.index for row in rows] == list(range(BATCHES))
                assert {(row.error_code, row.base_offset) for row in rows} == {(0, 0)}
            found = await values(client, topic, range(BATCHES))
            assert found == {at: [b"%d/0" % at] for at in range(BATCHES)}

    with EmbeddedBroker() as broker:
        asyncio.run(scenario(broker.address))


class DownObjects(MemoryObjectStore):
    """A store that takes no WAL object until it is told to."""

    down = False

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.down and key.startswith("wal/"):
            raise Unavailable("the store is down")
        await super().put(key, parts)


@pytest.mark.proof  # 32,000 batches have to gather before the store is back
def test_what_gathers_while_the_store_is_down_is_stored_when_it_is_back() -> None:
    async def scenario() -> None:
        world = new_world()
        objects = DownObjects(world.clock)
        options = replace(OPTIONS, log=LogOptions(puts_max=1, put_retry_ms=5))
        async with running(replace(world, objects=objects), options) as node:
            client = await dial(str(node.address))
            topic = await topic_of(client, "many", 1_000)
            producer = await producer_of(client)
            objects.down = True
            requests = [one_batch_each(topic, range(1_000), at, producer) for at in range(REQUESTS)]
            size_bytes = sum(len(row.records or b"") for row in _rows(requests))
            clients = [await dial(str(node.address)) for _ in requests]
            answering = []
            for other, request in zip(clients, requests, strict=True):
                before = node.metrics.produced_bytes.value
                answering.append(asyncio.ensure_future(sent(other, request)))
                while node.metrics.produced_bytes.value == before:
                    await asyncio.sleep(0.001)
            assert node.metrics.produced_bytes.value == size_bytes
            objects.down = False
            for at, rows in enumerate(await asyncio.gather(*answering)):
                assert {(row.error_code, row.base_offset) for row in rows} == {(0, at)}
            found = await values(client, topic, range(1_000))
            for partition, stored in found.items():
                assert stored == [b"%d/%d" % (partition, at) for at in range(REQUESTS)]
            for connection in (client, *clients):
                await connection.close()

    asyncio.run(scenario())


def _rows(requests: Sequence[ProduceRequest]) -> list[PartitionProduceData]:
    return [row for request in requests for row in request.topic_data[0].partition_data]
