"""confluent-kafka, aiokafka and kafka-python with their default settings."""

import asyncio
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence

import aiokafka
import confluent_kafka
from tests.compat.check import Seen
from tests.compat.clients import SILENCE_S
from tests.compat.corpus import CODECS, Ability, Record, blocks

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas by a call that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    import kafka.codec

FLUSH_TIMEOUT_S = 120.0


class UndeliveredError(RuntimeError):
    """A producer gave up on a record."""


class ConfluentProducer:
    """librdkafka in Python; optionally with idempotence, which is off by default there."""

    ability: Ability = Ability()
    notes: Sequence[str] = ()

    def __init__(self, *, idempotent: bool = False) -> None:
        self.name = "confluent idempotent" if idempotent else "confluent-kafka"
        self._settings = {"enable.idempotence": True} if idempotent else {}

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        failures: list[str] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        for codec, block in blocks(records):
            settings = {"bootstrap.servers": bootstrap, "compression.type": codec}
            producer = confluent_kafka.Producer(settings | self._settings)
            for record in block:
                self._send(producer, topic, record, delivered)
            left = producer.flush(FLUSH_TIMEOUT_S)
            if failures or left:
                raise UndeliveredError(f"{left} left, failed: {failures[:3]}")

    @staticmethod
    def _send(
        producer: confluent_kafka.Producer, topic: str, record: Record, delivered: object
    ) -> None:
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    on_delivery=delivered,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                )
            except BufferError:
                producer.poll(0.05)
            else:
                producer.poll(0)
                return


class ConfluentConsumer:
    """librdkafka's consumer; it commits nothing, because nobody reads in a group here."""

    name = "confluent-kafka"
    codecs: Sequence[str] = CODECS
    notes: Sequence[str] = (
        "confluent-kafka: needs a group.id even to read by assignment; enable.auto.commit=false",
    )

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start until as many records came as are expected."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "compat", "enable.auto.commit": False}
        )
        start = confluent_kafka.OFFSET_BEGINNING
        consumer.assign([confluent_kafka.TopicPartition(topic, each, start) for each in expected])
        left = sum(map(len, expected.values()))
        try:
            while left > 0:
                messages = consumer.consume(min(left, 5_000), timeout=SILENCE_S)
                if not messages:
                    return
                for message in messages:
                    if message.error() is not None:
                        raise RuntimeError(str(message.error()))
                    yield Seen(
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                        message.timestamp()[1],
                    )
                left -= len(messages)
        finally:
            consumer.close()


class AiokafkaProducer:
    """The asyncio client; acks=1 and no idempotence by default."""

    name = "aiokafka"
    ability = Ability(null_key_and_value=False)
    notes: Sequence[str] = ()

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        for codec, block in blocks(records):
            asyncio.run(self._write(bootstrap, topic, codec, block))

    @staticmethod
    async def _write(bootstrap: str, topic: str, codec: str, block: Sequence[Record]) -> None:
        compression = None if codec == "none" else codec
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression
        )
        await producer.start()
        try:
            acknowledgements = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                    headers=list(record.headers),
                )
                for record in block
            ]
            await asyncio.gather(*acknowledgements)
        finally:
            await producer.stop()


class AiokafkaConsumer:
    """The asyncio client without a group."""

    name = "aiokafka"
    codecs: Sequence[str] = CODECS
    notes: Sequence[str] = ()

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start until as many records came as are expected."""
        with asyncio.Runner() as runner:
            consumer = runner.run(self._start(bootstrap, topic, sorted(expected)))
            left = sum(map(len, expected.values()))
            try:
                while left > 0:
                    got = runner.run(consumer.getmany(timeout_ms=int(SILENCE_S * 1000)))
                    if not got:
                        return
                    for message in (each for batch in got.values() for each in batch):
                        left -= 1
                        yield Seen(
                            message.partition,
                            message.offset,
                            message.key,
                            message.value,
                            tuple(message.headers),
                            message.timestamp,
                        )
            finally:
                runner.run(consumer.stop())

    @staticmethod
    async def _start(
        bootstrap: str, topic: str, partitions: Sequence[int]
    ) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, each) for each in partitions])
        await consumer.seek_to_beginning()
        return consumer


def kafka_python_codecs() -> tuple[str, ...]:
    """The codecs whose libraries kafka-python finds."""
    has = {
        "none": True,
        "gzip": kafka.codec.has_gzip(),
        "snappy": kafka.codec.has_snappy(),
        "lz4": kafka.codec.has_lz4(),
        "zstd": kafka.codec.has_zstd(),
    }
    return tuple(codec for codec in CODECS if has[codec])


class KafkaPythonProducer:
    """The pure Python client; idempotent by default since 3.0."""

    name = "kafka-python"
    notes: Sequence[str] = ()

    def __init__(self) -> None:
        self.ability = Ability(
            codecs=kafka_python_codecs(), null_header_values=False, null_key_and_value=False
        )

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def write(self, bootstrap: str, topic: str, records: Sequence[Record]) -> None:
        """Write all records in order and return when all are acknowledged."""
        for codec, block in blocks(records):
            producer = kafka.KafkaProducer(
                bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
            )
            try:
                promises = [
                    producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in block
                ]
                producer.flush(timeout=FLUSH_TIMEOUT_S)
                for promise in promises:
                    promise.get(timeout=FLUSH_TIMEOUT_S)
            finally:
                producer.close()


class KafkaPythonConsumer:
    """The pure Python client without a group."""

    name = "kafka-python"
    notes: Sequence[str] = ()

    def __init__(self) -> None:
        self.codecs: Sequence[str] = kafka_python_codecs()

    def prepare(self) -> None:
        """Nothing: it is a dependency of the tests."""

    def read(
        self, bootstrap: str, topic: str, expected: Mapping[int, Sequence[Record]]
    ) -> Iterator[Seen]:
        """Read every partition from its start until as many records came as are expected."""
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
        consumer.assign([kafka.TopicPartition(topic, each) for each in expected])
        consumer.seek_to_beginning()
        left = sum(map(len, expected.values()))
        heard = time.monotonic()
        try:
            while left > 0 and time.monotonic() - heard < SILENCE_S:
                for batch in consumer.poll(timeout_ms=1_000).values():
                    heard = time.monotonic()
                    for message in batch:
                        left -= 1
                        yield Seen(
                            message.partition,
                            message.offset,
                            message.key,
                            message.value,
                            tuple(message.headers),
                            message.timestamp,
                        )
        finally:
            consumer.close()
