"""A small Kafka client on bare sockets, for load that client libraries cannot make.

Rules: it shares no code with the broker it measures. Only versions without tagged fields are used,
which both brokers accept. Errors are raised with their Kafka code; nothing is retried.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Sequence

import crc32c

from bench.broker import HOST

PRODUCE, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 2, 3, 18, 19, 20
CREATE_PARTITIONS = 37
LIST_OFFSETS_VERSION, GROW_VERSION = 1, 1
# Kafka's controller refuses an operation that takes more than 10,000 records.
PARTITIONS_PER_REQUEST_MAX = 5_000
PRODUCE_VERSION, METADATA_VERSION, CREATE_VERSION, DELETE_VERSION = 7, 4, 4, 3
CLIENT_ID = b"lakelog-bench"
REQUEST_TIMEOUT_MS = 60_000


class KafkaError(RuntimeError):
    """A broker answered with an error code."""


def string(text: str) -> bytes:
    """Encode a Kafka string."""
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    """Return a whole request with header version 1."""
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(header) + len(body)) + header + body


def varint(number: int) -> bytes:
    """Encode a zigzag variable-length integer."""
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def batch(values: Sequence[bytes], timestamp_ms: int) -> bytes:
    """Return one uncompressed record batch (magic 2) without keys or headers."""
    records = bytearray()
    for delta, value in enumerate(values):
        record = b"\0\0" + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
        records += varint(len(record)) + record
    covered = struct.pack(
        ">hiqqqhii", 0, len(values) - 1, timestamp_ms, timestamp_ms, -1, -1, -1, len(values)
    )
    covered += records
    crc = crc32c.crc32c(covered)
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc) + covered


def produce_body(topic: str, batches: Sequence[tuple[int, bytes]]) -> bytes:
    """Return a Produce body with acks=all: one batch per (partition, batch)."""
    parts = [struct.pack(">hhii", -1, -1, REQUEST_TIMEOUT_MS, 1), string(topic)]
    parts.append(struct.pack(">i", len(batches)))
    for partition, records in batches:
        parts += (struct.pack(">ii", partition, len(records)), records)
    return b"".join(parts)


def check_produced(answer: bytes) -> None:
    """Raise if any partition of a Produce answer carries an error."""
    topics, name_length = struct.unpack_from(">ih", answer, 0)
    assert topics == 1, topics
    position = 6 + name_length
    (partitions,) = struct.unpack_from(">i", answer, position)
    for index in range(partitions):
        _, error = struct.unpack_from(">ih", answer, position + 4 + index * 30)
        if error:
            raise KafkaError(f"produce answered {error}")


class Client:
    """One blocking connection for administration: create, delete, metadata, a first record."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request and return the answer's body."""
        self._correlation_id += 1
        self._socket.sendall(frame(api_key, version, self._correlation_id, body))
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer[4:]

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self._socket.recv(size - len(received))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            received += chunk
        return bytes(received)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic with one replica and wait until every partition can be used."""
        first = min(partitions, PARTITIONS_PER_REQUEST_MAX)
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", first, 1, 0, 0)
        answer = self.call(CREATE_TOPICS, CREATE_VERSION, body + struct.pack(">ib", 60_000, 0))
        (name_length,) = struct.unpack_from(">h", answer, 8)
        (error,) = struct.unpack_from(">h", answer, 10 + name_length)
        if error:
            raise KafkaError(f"create {topic} answered {error}")
        for total in range(2 * first, partitions + first, first):
            self.grow_topic(topic, min(total, partitions))
        deadline = time.monotonic() + 120
        # Metadata is not enough: Kafka names a leader before that leader has opened its log.
        while len(self.end_offsets(topic, partitions)) < partitions:
            if time.monotonic() > deadline:
                raise KafkaError(f"the partitions of {topic} did not come up")

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        body = (
            struct.pack(">i", 1) + string(topic) + struct.pack(">iiib", partitions, -1, 60_000, 0)
        )
        answer = self.call(CREATE_PARTITIONS, GROW_VERSION, body)
        (error,) = struct.unpack_from(">h", answer, 10 + len(topic.encode()))
        if error:
            raise KafkaError(f"grow {topic} answered {error}")

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", 60_000)
        answer = self.call(DELETE_TOPICS, DELETE_VERSION, body)
        (error,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if error:
            raise KafkaError(f"delete {topic} answered {error}")

    def metadata(self, topic: str) -> bytes:
        """Return the raw Metadata answer for one topic."""
        body = struct.pack(">i", 1) + string(topic) + b"\0"
        return self.call(METADATA, METADATA_VERSION, body)

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the end offset of every partition that answers for itself."""
        asked = b"".join(struct.pack(">iq", partition, -1) for partition in range(partitions))
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", partitions) + asked
        answer = self.call(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        position = 6 + len(topic.encode())
        (count,) = struct.unpack_from(">i", answer, position)
        rows = (struct.unpack_from(">ihqq", answer, position + 4 + 22 * at) for at in range(count))
        return {partition: offset for partition, error, _, offset in rows if error == 0}

    def produce(self, topic: str, partition: int, records: bytes) -> None:
        """Produce one batch and wait for its acknowledgement."""
        body = produce_body(topic, [(partition, records)])
        check_produced(self.call(PRODUCE, PRODUCE_VERSION, body))


class Pipe:
    """One asyncio connection that may have many requests in flight; answers come in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @staticmethod
    async def connect(port: int, *, limit: int = 1 << 20) -> "Pipe":
        """Open a connection."""
        reader, writer = await asyncio.open_connection(HOST, port, limit=limit)
        return Pipe(reader, writer)

    async def send(self, api_key: int, version: int, body: bytes) -> None:
        """Send one request; waits only while the socket's buffer is full."""
        self._correlation_id += 1
        self._writer.write(frame(api_key, version, self._correlation_id, body))
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Return the next answer's body."""
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return (await self._reader.readexactly(size))[4:]

    async def call(self, api_key: int, version: int, body: bytes) -> bytes:
        """Send one request and wait for its answer."""
        await self.send(api_key, version, body)
        return await self.receive()

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            # The broker may have gone first.
            return
