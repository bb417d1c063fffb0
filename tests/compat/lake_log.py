"""A topic's log as rows of its table, and the records that are hard on it, over the wire."""

import pyarrow as pa
from tests.records.table_cases import TIMESTAMPS_MS, hostile_batches

from lakelog.cli.command import check, open_cluster
from lakelog.cli.topics import find_topic
from lakelog.kafka_client.admin import TopicPartition, find_ends
from lakelog.records.header import parse_header, split_batches
from lakelog.records.table_rows import RowBuilder
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BYTES_MAX = 16 << 20
DECOMPRESSED_BYTES_MAX = 1 << 30
TAKE_BYTES = 64 << 20
WELCOME_MS = [stamp_ms for stamp_ms in TIMESTAMPS_MS if stamp_ms >= -1]
"""What a broker takes when a topic sets no bounds: no time before 1970."""


async def read_log(bootstrap: str, topic: str, partition: int) -> pa.Table:
    """Everything that one partition holds, as its table would hold it."""
    builder = RowBuilder(partition=partition, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    taken = []
    async with open_cluster({"bootstrap.servers": bootstrap}) as cluster:
        found = await find_topic(cluster, topic)
        place = TopicPartition(topic, partition)
        bounds = (await find_ends(cluster, [place], cluster.deadline()))[place]
        client = await cluster.connection(found.partitions[partition].leader)
        at, end = bounds.start, bounds.end
        while at < end:
            wanted = FetchPartition(partition, fetch_offset=at, partition_max_bytes=BYTES_MAX)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=BYTES_MAX,
                topics=(FetchTopic(found.topic_id, (wanted,), topic=topic),),
            )
            answer = await client.call(request, FetchResponse)
            check(answer.error_code, about=topic)
            (part,) = answer.responses[0].partitions
            check(part.error_code, about=topic)
            assert isinstance(part.records, memoryview), part
            for batch in split_batches(part.records):
                header = parse_header(batch)
                builder.add(header.base_offset, batch)
                at = header.base_offset + header.last_offset_delta + 1
            if builder.size_bytes > TAKE_BYTES:
                taken.append(builder.take())
    return pa.concat_tables([*taken, builder.take()])


async def send_hostile(bootstrap: str, topic: str) -> None:
    """Send every batch of the hostile matrix that a client may send, to both partitions."""
    async with open_cluster({"bootstrap.servers": bootstrap}) as cluster:
        found = await find_topic(cluster, topic)
        client = await cluster.any_connection()
        for number, (_, batch) in enumerate(hostile_batches(WELCOME_MS)):
            if parse_header(batch).log_append_time:
                continue
            part = PartitionProduceData(number % 2, memoryview(bytes(8) + bytes(batch[8:])))
            data = TopicProduceData(found.topic_id, (part,), name=topic)
            request = ProduceRequest(None, -1, 30_000, (data,))
            answer = await client.call(request, ProduceResponse)
            check(answer.responses[0].partition_responses[0].error_code, about=topic)
