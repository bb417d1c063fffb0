"""A client process of B5: one library reads one topic from its beginning, as told on its input.

Protocol as in `worker`: the job comes in, `ready` goes out, `go` comes in, the result goes out. All
touch every field of every record in the way that their users do: an attribute or a call for those
that give objects, a column for those that give Arrow. `check` is the sum of offsets and of the
bytes of values, so that all are known to have read the same.
"""

import asyncio
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from bench.jobs import wait_for_go

POLL_MS = 1_000
PATIENCE_S = 20.0
"""A library that gives nothing for so long has stopped, whatever it has left to read."""

FETCH_BYTES = 50 << 20


class ReadJob(msgspec.Struct, frozen=True):
    """Read that many records with this library."""

    library: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    batch_rows: int = 100_000
    held_bytes: int = 256 << 20


class ReadOutcome(msgspec.Struct, frozen=True):
    """What was read, how long it took, and what it cost."""

    records: int
    check: int
    first_s: float
    """From connecting to the first records: who starts a compiler pays for it here."""
    counted: int
    """The records after the first ones, which `seconds` and `cpu_seconds` are for."""
    seconds: float
    cpu_seconds: float
    resident_mb: float
    """The most that the process ever had, less what it had before it began."""
    disorder: int = 0
    """How often a timestamp was below the one before it."""


class ReadProgress:
    """Counts what comes by."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.records = self.check = self.disorder = 0
        self.first_records = 0
        self.first_at = 0.0
        self.first_cpu_s = 0.0
        self.ended = (0.0, 0.0)
        """When the last records came, and what had been used by then."""
        self._ended_records = -1
        self._last_ms = -1

    def is_open(self) -> bool:
        """Whether records are missing, and some have come lately; closing does not count."""
        now_s = time.perf_counter()
        if self.records != self._ended_records:
            self._ended_records = self.records
            self.ended = now_s, cpu_seconds()
        return self.records < self.wanted and now_s - self.ended[0] < PATIENCE_S

    def began(self) -> None:
        """The first records are there: from here on it is measured."""
        self.first_records, self.first_at = self.records, time.perf_counter()
        self.first_cpu_s = cpu_seconds()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch of columns."""
        if not batch.num_rows:
            return
        self.records += batch.num_rows
        self.check += pc.sum(batch["offset"]).as_py()
        self.check += pc.sum(pc.binary_length(batch["value"])).as_py()
        times = batch["timestamp"].cast(pa.int64()).to_numpy()
        self.disorder += int((times[1:] < times[:-1]).sum()) + int(times[0] < self._last_ms)
        self._last_ms = int(times[-1])
        if not self.first_at:
            self.began()

    def add(self, offset: int, value: bytes | None) -> None:
        """Take one record."""
        self.records += 1
        self.check += offset + len(value or b"")


def by_lakelog(job: ReadJob, *, ordered: bool) -> ReadOutcome:
    """Ours."""
    from lakelog.client import (  # noqa: PLC0415 - one library a process
        ConsumerManager,
        SourceTopic,
    )

    def read(progress: ReadProgress) -> None:
        with ConsumerManager(
            {"bootstrap.servers": job.bootstrap},
            [SourceTopic.from_earliest(job.topic)],
            batch_size=job.batch_rows,
            ordered=ordered,
            max_held_bytes=job.held_bytes,
        ) as manager:
            while progress.is_open():
                progress.add_batch(manager.poll(POLL_MS))

    return measured(job, read)


def by_kafkars(job: ReadJob) -> ReadOutcome:
    """The published library of the same shape; always ordered."""
    import kafkars  # noqa: PLC0415 - one library a process

    def read(progress: ReadProgress) -> None:
        manager = kafkars.ConsumerManager(
            {"bootstrap.servers": job.bootstrap, "group.id": "bench"},
            [kafkars.SourceTopic.from_earliest(job.topic)],
        )  # its own batch size: with larger ones it mostly comes to no end
        while progress.is_open():
            progress.add_batch(manager.poll(timeout_ms=POLL_MS))

    return measured(job, read)


def by_confluent(job: ReadJob) -> ReadOutcome:
    """librdkafka's `consume`, every field of every message."""
    from confluent_kafka import (  # noqa: PLC0415 - one library a process
        OFFSET_BEGINNING,
        Consumer,
        TopicPartition,
    )

    def read(progress: ReadProgress) -> None:
        settings = {"bootstrap.servers": job.bootstrap, "group.id": "bench"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        places = range(job.partitions)
        consumer.assign([TopicPartition(job.topic, one, OFFSET_BEGINNING) for one in places])
        while progress.is_open():
            for message in consumer.consume(10_000, timeout=1.0):
                message.key(), message.topic(), message.partition(), message.timestamp()
                progress.add(message.offset(), message.value())
            if progress.records and not progress.first_at:
                progress.began()
        consumer.close()

    return measured(job, read)


def by_aiokafka(job: ReadJob) -> ReadOutcome:
    """The asyncio client; its records are objects with all fields."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - one library a process

    async def consume(progress: ReadProgress) -> None:
        consumer = AIOKafkaConsumer(
            job.topic,
            bootstrap_servers=job.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_bytes=FETCH_BYTES,
        )
        await consumer.start()
        try:
            while progress.is_open():
                found = await consumer.getmany(timeout_ms=POLL_MS)
                for records in found.values():
                    for record in records:
                        progress.add(record.offset, record.value)
                if progress.records and not progress.first_at:
                    progress.began()
        finally:
            await consumer.stop()

    return measured(job, lambda progress: asyncio.run(consume(progress)))


def measured(job: ReadJob, read: Callable[[ReadProgress], None]) -> ReadOutcome:
    """Read to the last record, as a user's program does."""
    progress = ReadProgress(job.records)
    wait_for_go()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_at = time.perf_counter()
    read(progress)
    ended_at, used_s = progress.ended
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024
    return ReadOutcome(
        progress.records,
        progress.check,
        progress.first_at - began_at,
        progress.records - progress.first_records,
        ended_at - progress.first_at,
        used_s - progress.first_cpu_s,
        grown_mb,
        progress.disorder,
    )


def cpu_seconds() -> float:
    """What this process has used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


LIBRARIES: dict[str, Callable[[ReadJob], ReadOutcome]] = {
    "ordered": lambda job: by_lakelog(job, ordered=True),
    "unordered": lambda job: by_lakelog(job, ordered=False),
    "kafkars": by_kafkars,
    "confluent": by_confluent,
    "aiokafka": by_aiokafka,
}


def main() -> None:
    """Do the one job that the first line of standard input describes."""
    job = msgspec.json.decode(sys.stdin.readline().encode(), type=ReadJob)
    outcome: Any = LIBRARIES[job.library](job)
    print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
