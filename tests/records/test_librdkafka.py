"""librdkafka's own bytes: its batches are accepted and read, and ours are read by it.

Its built-in mock cluster takes the place of a broker; raw Produce and Fetch requests get batches
into it and out of it untouched.
"""

import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lakelog.records.acceptance import AcceptedBatch, BatchRules, inspect
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.columns import decode_columns
from lakelog.records.header import patch, split_batches

NOW_MS = 1_700_000_000_000
ROWS = [
    Record(b"k", b"v" * 50, NOW_MS, [(b"a", b"1"), (b"a", None), (b"b", b"")]),
    Record(None, None, NOW_MS + 1),
    Record(b"", b"", NOW_MS + 2),
    *(Record(b"key-%d" % index, b"value %d " % index * 40, NOW_MS) for index in range(200)),
]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Producer]:
    producer = Producer({"test.mock.num.brokers": 1, "linger.ms": 50, "bootstrap.servers": ""})
    yield producer
    producer.flush(5)


def address(cluster: Producer) -> tuple[str, int]:
    (broker,) = cluster.list_topics(timeout=10).brokers.values()
    return broker.host, broker.port


def ask(where: tuple[str, int], key: int, version: int, body: bytes) -> memoryview:
    """One request with a header of version 1; the answer without its correlation id."""
    request = struct.pack(">hhih", key, version, 7, -1) + body
    with socket.create_connection(where, timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return memoryview(stream.read(size))[4:]


def fetch(where: tuple[str, int], topic: str) -> memoryview:
    """The records of partition 0, by Fetch version 4."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">iiiibi", -1, 100, 1, 1 << 20, 0, 1) + name
    answer = ask(where, 1, 4, body + struct.pack(">iiqi", 1, 0, 0, 1 << 20))
    start = 4 + 4 + len(name) + 4 + 4 + 2 + 8 + 8
    (aborted,) = struct.unpack_from(">i", answer, start)
    start += 4 + 16 * max(aborted, 0)
    (size,) = struct.unpack_from(">i", answer, start)
    return answer[start + 4 : start + 4 + size]


def produce(where: tuple[str, int], topic: str, batch: bytes) -> None:
    """One batch into partition 0, by Produce version 7."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hhii", -1, -1, 5_000, 1) + name
    answer = ask(where, 0, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)
    (code,) = struct.unpack_from(">h", answer, 4 + len(name) + 4 + 4)
    assert code == 0


@pytest.mark.parametrize("name", CODECS)
def test_its_batches_are_accepted_and_read(cluster: Producer, name: str) -> None:
    where = address(cluster)
    topic = f"theirs-{name}"
    settings = {"bootstrap.servers": f"{where[0]}:{where[1]}", "compression.codec": name}
    producer = Producer({**settings, "linger.ms": 200, "enable.idempotence": True})
    for row in ROWS:
        producer.produce(
            topic,
            key=row.key,
            value=row.value,
            partition=0,
            timestamp=row.timestamp_ms,
            headers=[(key.decode(), value) for key, value in row.headers],
        )
    assert producer.flush(10) == 0
    found = []
    for batch in split_batches(fetch(where, topic)):
        # As a producer sent it: the mock broker wrote its own base offset.
        sent = memoryview(b"".join(patch(batch, base_offset=0)))
        result = inspect(sent, BatchRules(now_ms=NOW_MS, produce_version=7))
        assert isinstance(result, AcceptedBatch)
        assert result.producer_id >= 0
        columns = decode_columns(result.data, decompressed_bytes_max=1 << 20)
        assert columns.header.codec == CODECS[name]
        found += [
            (columns.key(index), columns.value(index), columns.headers(index))
            for index in range(len(columns))
        ]
    assert found == [(row.key, row.value, list(row.headers)) for row in ROWS]


@pytest.mark.parametrize("name", CODECS)
def test_it_reads_our_batches(cluster: Producer, name: str) -> None:
    where = address(cluster)
    topic = f"ours-{name}"
    cluster.list_topics(topic, timeout=10)
    options = BatchOptions(codec=Codec(CODECS[name]), partition_leader_epoch=0)
    produce(where, topic, build_batch(ROWS, options))
    consumer = Consumer(
        {
            "bootstrap.servers": f"{where[0]}:{where[1]}",
            "group.id": "g",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(len(ROWS), timeout=10)
    consumer.close()
    found = [
        (
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            [(key.encode(), value) for key, value in message.headers() or ()],
        )
        for message in messages
    ]
    assert found == [
        (offset, row.timestamp_ms, row.key, row.value, list(row.headers))
        for offset, row in enumerate(ROWS)
    ]
