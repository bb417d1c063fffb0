"""A broker with topics for the jobs of Spark: written and read back by a client that is not Spark.

Every arm has a broker of its own, so that topics have the same names everywhere. On ours a part of
the records is in data files before anything is read, the rest in WAL objects.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.broker import ProcessBroker
from bench.lake import Workshop, catch_up, in_workshop
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession
from tests.compat.corpus import Record, make
from tests.compat.python_clients import ConfluentConsumer, ConfluentProducer
from tests.compat.spark_job import Connection, Rows

from lakelog.pipeline.files.run_task import InlineEngine

ORDERS, LATE, TRIMMED, PAYMENTS = "orders", "orders-late", "trimmed", "payments"
PARTITIONS: Mapping[str, int] = {ORDERS: 4, LATE: 2, TRIMMED: 1, PAYMENTS: 2}
COUNTS: Mapping[str, int] = {ORDERS: 400, LATE: 60, TRIMMED: 40, PAYMENTS: 30}
TRIMMED_TO = 25
SILENCE_S = 15.0
REFUSED = "refused"
"""What a case comes to that Spark or a connector does not accept."""


@dataclass
class Lab:
    """A broker and what was written to it."""

    broker: ProcessBroker
    data: Path | None
    """Where ours keeps its data; None for another broker."""
    base_ms: int
    """The time of the first record of every topic."""
    folder: Path
    """For the files of jobs."""
    written: dict[str, list[Record]] = field(default_factory=dict)

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic; on ours its table is always due."""
        config = {"lakelog.table.freshness.ms": "0"} if self.data is not None else {}
        wanted = NewTopic(topic, partitions, 1, config=config)
        self._done(lambda admin: admin.create_topics([wanted]))

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._done(lambda admin: admin.create_partitions([NewPartitions(topic, partitions)]))

    def trim(self, topic: str, offset: int) -> None:
        """Remove what is before an offset of partition 0."""
        self._done(lambda admin: admin.delete_records([TopicPartition(topic, 0, offset)]))

    def add(self, topic: str, count: int, partitions: int) -> None:
        """Write the next records of a topic, to each partition in turn."""
        there = self.written.setdefault(topic, [])
        first = len(there)
        made = [
            make(number, first + count, ConfluentProducer.ability, self.base_ms)
            for number in range(first, first + count)
        ]
        records = [replace(one, partition=one.index % partitions) for one in made]
        ConfluentProducer().write(self.broker.bootstrap, topic, records)
        there += records

    def seed(self) -> None:
        """Make all topics; on ours the first half of them becomes data files."""
        for topic, partitions in PARTITIONS.items():
            self.create(topic, partitions)
            self.add(topic, COUNTS[topic] // 2, partitions)
        if self.data is not None:
            in_workshop(self.data, self._compact)
        for topic, partitions in PARTITIONS.items():
            self.add(topic, COUNTS[topic] - COUNTS[topic] // 2, partitions)
        self.trim(TRIMMED, TRIMMED_TO)

    @staticmethod
    async def _compact(workshop: Workshop) -> None:
        pipeline = workshop.pipeline(InlineEngine(workshop.objects))
        await catch_up(pipeline)
        await pipeline.close()

    def expected(self, *topics: str) -> Rows:
        """All rows that were written, as a job shows them."""
        return tuple(
            row for topic in sorted(topics) for row in expected_rows(topic, self.written[topic])
        )

    def consumed(self, topic: str) -> Rows:
        """What is in a topic, as another client reads it: without times, which differ."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": "spark-lab",
                "enable.auto.commit": False,
            }
        )
        try:
            partitions = consumer.list_topics(topic, SILENCE_S).topics[topic].partitions
            counts = {
                one: consumer.get_watermark_offsets(TopicPartition(topic, one), SILENCE_S)[1]
                for one in partitions
            }
        finally:
            consumer.close()
        stand_ins = {one: [_ANY] * count for one, count in counts.items()}
        seen = ConfluentConsumer().read(self.broker.bootstrap, topic, stand_ins)
        rows = [(one.partition, one.offset, one.key, one.value, one.headers) for one in seen]
        assert len(rows) == sum(counts.values()), f"{len(rows)} of {counts}"
        return tuple(sorted(rows, key=lambda row: row[:2]))

    def _done(self, ask: Callable[[AdminClient], Mapping[object, Future[object]]]) -> None:
        """Ask, and wait for every answer; the client must live as long as it is waited for."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 3})
        for answer in ask(admin).values():
            answer.result(SILENCE_S)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a case is run: the words of its arm, the broker, and a folder for its files."""

    spark: SparkSession
    to: Connection
    lab: Lab
    folder: Path


@dataclass(frozen=True, slots=True)
class Case:
    """A name, what is done, and what must come of it."""

    name: str
    run: Callable[[Stage], object]
    expected: Callable[[Lab], object]
    is_quick: bool = False


_ANY = Record(0, 0, "none", None, None, (), 0)


def expected_rows(topic: str, records: Sequence[Record]) -> Rows:
    """Records as a job shows them with headers, by partition and offset."""
    ends: dict[int, int] = {}
    rows = []
    for one in records:
        offset = ends.get(one.partition, 0)
        ends[one.partition] = offset + 1
        assert one.timestamp_ms is not None, "this producer sets times"
        values = (one.key, one.value, one.timestamp_ms * 1_000, 0)
        # Spark's sources show a record without headers as one that has null there.
        rows.append((topic, one.partition, offset, *values, one.headers or None))
    return tuple(sorted(rows, key=lambda row: row[:3]))
