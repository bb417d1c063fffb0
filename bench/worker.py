"""A client process: librdkafka produces or consumes as told on standard input.

Protocol: one JSON line with the job comes in, `ready` goes out once connected, `go` comes in, one
JSON line with the result goes out. So process start and connecting never count, and the parent can
read the broker's CPU time around the work alone.
"""

import json
import sys
import time
from collections.abc import Mapping

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

from bench.payload import payloads
from bench.results import percentiles_ms

FLUSH_TIMEOUT_S = 120.0
STATISTICS_MS = 200
CONSUME_RECORDS = 10_000


class ProduceJob(msgspec.Struct, frozen=True, tag="produce"):
    """Write records for some seconds or up to some bytes, then wait for every acknowledgement."""

    bootstrap: str
    topic: str
    partitions: int
    record_bytes: int
    batch_bytes: int
    linger_ms: float
    seconds: float
    bytes_max: int
    rate_bytes_s: float = 0.0
    seed: int = 0
    random_ratio: float = 0.25
    with_latency: bool = False
    chunk_records: int = 500


class ConsumeJob(msgspec.Struct, frozen=True, tag="consume"):
    """Read by assignment with several consumers: all of a topic, or its tail for some seconds."""

    bootstrap: str
    topic: str
    partitions: int
    consumers: int
    records: int = 0
    seconds: float = 0.0


Job = ProduceJob | ConsumeJob


class Outcome(msgspec.Struct, frozen=True):
    """What a client saw."""

    payload_bytes: int
    records: int
    seconds: float
    failures: int = 0
    batch_bytes: float = 0.0
    latencies_ms: tuple[float, float, float] = (0.0, 0.0, 0.0)


class BatchSizes:
    """Follows librdkafka's own statistics of the batches it sends."""

    def __init__(self) -> None:
        self.total = 0
        self.count = 0

    def on_statistics(self, text: str) -> None:
        """Add one window of statistics."""
        for topic in json.loads(text)["topics"].values():
            window: Mapping[str, int] = topic["batchsize"]
            self.total += window["sum"]
            self.count += window["cnt"]

    def mean(self) -> float:
        """Return the mean bytes of a batch."""
        return self.total / self.count if self.count else 0.0


class Deliveries:
    """Counts records that could not be delivered, and keeps how long the others took."""

    def __init__(self) -> None:
        self.failures = 0
        self.latencies_s: list[float] = []

    def on_delivery(self, error: object, message: Message) -> None:
        """Take one delivery report."""
        if error is not None:
            self.failures += 1
        else:
            self.latencies_s.append(message.latency())


def produce(job: ProduceJob) -> Outcome:
    """Write until the time or the bytes are used up."""
    sizes, deliveries = BatchSizes(), Deliveries()
    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "batch.size": job.batch_bytes,
            "batch.num.messages": 100_000,
            "linger.ms": job.linger_ms,
            # Small enough that the last flush is short: it belongs to the measured time.
            "queue.buffering.max.messages": 100_000,
            "queue.buffering.max.kbytes": 256 << 10,
            "delivery.report.only.error": not job.with_latency,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": sizes.on_statistics,
            "on_delivery": deliveries.on_delivery,
        }
    )
    values = payloads(job.record_bytes, job.random_ratio, job.seed)
    producer.list_topics(job.topic, timeout=30)
    wait_for_go()
    started = time.perf_counter()
    sent = 0
    while True:
        for index in range(sent, sent + job.chunk_records):
            enqueue(producer, job, values[index % len(values)], index % job.partitions)
        sent += job.chunk_records
        producer.poll(0)
        elapsed = time.perf_counter() - started
        written = sent * job.record_bytes
        if elapsed >= job.seconds or written >= job.bytes_max:
            break
        if job.rate_bytes_s and written / job.rate_bytes_s > elapsed:
            time.sleep(written / job.rate_bytes_s - elapsed)
    left = producer.flush(FLUSH_TIMEOUT_S)
    seconds = time.perf_counter() - started
    delivered = sent - left - deliveries.failures
    producer.poll(STATISTICS_MS / 1000)
    return Outcome(
        payload_bytes=delivered * job.record_bytes,
        records=delivered,
        seconds=seconds,
        failures=left + deliveries.failures,
        batch_bytes=sizes.mean(),
        latencies_ms=percentiles_ms(deliveries.latencies_s),
    )


def enqueue(producer: Producer, job: ProduceJob, value: bytes, partition: int) -> None:
    """Hand one record to librdkafka, waiting while its queue is full."""
    while True:
        try:
            producer.produce(job.topic, value, partition=partition)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def consume(job: ConsumeJob) -> Outcome:
    """Read with several consumers in turn."""
    start = OFFSET_BEGINNING if job.records else OFFSET_END
    consumers = []
    for number in range(job.consumers):
        consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": f"bench-{number}",
                "enable.auto.commit": False,
                "fetch.message.max.bytes": 1 << 20,
                "queued.min.messages": 100_000,
            }
        )
        consumer.list_topics(job.topic, timeout=30)
        consumers.append(consumer)
    assignment = [TopicPartition(job.topic, index, start) for index in range(job.partitions)]
    if not job.records:
        assign_and_settle(consumers, assignment)
    wait_for_go()
    started = time.perf_counter()
    if job.records:
        for consumer in consumers:
            consumer.assign(assignment)
    wanted = job.records * job.consumers
    payload_bytes = records = 0
    deadline = started + (job.seconds or FLUSH_TIMEOUT_S)
    while time.perf_counter() < deadline and (not wanted or records < wanted):
        for consumer in consumers:
            for message in consumer.consume(CONSUME_RECORDS, timeout=0.002):
                payload_bytes += len(message.value() or b"")
                records += message.error() is None
    seconds = time.perf_counter() - started
    for consumer in consumers:
        consumer.close()
    missing = max(wanted - records, 0)
    return Outcome(payload_bytes, records, seconds, failures=missing)


def assign_and_settle(consumers: list[Consumer], assignment: list[TopicPartition]) -> None:
    """Assign the tail and give every consumer time to find it, so that nothing is missed."""
    for consumer in consumers:
        consumer.assign(assignment)
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        for consumer in consumers:
            consumer.consume(1, timeout=0.01)


def wait_for_go() -> None:
    """Say that the client is ready and wait for the parent."""
    print("ready", flush=True)
    sys.stdin.readline()


def main() -> None:
    """Do the one job that the first line of standard input describes."""
    job = msgspec.json.decode(sys.stdin.readline().encode(), type=Job)
    outcome = produce(job) if isinstance(job, ProduceJob) else consume(job)
    print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
