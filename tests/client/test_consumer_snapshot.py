"""Snapshots of a consumer: restored, it gives out exactly the rest, in the same order."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.client.feeding import (
    FIRST_MS,
    Fed,
    create_topic,
    feed,
    keys_of,
    poll_rows,
    prime,
    reading,
)
from tests.lake.running import Broker, running_broker

from lakelog.client import ConsumerManager, Snapshot, SourceTopic
from lakelog.kafka_client.failures import BadConfig

DISORDER_MS = 400
PARTITIONS = 5
COUNT = 3000
SMALL_FETCHES = {"max.partition.fetch.bytes": 2000}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(Path(tmp_path_factory.mktemp("broker"))) as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """A topic whose partitions are out of order, skewed, and empty in part."""
    bootstrap = str(broker.running.address)
    create_topic(bootstrap, "disorder", PARTITIONS)
    chance = random.Random(11)
    records = [
        Fed(
            min(chance.randrange(PARTITIONS + 2), PARTITIONS - 2),
            FIRST_MS + at + chance.randrange(DISORDER_MS),
            b"%d" % at,
        )
        for at in range(COUNT)
    ]
    feed(bootstrap, "disorder", records, batch_size=2000, compression_type="lz4")
    return "disorder"


def whole(bootstrap: str, topic: str) -> list[tuple[int, str, int, int]]:
    with reading(
        bootstrap, SourceTopic.from_earliest(topic), out_of_order_ms=DISORDER_MS
    ) as manager:
        return keys_of(prime(manager))


def test_a_restored_consumer_gives_out_exactly_the_rest(broker: Broker, topic: str) -> None:
    bootstrap = str(broker.running.address)
    expected = whole(bootstrap, topic)
    assert len(expected) == COUNT
    chance = random.Random(3)
    config = {"bootstrap.servers": bootstrap, **SMALL_FETCHES}
    found: list[tuple[int, str, int, int]] = []
    options = {"out_of_order_ms": DISORDER_MS, "batch_size": 97}
    manager = ConsumerManager(config, [SourceTopic.from_earliest(topic)], **options)  # type: ignore[arg-type]  # by name
    restores = ranges = 0
    while not manager.is_live():
        found += keys_of(pa.Table.from_batches([manager.poll(10_000)]))
        if chance.random() < 0.4:
            snapshot = manager.snapshot()
            ranges += sum(len(each.released) for each in snapshot.partitions)
            manager.close()
            manager = ConsumerManager.restore(config, snapshot.to_json(), **options)
            restores += 1
    manager.close()
    assert restores > 3
    assert ranges > 0, "nothing went out of order: the test shows nothing"
    assert found == expected


def test_a_restored_consumer_keeps_the_ends_of_the_first(broker: Broker) -> None:
    bootstrap = str(broker.running.address)
    create_topic(bootstrap, "ends", 1)
    feed(bootstrap, "ends", [Fed(0, FIRST_MS + at) for at in range(20)])
    with reading(bootstrap, SourceTopic.from_earliest("ends"), batch_size=5) as manager:
        poll_rows(manager, 5)
        snapshot = manager.snapshot()
    feed(bootstrap, "ends", [Fed(0, FIRST_MS + at) for at in range(20, 30)])
    (each,) = snapshot.partitions
    assert (each.start, each.end, each.next_offset) == (0, 20, 5)
    with ConsumerManager.restore({"bootstrap.servers": bootstrap}, snapshot) as manager:
        rows = prime(manager)
        state = manager.partition_state().to_pylist()[0]
        while rows.num_rows < 25:
            rows = pa.concat_tables([rows, poll_rows(manager, 1)])
    assert (state["replay_start_offset"], state["replay_end_offset"]) == (0, 20)
    assert rows["offset"].to_pylist() == list(range(5, 30))


def test_a_snapshot_of_a_topic_that_was_made_again_begins_at_its_start(broker: Broker) -> None:
    bootstrap = str(broker.running.address)
    create_topic(bootstrap, "again", 2)
    feed(bootstrap, "again", [Fed(0, FIRST_MS + at) for at in range(20)])
    with reading(bootstrap, SourceTopic.from_earliest("again"), batch_size=5) as manager:
        poll_rows(manager, 5)
        snapshot = manager.snapshot()
    broker.delete("again")
    create_topic(bootstrap, "again", 1)
    feed(bootstrap, "again", [Fed(0, FIRST_MS, b"new")])
    with ConsumerManager.restore({"bootstrap.servers": bootstrap}, snapshot) as manager:
        assert manager.is_live()
        assert poll_rows(manager, 1)["value"].to_pylist() == [b"new"]


def test_a_snapshot_of_partitions_that_are_not_there_is_refused(broker: Broker) -> None:
    bootstrap = str(broker.running.address)
    create_topic(bootstrap, "few", 2)
    with reading(bootstrap, SourceTopic.from_earliest("few")) as manager:
        found = manager.snapshot().to_dict()
    found["partitions"][1]["partition"] = 7
    with pytest.raises(BadConfig, match=r"no few \[7\]"):
        ConsumerManager.restore({"bootstrap.servers": bootstrap}, found)


def test_restore_takes_the_options_of_the_constructor_and_no_others() -> None:
    snapshot = Snapshot(partitions=())
    with pytest.raises(TypeError, match="batchsize"):
        ConsumerManager.restore({"bootstrap.servers": "127.0.0.1:1"}, snapshot, batchsize=5)
