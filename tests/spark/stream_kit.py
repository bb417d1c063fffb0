"""Streams of a topic in Spark: what each batch brought, and checkpoints at any stage."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.lake.running import Broker

GIVE_UP_S = 60
STARTS_MAX = 3


@dataclass
class Taken:
    """The rows of each batch, as (partition, offset)."""

    batches: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _heard: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        found = [
            (row.partition, row.offset) for row in rows.select("partition", "offset").collect()
        ]
        with self._heard:
            self.batches[batch] = sorted(found)
            self._heard.notify_all()

    def wait_for(self, count: int) -> None:
        """Until there are so many rows; under load, there is always more to process."""
        with self._heard:
            assert self._heard.wait_for(lambda: len(self.rows) >= count, GIVE_UP_S)

    @property
    def rows(self) -> list[tuple[int, int]]:
        return [row for batch in self.batches.values() for row in batch]


@dataclass
class Streams:
    """Streams of one broker's topics, each into a `Taken`."""

    spark: SparkSession
    broker: Broker

    def frame(self, options: Mapping[str, str]) -> DataFrame:
        reader = self.spark.readStream.format("lakelog").option(
            "lakelog.server", self.broker.server
        )
        return reader.options(**options).load()

    @contextmanager
    def running(
        self,
        checkpoint: Path,
        options: Mapping[str, str],
        *,
        once: bool = False,
        ends: bool = False,
    ) -> Iterator[tuple[StreamingQuery, Taken]]:
        """A stream that runs, until it is left."""
        taken = Taken()
        writer = self.frame(options).writeStream.foreachBatch(taken)
        writer = writer.option("checkpointLocation", str(checkpoint))
        if once:
            writer = writer.trigger(once=True)
        if ends:
            writer = writer.trigger(availableNow=True)
        query = started(writer)
        try:
            yield query, taken
        finally:
            query.stop()

    def available(self, checkpoint: Path, options: Mapping[str, str]) -> Taken:
        """What a stream takes that ends with what is available."""
        with self.running(checkpoint, options, ends=True) as (query, taken):
            assert query.awaitTermination(GIVE_UP_S)
            return taken

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": str(self.broker.running.address)})

    def add_partitions(self, topic: str, count: int) -> None:
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(GIVE_UP_S)

    def delete_records(self, topic: str, partition: int, *, before: int) -> None:
        admin = self.admin()
        (done,) = admin.delete_records([TopicPartition(topic, partition, before)]).values()
        done.result(GIVE_UP_S)


def started(writer: DataStreamWriter, starts_left: int = STARTS_MAX) -> StreamingQuery:
    """A query whose source is there.

    Spark gives the Python process of a source ten seconds to start, whatever else the machine does,
    and has no setting for it; a query that was refused so has read nothing, and begins again.
    """
    query = writer.start()
    until_s = time.monotonic() + GIVE_UP_S
    while query.isActive and query.status["message"].startswith("Initializing"):
        assert time.monotonic() < until_s, query.status
        time.sleep(0.02)
    if starts_left > 1 and "failed to connect back" in str(query.exception()):
        return started(writer, starts_left - 1)
    return query


def numbered(count: int, *, first: int = 0) -> list[bytes]:
    return [b"value %d" % number for number in range(first, first + count)]


def places(partition: int, start: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(start, end)]


def offsets(checkpoint: Path, batch: int) -> dict[str, dict[str, Any]]:
    """The offsets of a batch, as the checkpoint has them."""
    found: dict[str, dict[str, Any]]
    found = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])
    return found


def batches(checkpoint: Path, part: str) -> Sequence[int]:
    """The batches that this part of the checkpoint has."""
    found = (checkpoint / part).glob("[0-9]*")
    return sorted(int(path.name) for path in found)


def staged(checkpoint: Path, copy: Path, *, offsets_end: int, commits_end: int) -> Path:
    """The checkpoint as it was when it had so many offsets and so many commits."""

    def later(folder: str, names: list[str]) -> list[str]:
        end = {"offsets": offsets_end, "commits": commits_end}.get(Path(folder).name, 1 << 30)
        numbers = {name: name.strip(".").removesuffix(".crc") for name in names}
        return [name for name, text in numbers.items() if text.isdigit() and int(text) >= end]

    shutil.copytree(checkpoint, copy, ignore=later)
    return copy


def as_kafka_wrote(checkpoint: Path) -> None:
    """Let the offsets be those that Spark's Kafka source writes."""
    for batch in batches(checkpoint, "offsets"):
        path = checkpoint / "offsets" / str(batch)
        lines = path.read_text().splitlines()
        document = {
            name: some for name, some in offsets(checkpoint, batch).items() if ":" not in name
        }
        lines[-1] = json.dumps(document, separators=(",", ":"))
        path.write_text("\n".join(lines))
        path.with_name(f".{batch}.crc").unlink()


def process_until(query: StreamingQuery, holds: Callable[[], bool]) -> None:
    """Let the query process what is available until this holds."""
    deadline_s = time.monotonic() + GIVE_UP_S
    while not holds():
        assert time.monotonic() < deadline_s
        query.processAllAvailable()
