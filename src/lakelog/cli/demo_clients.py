"""The Kafka clients of the demo: confluent-kafka where it is installed, else our own.

Ours sends and fetches like any other, but joins no group.
"""

import asyncio
import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeAlias

from lakelog.cli.command import open_cluster
from lakelog.cli.offsets import End, ReadBounds, Start
from lakelog.cli.record_clients import Sender, Sending, TopicRead, chunks, consume
from lakelog.model.failures import Unavailable
from lakelog.records.build import Record
from lakelog.records.codecs import Codec
from lakelog.server.options import Address

GROUP: Final = "demo-readers"
QUIET_POLLS_MAX: Final = 30
FLUSH_S: Final = 60.0
QUEUED_MAX: Final = 50_000
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Placed: TypeAlias = dict[tuple[int, int], Record]
"""Records by partition and offset."""


class KafkaClients(Protocol):
    """Whoever produces and consumes in the demo."""

    name: str
    reader: str

    async def produce(self, topic: str, records: Sequence[Record]) -> Placed:
        """Send all records; where each one is."""

    async def consume(self, topic: str, count: int) -> Placed:
        """Read so many records from the beginning."""


def clients(address: Address) -> KafkaClients:
    """The best clients that are installed here."""
    if importlib.util.find_spec("confluent_kafka") is None:
        return OwnClients(address)
    return ConfluentClients(address)


class OwnClients:
    """Our own connection."""

    name = "Lakelog's own client"
    reader = name

    def __init__(self, address: Address) -> None:
        self._address = address

    async def produce(self, topic: str, records: Sequence[Record]) -> Placed:
        """Send all records; where each one is."""
        placed: Placed = {}
        async with open_cluster({"bootstrap.servers": str(self._address)}) as cluster:
            sender = await Sender.open(cluster, Sending(topic, codec=Codec.LZ4))
            for chunk in chunks((record, None) for record in records):
                for (record, _), where in zip(chunk, await sender.send(chunk), strict=True):
                    placed[where.partition, where.offset] = record
        return placed

    async def consume(self, topic: str, count: int) -> Placed:
        """Read so many records from the beginning."""
        placed: Placed = {}
        async with open_cluster({"bootstrap.servers": str(self._address)}) as cluster:
            async for some in consume(cluster, TopicRead(topic, ReadBounds(Start(), End()))):
                placed |= {(each.partition, each.offset): each.record for each in some}
        return placed


class ConfluentClients:
    """librdkafka's producers, one for each codec, and a consumer of it in a group."""

    name = "confluent-kafka"
    reader = f"the group {GROUP!r} of confluent-kafka"

    def __init__(self, address: Address) -> None:
        self._address = address

    async def produce(self, topic: str, records: Sequence[Record]) -> Placed:
        """Send all records; where each one is."""
        return await _on_thread(lambda: self._produce(topic, records))

    async def consume(self, topic: str, count: int) -> Placed:
        """Read so many records from the beginning, and commit what was read."""
        return await _on_thread(lambda: self._consume(topic, count))

    def _produce(self, topic: str, records: Sequence[Record]) -> Placed:
        placed: Placed = {}
        producers = [self._producer(codec, at % 2 == 0) for at, codec in enumerate(CODECS)]
        for number, record in enumerate(records):
            _send(producers[number % len(producers)], topic, record, placed)
        left = sum(producer.flush(FLUSH_S) for producer in producers)
        if left or len(placed) != len(records):
            raise Unavailable(f"{len(placed)} of {len(records)} records were acknowledged")
        return placed

    def _producer(self, codec: str, is_idempotent: bool) -> Any:
        import confluent_kafka  # noqa: PLC0415 - only where it is installed

        return confluent_kafka.Producer(
            {
                "bootstrap.servers": str(self._address),
                "compression.type": codec,
                "enable.idempotence": is_idempotent,
                "linger.ms": 20,
            }
        )

    def _consume(self, topic: str, count: int) -> Placed:
        import confluent_kafka  # noqa: PLC0415 - only where it is installed

        placed: Placed = {}
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": str(self._address),
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([topic])
            quiet = 0
            while len(placed) < count and quiet < QUIET_POLLS_MAX:
                some = consumer.consume(10_000, timeout=1.0)
                quiet = 0 if some else quiet + 1
                for message in some:
                    if message.error() is not None:
                        raise Unavailable(f"{topic}: {message.error()}")
                    placed[message.partition(), message.offset()] = _record(message)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return placed


def _send(producer: Any, topic: str, record: Record, placed: Placed) -> None:
    def told(error: Any, message: Any) -> None:
        if error is None:
            placed[message.partition(), message.offset()] = record

    if len(producer) >= QUEUED_MAX:
        producer.poll(0.1)
    producer.produce(
        topic,
        record.value,
        record.key,
        timestamp=record.timestamp_ms,
        headers=[(key.decode(), value) for key, value in record.headers],
        on_delivery=told,
    )
    producer.poll(0)


def _record(message: Any) -> Record:
    headers = tuple((key.encode(), value) for key, value in message.headers() or ())
    return Record(message.key(), message.value(), message.timestamp()[1], headers)


async def _on_thread(work: Callable[[], Placed]) -> Placed:
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-demo") as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, work)
