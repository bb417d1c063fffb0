"""A consumer of two brokers, one of which is killed while it is read: the other takes over."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from bench.broker import StartError
from bench.peer import PeerAbsentError
from tests.client.feeding import FIRST_MS, Fed, assert_in_order, create_topic, feed, reading
from tests.compat.groups.clusters import Cluster, kafka_cluster, our_cluster

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.kafka_client.failures import ClientFailure

pytestmark = pytest.mark.proof

PARTITIONS = 8
COUNT = 40_000
SESSION_MS = 6000
CONFIG = {
    "max.partition.fetch.bytes": 20_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
}

Lend = Callable[[Path, int, int], AbstractContextManager[Cluster]]


@pytest.mark.parametrize("lend", [our_cluster, kafka_cluster], ids=["ours", "kafka"])
@pytest.mark.timeout(180)
def test_a_leader_that_is_killed_loses_and_repeats_nothing(lend: Lend, tmp_path: Path) -> None:
    try:
        with lend(tmp_path, 2, SESSION_MS) as cluster:
            replicas = 1 if lend is our_cluster else 2
            create_topic(cluster.bootstrap, "two", PARTITIONS, replicas=replicas)
            records = [Fed(at % PARTITIONS, FIRST_MS + at, bytes(100)) for at in range(COUNT)]
            feed(cluster.bootstrap, "two", records, batch_size=10_000, acks="all")
            rows = read_while_one_dies(cluster)
    except (PeerAbsentError, StartError) as reason:
        pytest.skip(f"no such brokers: {reason}")
    assert rows.num_rows == COUNT
    assert_written_in_order(rows)
    assert_in_order(rows)


def assert_written_in_order(rows: pa.Table) -> None:
    """The log itself has no record behind a later one: else nothing follows from the order."""
    written = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    for partition in range(PARTITIONS):
        mine = written.filter(pc.field("partition") == partition)
        times = mine["timestamp"].to_pylist()
        assert times == sorted(times), f"partition {partition} was written out of order"


@contextmanager
def reading_from_both(bootstrap: str) -> Iterator[ConsumerManager]:
    """A consumer that reads from both: a broker hears a moment later that another one has begun."""
    deadline_s = time.monotonic() + 30
    while True:
        with reading(
            bootstrap,
            SourceTopic.from_earliest("two"),
            config=CONFIG,
            batch_size=1000,
            max_held_messages=8000,
            out_of_order_ms=0,
        ) as manager:
            if leaders(manager) == {1, 2}:
                yield manager
                return
        assert time.monotonic() < deadline_s, "both have to lead something"


def read_while_one_dies(cluster: Cluster) -> pa.Table:
    batches = []
    rows = 0
    with reading_from_both(cluster.bootstrap) as manager:
        while not manager.is_live():
            try:
                batch = manager.poll(60_000)
            except ClientFailure:
                continue  # it was away for longer than our patience; the attempts go on
            if rows < 5000 <= rows + batch.num_rows:
                cluster.kill(2)
            batches.append(batch)
            rows += batch.num_rows
        assert leaders(manager) == {1}
    return pa.Table.from_batches(batches)


def leaders(manager: ConsumerManager) -> set[int | None]:
    return {manager._core.consumer_loop.scheduler.leader(index) for index in range(PARTITIONS)}
