"""Sending records: into batches, to their partitions, with what became of them.

Records with a key go where Kafka's own producers put them; those without go to one partition after
another, a batch at a time. Nothing is retried: the first failure ends the command, and what was
acknowledged before it was printed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lakelog.cli.conversation import check
from lakelog.cli.partitioner import partition_of
from lakelog.cli.topics import find_topic
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.server.client import Client
from lakelog.wire.messages.metadata import MetadataResponseTopic
from lakelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BATCH_RECORDS_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 500_000
TIMEOUT_MS: Final = 30_000
ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a record is now."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Sending:
    """How records are sent."""

    topic: str
    partition: int | None = None  # None: by key
    codec: Codec = Codec.NONE


class Sender:
    """Sends records to one topic over one connection."""

    def __init__(self, client: Client, sending: Sending, topic: MetadataResponseTopic) -> None:
        self._client = client
        self._sending = sending
        self._topic = topic
        self._count = len(topic.partitions)
        self._next = 0

    @classmethod
    async def open(cls, client: Client, sending: Sending) -> "Sender":
        """Find the topic; a broker that creates topics by itself makes it now."""
        topic = await find_topic(client, sending.topic, create=True)
        return cls(client, sending, topic)

    async def send(self, records: Iterable[tuple[Record, int | None]]) -> list[Produced]:
        """Send records, each to the partition given or to its own; returns where each one is."""
        numbered = list(records)
        places: dict[int, list[int]] = {}
        self._next += 1
        for at, (record, partition) in enumerate(numbered):
            places.setdefault(self._partition(record, partition), []).append(at)
        found: list[Produced | None] = [None] * len(numbered)
        for partition, ats in places.items():
            batch = [numbered[at][0] for at in ats]
            produced = await self._send_batch(partition, batch)
            for at, each in zip(ats, produced, strict=True):
                found[at] = each
        return [each for each in found if each is not None]

    def _partition(self, record: Record, partition: int | None) -> int:
        chosen = self._sending.partition if partition is None else partition
        if chosen is not None:
            return chosen
        if record.key is None:
            return self._next % self._count
        return partition_of(record.key, self._count)

    async def _send_batch(self, partition: int, records: list[Record]) -> list[Produced]:
        batch = build_batch(records, BatchOptions(codec=self._sending.codec))
        data = PartitionProduceData(partition, memoryview(batch))
        topic = TopicProduceData(self._topic.topic_id, (data,), name=self._sending.topic)
        answer = await self._client.call(
            ProduceRequest(acks=ALL, timeout_ms=TIMEOUT_MS, topic_data=(topic,)), ProduceResponse
        )
        result = answer.responses[0].partition_responses[0]
        about = f"{self._sending.topic}, partition {partition}"
        check(result.error_code, result.error_message, about=about)
        stamped = result.log_append_time_ms
        return [
            Produced(
                partition,
                result.base_offset + number,
                record.timestamp_ms if stamped < 0 else stamped,
            )
            for number, record in enumerate(records)
        ]


def chunks(
    records: Iterable[tuple[Record, int | None]], *, records_max: int = BATCH_RECORDS_MAX
) -> Iterator[list[tuple[Record, int | None]]]:
    """The records in groups that make a batch of good size."""
    group: list[tuple[Record, int | None]] = []
    size_bytes = 0
    for record, partition in records:
        group.append((record, partition))
        size_bytes += len(record.key or b"") + len(record.value or b"")
        if len(group) >= records_max or size_bytes >= BATCH_BYTES_MAX:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
