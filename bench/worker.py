"""A client process: librdkafka produces or consumes as told on standard input (`bench.jobs`)."""

import json
import time
from collections.abc import Mapping
from typing import assert_never

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    Message,
    Producer,
    TopicPartition,
)

from bench.jobs import ConsumeJob, Outcome, ParkJob, ProduceJob, serve, wait_for_go
from bench.payload import payloads
from bench.results import percentiles_ms

FLUSH_TIMEOUT_S = 120.0
STATISTICS_MS = 200
CONSUME_RECORDS = 10_000
ASSIGN_TIMEOUT_S = 60.0
LibrdkafkaJob = ProduceJob | ConsumeJob | ParkJob


class Statistics:
    """Follows librdkafka's own statistics of the batches and the requests it sends."""

    def __init__(self) -> None:
        self.requests = 0
        self._total = 0
        self._count = 0

    def on_statistics(self, text: str) -> None:
        """Take one report: batches since the last one, requests since the start."""
        report = json.loads(text)
        for topic in report["topics"].values():
            window: Mapping[str, int] = topic["batchsize"]
            self._total += window["sum"]
            self._count += window["cnt"]
        brokers = report["brokers"].values()
        self.requests = sum(broker["req"].get("Produce", 0) for broker in brokers)

    def batch_bytes(self) -> float:
        """Return the mean bytes of a batch."""
        return self._total / self._count if self._count else 0.0


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
    statistics, deliveries = Statistics(), Deliveries()
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
            "stats_cb": statistics.on_statistics,
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
    # The last report comes within one interval of the last acknowledgement.
    until = time.perf_counter() + 1.5 * STATISTICS_MS / 1e3
    while time.perf_counter() < until:
        producer.poll(STATISTICS_MS / 1e3)
    return Outcome(
        payload_bytes=delivered * job.record_bytes,
        records=delivered,
        seconds=seconds,
        failures=left + deliveries.failures,
        requests=statistics.requests,
        batch_bytes=statistics.batch_bytes(),
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
    """Read with several consumers in turn: passes over a topic, or its tail."""
    consumers = [open_consumer(job, number) for number in range(job.consumers)]
    start = OFFSET_BEGINNING if job.records else OFFSET_END
    assignment = [TopicPartition(job.topic, index, start) for index in range(job.partitions)]
    if not job.records:
        assign_and_settle(consumers, assignment)
    wait_for_go()
    started = time.perf_counter()
    payload_bytes = records = failures = 0
    while True:
        wanted = job.records * job.consumers
        if wanted:
            for consumer in consumers:
                consumer.assign(assignment)
        deadline = time.perf_counter() + FLUSH_TIMEOUT_S if wanted else started + job.seconds
        got_bytes, got = read_until(consumers, wanted, deadline)
        payload_bytes, records = payload_bytes + got_bytes, records + got
        failures += max(wanted - got, 0)
        if time.perf_counter() - started >= job.seconds:
            break
    seconds = time.perf_counter() - started
    for consumer in consumers:
        consumer.close()
    return Outcome(payload_bytes, records, seconds, failures=failures)


def open_consumer(job: ConsumeJob, number: int) -> Consumer:
    """Return a consumer that has connected."""
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": job.bootstrap,
        "group.id": f"bench-{number}",
        "enable.auto.commit": False,
        "fetch.message.max.bytes": 1 << 20,
        "queued.min.messages": 100_000,
    }
    if job.records:
        # A fetch that waits at the end of the topic, or a full queue, would hold up the next pass.
        settings |= {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 5}
    consumer = Consumer(settings)
    consumer.list_topics(job.topic, timeout=30)
    return consumer


def read_until(consumers: list[Consumer], wanted: int, deadline: float) -> tuple[int, int]:
    """Read so many records with all consumers, or until then; return their bytes and number."""
    payload_bytes = records = 0
    while time.perf_counter() < deadline and (not wanted or records < wanted):
        for consumer in consumers:
            for message in consumer.consume(CONSUME_RECORDS, timeout=0.002):
                payload_bytes += len(message.value() or b"")
                records += message.error() is None
    return payload_bytes, records


def assign_and_settle(consumers: list[Consumer], assignment: list[TopicPartition]) -> None:
    """Assign the tail and give every consumer time to find it, so that nothing is missed."""
    for consumer in consumers:
        consumer.assign(assignment)
    until = time.perf_counter() + 1.0
    while time.perf_counter() < until:
        for consumer in consumers:
            consumer.consume(1, timeout=0.01)


def park(job: ParkJob) -> Outcome:
    """Join one group with all consumers and wait for records that do not come."""
    settings = {"bootstrap.servers": job.bootstrap, "group.id": "bench-parked"}
    consumers = [Consumer(settings) for _ in range(job.consumers)]
    for consumer in consumers:
        consumer.subscribe([job.topic])
    until = time.perf_counter() + ASSIGN_TIMEOUT_S
    while not all(consumer.assignment() for consumer in consumers):
        assert time.perf_counter() < until, "every member gets a partition"
        read_until(consumers, 0, time.perf_counter() + 0.1)
    wait_for_go()
    started = time.perf_counter()
    while (left := started + job.seconds - time.perf_counter()) > 0:
        for consumer in consumers:
            consumer.consume(1, timeout=min(left, 1.0) / len(consumers))
    seconds = time.perf_counter() - started
    for consumer in consumers:
        consumer.close()
    return Outcome(0, 0, seconds)


def work(job: LibrdkafkaJob) -> Outcome:
    """Do one job."""
    match job:
        case ProduceJob():
            return produce(job)
        case ConsumeJob():
            return consume(job)
        case ParkJob():
            return park(job)
        case _:
            assert_never(job)


if __name__ == "__main__":
    serve(LibrdkafkaJob, work)
