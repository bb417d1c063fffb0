"""Two broker processes on one SQLite file and one directory are one cluster."""

import asyncio
from pathlib import Path

from bench.ours import start_ours

from lakelog.kafka_client.connection import BrokerConnection
from lakelog.kafka_client.dialing import dial
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import parse_header
from lakelog.server.options import Address
from lakelog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lakelog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lakelog.wire.schema import RecordParts

ROUNDS = 60


async def topic_id(client: BrokerConnection) -> bytes:
    asked = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    return (await client.call(asked, MetadataResponse)).topics[0].topic_id


async def write(client: BrokerConnection, topic: bytes, value: bytes) -> int:
    record = Record(timestamp_ms=1_700_000_000_000, key=None, value=value, headers=())
    data = memoryview(build_batch([record], BatchOptions()))
    part = TopicProduceData(topic_id=topic, partition_data=(PartitionProduceData(0, data),))
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(part,))
    answer = await client.call(request, ProduceResponse)
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == 0, row
    return row.base_offset


async def read(client: BrokerConnection, topic: bytes, offset: int) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=(FetchTopic(topic_id=topic, partitions=(part,)),),
    )
    answer = await client.call(request, FetchResponse)
    row = answer.responses[0].partitions[0]
    assert row.error_code == 0, row
    assert not isinstance(row.records, RecordParts)
    return bytes(row.records or b"")


async def head(client: BrokerConnection) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name="t", partitions=(part,)),))
    answer = await client.call(request, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


async def alternate(one: Address, two: Address) -> None:
    """L7 across processes: what one acknowledged, the other serves at once, without waiting."""
    clients = [await dial(str(one)), await dial(str(two))]
    made = CreateTopicsRequest(
        topics=(CreatableTopic(name="t", num_partitions=1, replication_factor=1),),
        timeout_ms=10_000,
    )
    answer = await clients[0].call(made, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    topic = await topic_id(clients[1])
    for number in range(ROUNDS):
        writer, reader = clients[number % 2], clients[1 - number % 2]
        value = b"value %d" % number
        assert await write(writer, topic, value) == number
        assert await head(reader) == number + 1
        records = memoryview(await read(reader, topic, number))
        assert parse_header(records).base_offset == number
        assert value in bytes(records)
    for client in clients:
        await client.close()


def test_a_record_acknowledged_by_one_broker_is_read_from_the_other_at_once(
    tmp_path: Path,
) -> None:
    first = start_ours(tmp_path, broker_id=1)
    try:
        second = start_ours(tmp_path, broker_id=2)
        try:
            one, two = (Address("127.0.0.1", broker.port) for broker in (first, second))
            asyncio.run(alternate(one, two))
        finally:
            second.stop()
    finally:
        first.stop()
