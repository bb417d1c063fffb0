"""What tests of the consumer share: topics made and filled by librdkafka, and rows read back."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from threading import enumerate as threads
from typing import Any

import pyarrow as pa
from bench.raw import Client
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lakelog.client import ConsumerManager, SourceTopic

FIRST_MS = 1_700_000_000_000
TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Fed:
    """One record to write."""

    partition: int
    timestamp_ms: int
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


def even(partitions: int, count: int, step_ms: int = 10) -> list[Fed]:
    """Records of all partitions whose times interleave."""
    return [
        Fed(number % partitions, FIRST_MS + number * step_ms, b"%d" % number)
        for number in range(count)
    ]


def create_topic(
    bootstrap: str, topic: str, partitions: int = 1, *, replicas: int = 1, **configs: str
) -> None:
    """Make a topic that keeps records however old they are."""
    chosen = {"retention.ms": "-1", **{key.replace("_", "."): configs[key] for key in configs}}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, replicas, config=chosen)])
    made[topic].result(30)
    if replicas > 1:
        return
    with Client(int(bootstrap.rpartition(":")[2])) as client:
        # Kafka names a leader before that leader has opened its log.
        deadline_s = time.monotonic() + 30
        while len(client.end_offsets(topic, partitions)) < partitions:
            assert time.monotonic() < deadline_s, f"the partitions of {topic} did not come up"


def feed(bootstrap: str, topic: str, records: Iterable[Fed], **config: Any) -> None:
    """Write records and wait until they are there."""
    more = {key.replace("_", "."): value for key, value in config.items()}
    # Idempotent: a retry of another producer would write its records behind later ones.
    chosen = {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **more}
    producer = Producer(chosen)
    failures: list[Any] = []

    def heard(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    for record in records:
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=heard,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    assert not failures, failures


def prime(manager: ConsumerManager, timeout_ms: int = TIMEOUT_MS) -> pa.Table:
    """The loop of every user: poll until it is live."""
    batches = []
    while True:
        batch = manager.poll(timeout_ms)
        batches.append(batch)
        if manager.is_live():
            return pa.Table.from_batches(batches)
        assert batch.num_rows, f"nothing came for {timeout_ms} ms: {manager.metrics()}"


def poll_rows(manager: ConsumerManager, count: int) -> pa.Table:
    """So many rows, or more if they came together."""
    batches = []
    rows = 0
    while rows < count:
        batch = manager.poll(TIMEOUT_MS)
        assert batch.num_rows, f"nothing came for {TIMEOUT_MS} ms: {manager.metrics()}"
        batches.append(batch)
        rows += batch.num_rows
    return pa.Table.from_batches(batches)


def keys_of(rows: pa.Table) -> list[tuple[int, str, int, int]]:
    """What rows are ordered by."""
    return list(
        zip(
            rows["timestamp"].cast(pa.int64()).to_pylist(),
            rows["topic"].to_pylist(),
            rows["partition"].to_pylist(),
            rows["offset"].to_pylist(),
            strict=True,
        )
    )


def assert_in_order(rows: pa.Table) -> None:
    """By timestamp, topic, partition and offset, and nothing twice."""
    keys = keys_of(rows)
    wrong = [(at, *pair) for at, pair in enumerate(pairwise(keys)) if not pair[0] < pair[1]]
    assert not wrong, wrong[:5]


@contextmanager
def reading(
    bootstrap: str,
    *topics: SourceTopic,
    config: Mapping[str, object] | None = None,
    **options: Any,
) -> Iterator[ConsumerManager]:
    """A consumer, and no thread of it afterwards."""
    before = set(threads())
    chosen = {"bootstrap.servers": bootstrap, **(config or {})}
    with ConsumerManager(chosen, topics, **options) as manager:
        yield manager
    left = [thread.name for thread in set(threads()) - before if "lakelog-" in thread.name]
    assert not [name for name in left if name in ("lakelog-consumer", "lakelog-decode")]


def transact(bootstrap: str, topic: str, records: list[Fed], *, commits: bool) -> None:
    """Send records in one transaction, which is committed or aborted."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-writer"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for record in records:
        producer.produce(
            topic, record.value, partition=record.partition, timestamp=record.timestamp_ms
        )
    producer.flush(30)
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
