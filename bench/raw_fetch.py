"""Fetch on a bare socket: a consumer that reads whole batches and does nothing with them.

Rules: it shares no code with the broker. One request is under way at a time, with the limits of
the usual clients; a partition that has answered goes to the end of the next request. What counts
are offsets: bytes on the wire differ between a batch as it was written and one that was rebuilt.
"""

import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.broker import HOST
from bench.raw import KafkaError, frame, string

FETCH, FETCH_VERSION = 1, 4
BYTES_MAX = 50 << 20
PARTITION_BYTES_MAX = 1 << 20
WAIT_MS = 500
SILENCE_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one partition answered: how many bytes of whole batches, and where the next begins."""

    partition: int
    size_bytes: int
    next_offset: int


def fetch_body(
    topic: str, wanted: Sequence[tuple[int, int]], *, wait_ms: int = WAIT_MS, bytes_min: int = 1
) -> bytes:
    """Return a Fetch body for (partition, offset) pairs."""
    head = struct.pack(">iiiib", -1, wait_ms, bytes_min, BYTES_MAX, 0) + struct.pack(">i", 1)
    rows = (struct.pack(">iqi", at, offset, PARTITION_BYTES_MAX) for at, offset in wanted)
    return head + string(topic) + struct.pack(">i", len(wanted)) + b"".join(rows)


def fetched(answer: bytes | memoryview, offsets: Mapping[int, int]) -> Iterator[Fetched]:
    """Yield what each partition of a Fetch answer holds beyond the offsets that were asked for."""
    _, topics = struct.unpack_from(">ii", answer)
    if topics == 0:
        return
    (name_length,) = struct.unpack_from(">h", answer, 8)
    (partitions,) = struct.unpack_from(">i", answer, 10 + name_length)
    position = 14 + name_length
    for _ in range(partitions):
        partition, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, position)
        if error:
            raise KafkaError(f"fetch of partition {partition} answered {error}")
        position += 26 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, position)
        position += 4
        if size > 0:
            yield walk(answer, position, size, partition, offsets[partition])
            position += size


def walk(answer: bytes | memoryview, start: int, size: int, partition: int, offset: int) -> Fetched:
    """Step over the batches of one partition; a last one that is cut off does not count."""
    at, end = start, start + size
    while at + 12 <= end:
        base, length = struct.unpack_from(">qi", answer, at)
        if at + 12 + length > end:
            break
        (last_delta,) = struct.unpack_from(">i", answer, at + 23)
        offset = max(offset, base + last_delta + 1)
        at += 12 + length
    return Fetched(partition, at - start, offset)


class Fetcher:
    """One blocking connection whose answers are received into the same memory again and again."""

    def __init__(self, port: int, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = bytearray(1 << 20)
        self._correlation_id = 0

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, body: bytes) -> memoryview:
        """Send one Fetch and return the answer's body, which the next call overwrites."""
        self._correlation_id += 1
        self._socket.sendall(frame(FETCH, FETCH_VERSION, self._correlation_id, body))
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        assert struct.unpack_from(">i", answer)[0] == self._correlation_id
        return answer[4:]

    def _read(self, size: int) -> memoryview:
        if size > len(self._memory):
            self._memory = bytearray(size)
        target = memoryview(self._memory)[:size]
        received = 0
        while received < size:
            count = self._socket.recv_into(target[received:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count
        return target


@dataclass(frozen=True, slots=True)
class Drained:
    """What a reader got: records by their offsets, bytes on the wire, and how long it took."""

    records: int
    wire_bytes: int
    seconds: float


def drain(port: int, topic: str, ends: Mapping[int, int]) -> Drained:
    """Read a topic from offset 0 to these ends."""
    offsets = dict.fromkeys(ends, 0)
    waiting = list(ends)
    wire_bytes = 0
    with Fetcher(port) as fetcher:
        started = heard = time.perf_counter()
        while waiting:
            answer = fetcher.call(fetch_body(topic, [(at, offsets[at]) for at in waiting]))
            for one in fetched(answer, offsets):
                if one.next_offset > offsets[one.partition]:
                    heard = time.perf_counter()
                offsets[one.partition] = one.next_offset
                wire_bytes += one.size_bytes
                waiting.remove(one.partition)
                waiting.append(one.partition)
            waiting = [at for at in waiting if offsets[at] < ends[at]]
            if time.perf_counter() - heard > SILENCE_S_MAX:
                raise KafkaError(f"{topic} is silent at {offsets}, short of {ends}")
        seconds = time.perf_counter() - started
    return Drained(sum(ends.values()), wire_bytes, seconds)


def drain_for(port: int, topic: str, ends: Mapping[int, int], seconds: float) -> Drained:
    """Read a topic again and again for so long, and to its end the last time."""
    records = wire_bytes = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        once = drain(port, topic, ends)
        records += once.records
        wire_bytes += once.wire_bytes
    return Drained(records, wire_bytes, time.perf_counter() - started)
