"""The consumer when the world misbehaves: named errors, nothing lost, nothing twice, no thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.client.feeding import (
    FIRST_MS,
    Fed,
    assert_in_order,
    create_topic,
    feed,
    keys_of,
    poll_rows,
    prime,
    reading,
)
from tests.client.tampering import TamperingProxy, tampering_proxy
from tests.lake.running import Broker, running_broker

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.kafka_client.failures import (
    ClientFailure,
    CorruptBatch,
    OffsetGone,
    UnknownTopic,
    Unreachable,
)

QUICK = {
    "reconnect.backoff.ms": 5,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 50,
}
SMALL = {**QUICK, "max.partition.fetch.bytes": 5000, "fetch.wait.max.ms": 50}


@contextmanager
def behind_a_proxy(folder: Path) -> Iterator[tuple[TamperingProxy, Broker]]:
    with tampering_proxy() as proxy:
        more = {"broker.advertised": proxy.bootstrap}
        with running_broker(folder, more) as broker:
            proxy.target = (broker.running.address.host, broker.running.address.port)
            yield proxy, broker


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TamperingProxy, Broker]]:
    with behind_a_proxy(Path(tmp_path_factory.mktemp("broker"))) as both:
        yield both


@pytest.fixture
def proxy(proxied: tuple[TamperingProxy, Broker]) -> Iterator[TamperingProxy]:
    proxy = proxied[0]
    yield proxy
    proxy.is_refusing = False
    proxy.spoil = None
    proxy.cuts_left = 0


@pytest.fixture
def broker(proxied: tuple[TamperingProxy, Broker]) -> Broker:
    return proxied[1]


def no_thread_is_left() -> None:
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"lakelog-consumer", "lakelog-decode"}


def test_nobody_there_is_said_within_the_time_out() -> None:
    began_s = time.monotonic()
    config = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "default.api.timeout.ms": 1000}
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:[12]"):
        ConsumerManager(config, [SourceTopic("t")])
    assert time.monotonic() - began_s < 10
    no_thread_is_left()


def test_a_topic_that_does_not_exist_is_named(proxy: TamperingProxy) -> None:
    with pytest.raises(UnknownTopic, match="no topic 'nowhere'"):
        ConsumerManager({"bootstrap.servers": proxy.bootstrap, **QUICK}, [SourceTopic("nowhere")])
    no_thread_is_left()


def test_connections_cut_in_the_middle_of_fetches_lose_and_repeat_nothing(
    proxy: TamperingProxy, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic, 4)
    records = [Fed(at % 4, FIRST_MS + at, bytes(200)) for at in range(4000)]
    feed(proxy.bootstrap, topic, records, batch_size=4000)
    proxy.cut_after(50_000, times=10)
    with reading(
        proxy.bootstrap, SourceTopic.from_earliest(topic), config=SMALL, batch_size=500
    ) as manager:
        rows = prime(manager)
        metrics = manager.metrics()
    assert rows.num_rows == 4000
    assert_in_order(rows)
    assert proxy.cuts_left == 0
    assert metrics.fetches_failed >= 5


def test_a_broker_that_comes_back_is_read_on(proxy: TamperingProxy, topic: str) -> None:
    create_topic(proxy.bootstrap, topic)
    feed(proxy.bootstrap, topic, [Fed(0, FIRST_MS + at) for at in range(10)])
    with reading(proxy.bootstrap, SourceTopic.from_earliest(topic), config=QUICK) as manager:
        assert prime(manager).num_rows == 10
        proxy.is_refusing = True
        proxy.cut()
        assert manager.poll(200).num_rows == 0
        proxy.is_refusing = False
        feed(proxy.bootstrap, topic, [Fed(0, FIRST_MS, b"after")])
        assert poll_rows(manager, 1)["value"].to_pylist() == [b"after"]


def test_a_broker_that_stays_away_is_reported_and_asked_on(
    proxy: TamperingProxy, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic)
    config = {**QUICK, "default.api.timeout.ms": 300}
    with reading(proxy.bootstrap, SourceTopic.from_earliest(topic), config=config) as manager:
        proxy.is_refusing = True
        proxy.cut()
        with pytest.raises(ClientFailure, match=r"127\.0\.0\.1"):
            manager.poll(20_000)
        proxy.is_refusing = False
        feed(proxy.bootstrap, topic, [Fed(0, FIRST_MS, b"after")])
        found = 0
        while not found:
            try:
                found = manager.poll(10_000).num_rows
            except ClientFailure:
                continue
        assert found == 1


def spoiling(mark: bytes, times: int) -> tuple[list[int], Callable[[bytes], bytes]]:
    """A function that changes the mark in answers that many times."""
    left = [times]

    def spoil(piece: bytes) -> bytes:
        if left[0] and mark in piece:
            left[0] -= 1
            return piece.replace(mark, mark[:-1] + b"?", 1)
        return piece

    return left, spoil


def test_a_batch_that_was_broken_on_the_way_is_fetched_again(
    proxy: TamperingProxy, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic)
    feed(proxy.bootstrap, topic, [Fed(0, FIRST_MS + at, b"whole-%03d" % at) for at in range(20)])
    left, proxy.spoil = spoiling(b"whole-007", 1)
    with reading(proxy.bootstrap, SourceTopic.from_earliest(topic), config=QUICK) as manager:
        rows = prime(manager)
        metrics = manager.metrics()
    assert left == [0]
    assert rows["value"].to_pylist() == [b"whole-%03d" % at for at in range(20)]
    assert metrics.batches_refetched == 1


def test_a_batch_that_stays_broken_fails_every_poll_until_it_is_passed(
    proxy: TamperingProxy, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic)
    for name in (b"good", b"evil", b"tail"):
        records = [Fed(0, FIRST_MS + at, b"%s-%d" % (name, at)) for at in range(10)]
        feed(proxy.bootstrap, topic, records)
    _, proxy.spoil = spoiling(b"evil-3", 1000)
    with reading(
        proxy.bootstrap, SourceTopic.from_earliest(topic), config=QUICK, ordered=False
    ) as manager:
        values = poll_rows(manager, 10)["value"].to_pylist()
        assert values == [b"good-%d" % at for at in range(10)]
        for _ in range(2):
            with pytest.raises(CorruptBatch, match="offset 10 is corrupt") as caught:
                manager.poll(10_000)
            assert caught.value.offset == 10
        manager.seek({(topic, 0): 20})
        assert poll_rows(manager, 10)["value"].to_pylist()[0] == b"tail-0"


def test_retention_that_overtakes_a_reader_is_an_error_unless_told_otherwise(
    proxy: TamperingProxy, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic)
    feed(proxy.bootstrap, topic, [Fed(0, FIRST_MS + at, b"%d" % at) for at in range(100)])
    source = SourceTopic.from_earliest(topic)
    with reading(proxy.bootstrap, source, config=QUICK, batch_size=5) as manager:
        poll_rows(manager, 5)
        snapshot = manager.snapshot()
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    for future in admin.delete_records([Place(topic, 0, 40)]).values():
        future.result(10)
    config = {"bootstrap.servers": proxy.bootstrap, **QUICK}
    with ConsumerManager.restore(config, snapshot) as manager:
        with pytest.raises(OffsetGone, match=r"no offset 5: the log holds \[40, 100\)"):
            manager.poll(10_000)
        manager.seek({(topic, 0): 90})
        assert prime(manager)["offset"].to_pylist() == list(range(90, 100))
    config["auto.offset.reset"] = "earliest"
    with ConsumerManager.restore(config, snapshot) as manager:
        assert prime(manager)["offset"].to_pylist() == list(range(40, 100))
        assert manager.metrics().offsets_reset == 1


def test_a_topic_that_is_made_again_is_read_from_its_start(
    proxy: TamperingProxy, broker: Broker, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic, 2)
    feed(proxy.bootstrap, topic, [Fed(at % 2, FIRST_MS + at, b"old") for at in range(10)])
    with reading(proxy.bootstrap, SourceTopic.from_earliest(topic), config=SMALL) as manager:
        assert prime(manager).num_rows == 10
        broker.delete(topic)
        create_topic(proxy.bootstrap, topic, 2)
        feed(proxy.bootstrap, topic, [Fed(at % 2, FIRST_MS, b"new") for at in range(4)])
        rows = poll_rows(manager, 4)
        assert rows["value"].to_pylist() == [b"new"] * 4
        assert sorted(keys_of(rows)) == [
            (FIRST_MS, topic, partition, offset) for partition in (0, 1) for offset in (0, 1)
        ]
        assert manager.metrics().topics_recreated == 1
        state = manager.partition_state().to_pylist()
        assert [(each["partition"], each["replay_end_offset"]) for each in state] == [
            (0, 0),
            (1, 0),
        ]


def test_a_topic_that_is_deleted_is_reported(
    proxy: TamperingProxy, broker: Broker, topic: str
) -> None:
    create_topic(proxy.bootstrap, topic)
    config = {**SMALL, "default.api.timeout.ms": 300}
    with reading(proxy.bootstrap, SourceTopic.from_earliest(topic), config=config) as manager:
        broker.delete(topic)
        with pytest.raises(UnknownTopic, match=topic):
            manager.poll(20_000)


def test_new_partitions_are_read_from_their_start(proxy: TamperingProxy, topic: str) -> None:
    create_topic(proxy.bootstrap, topic, 1)
    config = {**SMALL, "metadata.max.age.ms": 100}
    with reading(proxy.bootstrap, SourceTopic.from_latest(topic), config=config) as manager:
        assert manager.poll(0).num_rows == 0
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
            future.result(10)
        feed(proxy.bootstrap, topic, [Fed(at, FIRST_MS, b"%d" % at) for at in range(3)])
        rows = poll_rows(manager, 3)
        assert sorted(rows["partition"].to_pylist()) == [0, 1, 2]
        assert manager.is_live()
        assert manager.metrics().partitions_added == 2
        assert manager.partition_state().num_rows == 3


def test_partitions_that_answer_nothing_are_not_waited_for(
    proxy: TamperingProxy, topic: str
) -> None:
    """All history has to be read before a row may go, but the broker goes away in its middle."""
    create_topic(proxy.bootstrap, topic, 2)
    records = [Fed(at % 2, FIRST_MS + at, bytes(200)) for at in range(2000)]
    feed(proxy.bootstrap, topic, records, batch_size=4000)
    proxy.cut_after(100_000, times=1, refuse_then=True)
    with reading(
        proxy.bootstrap,
        SourceTopic.from_earliest(topic),
        config=SMALL,
        out_of_order_ms=10**9,
        max_idle_ms=200,
    ) as manager:
        early = manager.poll(20_000).num_rows
        assert 0 < early < 2000
        assert not manager.is_live()
        proxy.is_refusing = False
        assert early + prime(manager).num_rows == 2000
