"""A topic of many records whose timestamps interleave over its partitions, written fast.

Row `i` of every partition was made in millisecond `i`, so that an ordered reader has to merge all
partitions all the time: the hardest case. One partition may lie hours behind the others.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.raw import PRODUCE, PRODUCE_VERSION, Client, check_produced, produce_body
from lakelog.records.build import NUMBERS, BatchOptions, RecordBlock, build_from_block
from lakelog.records.codecs import Codec

# A day ago: old enough for hours behind, too young for anybody's retention.
BEGIN_MS = time.time_ns() // 1_000_000 - 86_400_000
KEY_BYTES = 8
NOISE_BYTES = 1 << 20
REQUEST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TopicShape:
    """How many records of which size, on how many partitions, in batches of how many bytes."""

    records: int
    partitions: int
    record_bytes: int
    codec: str = "none"
    batch_bytes: int = 16_384
    behind_ms: int = 0
    """How much earlier than the others the last partition's records were made."""

    @property
    def rows(self) -> int:
        """Records in every partition."""
        return self.records // self.partitions

    @property
    def batch_rows(self) -> int:
        """Records in a batch."""
        return max(self.batch_bytes // self.record_bytes, 1)


def fill(port: int, topic: str, shape: TopicShape) -> None:
    """Make the topic and write all its records."""
    with Client(port) as client:
        client.create_topic(topic, shape.partitions)
        waiting: list[tuple[int, bytes]] = []
        size = 0
        for partition, batch in batches(shape):
            # A request takes one batch a partition.
            if size > REQUEST_BYTES or any(partition == other for other, _ in waiting):
                send(client, topic, waiting)
                waiting, size = [], 0
            waiting.append((partition, batch))
            size += len(batch)
        send(client, topic, waiting)


def send(client: Client, topic: str, waiting: list[tuple[int, bytes]]) -> None:
    """Produce one request's batches."""
    body = produce_body(topic, waiting)
    check_produced(client.call(PRODUCE, PRODUCE_VERSION, body))


def batches(shape: TopicShape) -> Iterator[tuple[int, bytes]]:
    """All batches of all partitions, the partitions in turn."""
    keys, values = blobs(shape)
    codec = Codec[shape.codec.upper()]
    for first in range(0, shape.rows, shape.batch_rows):
        rows = np.arange(first, min(first + shape.batch_rows, shape.rows))
        for partition in range(shape.partitions):
            numbers = numbered(shape, rows, partition, len(values))
            block = RecordBlock(numbers, (keys, values, keys, keys), np.zeros((4, 0), np.int64))
            yield partition, build_from_block(block, BatchOptions(codec=codec))


def blobs(shape: TopicShape) -> tuple[np.ndarray, np.ndarray]:
    """Bytes to cut keys and values from: a quarter of them is noise."""
    values = np.full(NOISE_BYTES, ord("x"), np.uint8)
    noise = np.random.default_rng(1).integers(0, 256, NOISE_BYTES // 4, np.uint8)
    values[::4] = noise
    keys = np.frombuffer(b"".join(b"%08d" % row for row in range(10_000)), np.uint8).copy()
    for blob in (keys, values):
        blob.flags.writeable = False
    return keys, values


def numbered(shape: TopicShape, rows: np.ndarray, partition: int, blob_bytes: int) -> np.ndarray:
    """The packed numbers of these rows, as `RecordBlock` has them."""
    value_bytes = shape.record_bytes - KEY_BYTES
    numbers = np.zeros((NUMBERS, len(rows)), np.int64)
    behind_ms = shape.behind_ms if partition == shape.partitions - 1 else 0
    numbers[0] = BEGIN_MS + rows - behind_ms
    numbers[1] = rows - rows[0]
    numbers[2] = rows % 10_000 * KEY_BYTES
    numbers[3] = numbers[2] + KEY_BYTES
    numbers[4] = rows * 7_919 % (blob_bytes - value_bytes)
    numbers[5] = numbers[4] + value_bytes
    return numbers
