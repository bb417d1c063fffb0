"""The consumer against Apache Kafka itself: the same claims, and what only it can do."""

import random

import pyarrow as pa
import pytest
from confluent_kafka import Producer
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
    transact,
)
from tests.client.proof import prove
from tests.discovery.stands import Stand

from lakelog.client import ConsumerManager, SourceTopic
from lakelog.kafka_client.failures import BrokerError, OffsetGone, UnknownTopic

pytestmark = pytest.mark.proof

QUICK = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "fetch.wait.max.ms": 100}


def even(partitions: int, count: int) -> list[Fed]:
    return [Fed(at % partitions, FIRST_MS + at, b"%d" % at) for at in range(count)]


def test_messages_are_released_in_timestamp_order_across_partitions(
    apache_kafka: Stand, topic: str
) -> None:
    create_topic(apache_kafka.bootstrap, topic, 8)
    records = even(8, 20_000)
    random.Random(5).shuffle(records)
    records.sort(key=lambda record: record.timestamp_ms // 500)
    for codec, start in zip(("none", "gzip", "snappy", "lz4", "zstd"), range(0, 20_000, 4000)):  # noqa: B905 - five of both
        part = records[start : start + 4000]
        feed(apache_kafka.bootstrap, topic, part, compression_type=codec, batch_size=20_000)
    with reading(
        apache_kafka.bootstrap, SourceTopic.from_earliest(topic), out_of_order_ms=500
    ) as manager:
        rows = prime(manager)
        assert manager.metrics().rows_late == 0
    assert rows.num_rows == 20_000
    assert_in_order(rows)


def test_a_topic_that_is_hard_to_order_comes_twice_in_exact_order(
    apache_kafka: Stand, topic: str
) -> None:
    outcomes = prove(apache_kafka.bootstrap, 100_000, topic)
    assert [each.rows for each in outcomes] == [100_000, 100_000]


def test_aborted_records_never_come_out_and_markers_do_not_stand_in_the_way(
    apache_kafka: Stand, topic: str
) -> None:
    create_topic(apache_kafka.bootstrap, topic, 2)
    values: dict[bool, list[Fed]] = {True: [], False: []}
    for number in range(6):
        commits = number % 2 == 0
        records = [
            Fed(at % 2, FIRST_MS + number * 100 + at, b"%d-%d" % (number, at)) for at in range(50)
        ]
        transact(apache_kafka.bootstrap, topic, records, commits=commits)
        values[commits] += records
    source = SourceTopic.from_earliest(topic)
    with reading(apache_kafka.bootstrap, source) as manager:
        rows = prime(manager)
        state = manager.partition_state().to_pylist()
    assert rows["value"].to_pylist() == [record.value for record in values[True]]
    # The last thing in both partitions is an aborted transaction with its marker.
    assert all(each["is_live"] and each["lag"] == 0 for each in state)
    config = {"isolation.level": "read_uncommitted"}
    with reading(apache_kafka.bootstrap, source, config=config) as manager:
        everything = prime(manager)
    assert sorted(everything["value"].to_pylist()) == sorted(
        record.value for record in (*values[True], *values[False]) if record.value is not None
    )


def test_an_open_transaction_ends_the_history_before_it(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic)
    feed(apache_kafka.bootstrap, topic, even(1, 10))
    producer = Producer(
        {"bootstrap.servers": apache_kafka.bootstrap, "transactional.id": f"{topic}-open"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=FIRST_MS)
    producer.flush(30)
    with reading(apache_kafka.bootstrap, SourceTopic.from_earliest(topic), config=QUICK) as manager:
        assert prime(manager).num_rows == 10
        assert manager.poll(300).num_rows == 0
        producer.commit_transaction(30)
        assert poll_rows(manager, 1)["value"].to_pylist() == [b"open"]


def test_committed_goes_on_where_the_group_was(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 2)
    feed(apache_kafka.bootstrap, topic, even(2, 100))
    config = {"group.id": topic}
    source = SourceTopic.from_committed(topic)
    with reading(apache_kafka.bootstrap, source, config=config, batch_size=30) as manager:
        first = poll_rows(manager, 30)
        assert manager.committed() == {}
        committed = manager.commit()
        assert manager.committed() == committed
    with reading(apache_kafka.bootstrap, source, config=config) as manager:
        rest = prime(manager)
    assert keys_of(pa.concat_tables([first, rest])) == sorted(keys_of(first) + keys_of(rest))
    assert first.num_rows + rest.num_rows == 100


def test_time_policies_begin_where_the_time_is(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 2)
    feed(apache_kafka.bootstrap, topic, even(2, 100))
    with reading(
        apache_kafka.bootstrap, SourceTopic.from_absolute_time(topic, FIRST_MS + 41)
    ) as manager:
        assert prime(manager).num_rows == 59
    with reading(apache_kafka.bootstrap, SourceTopic.from_relative_time(topic, 1000)) as manager:
        assert manager.is_live()


def test_a_snapshot_is_gone_on_from(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 3)
    feed(apache_kafka.bootstrap, topic, even(3, 300))
    with reading(
        apache_kafka.bootstrap, SourceTopic.from_earliest(topic), batch_size=70
    ) as manager:
        first = poll_rows(manager, 70)
        snapshot = manager.snapshot()
    with ConsumerManager.restore(
        {"bootstrap.servers": apache_kafka.bootstrap}, snapshot
    ) as manager:
        rest = prime(manager)
    assert first.num_rows + rest.num_rows == 300
    assert_in_order(pa.concat_tables([first, rest]))


def test_log_append_time_orders_by_the_broker_s_clock(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 2, message_timestamp_type="LogAppendTime")
    feed(apache_kafka.bootstrap, topic, even(2, 200))
    with reading(apache_kafka.bootstrap, SourceTopic.from_earliest(topic)) as manager:
        rows = prime(manager)
    assert rows.num_rows == 200
    assert_in_order(rows)
    assert min(rows["timestamp"].cast(pa.int64()).to_pylist()) > FIRST_MS + 10**9


def test_retention_that_overtakes_a_reader_is_told(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic)
    feed(apache_kafka.bootstrap, topic, even(1, 100))
    with reading(apache_kafka.bootstrap, SourceTopic.from_earliest(topic), batch_size=5) as manager:
        poll_rows(manager, 5)
        snapshot = manager.snapshot()
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
    for future in admin.delete_records([Place(topic, 0, 40)]).values():
        future.result(10)
    config: dict[str, object] = {"bootstrap.servers": apache_kafka.bootstrap, **QUICK}
    with ConsumerManager.restore(config, snapshot) as manager:
        with pytest.raises(OffsetGone, match=r"no offset 5: the log holds \[40, 100\)"):
            manager.poll(10_000)
        manager.seek({(topic, 0): 90})
        assert prime(manager).num_rows == 10
    config["auto.offset.reset"] = "earliest"
    with ConsumerManager.restore(config, snapshot) as manager:
        assert prime(manager).num_rows == 60


def test_a_topic_that_is_made_again_is_read_from_its_start(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 2)
    feed(apache_kafka.bootstrap, topic, even(2, 10))
    with reading(apache_kafka.bootstrap, SourceTopic.from_earliest(topic), config=QUICK) as manager:
        assert prime(manager).num_rows == 10
        admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
        admin.delete_topics([topic])[topic].result(10)
        while topic in admin.list_topics(timeout=10).topics:
            pass
        create_topic(apache_kafka.bootstrap, topic, 2)
        feed(apache_kafka.bootstrap, topic, [Fed(at % 2, FIRST_MS, b"new") for at in range(4)])
        assert poll_rows(manager, 4)["value"].to_pylist() == [b"new"] * 4
        assert manager.metrics().topics_recreated == 1


def test_new_partitions_are_read_from_their_start(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 1)
    config = {**QUICK, "metadata.max.age.ms": 200}
    with reading(apache_kafka.bootstrap, SourceTopic.from_latest(topic), config=config) as manager:
        admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap})
        for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
            future.result(10)
        feed(apache_kafka.bootstrap, topic, [Fed(at, FIRST_MS, b"%d" % at) for at in range(3)])
        rows = poll_rows(manager, 3)
    assert sorted(rows["partition"].to_pylist()) == [0, 1, 2]


def test_a_topic_that_does_not_exist_is_named(apache_kafka: Stand) -> None:
    config = {"bootstrap.servers": apache_kafka.bootstrap, **QUICK}
    with pytest.raises(UnknownTopic, match="no topic 'nowhere'"):
        ConsumerManager(config, [SourceTopic("nowhere")])


def test_large_batches_are_read_with_small_fetches(apache_kafka: Stand, topic: str) -> None:
    create_topic(apache_kafka.bootstrap, topic, 3)
    records = [Fed(at % 3, FIRST_MS + at, bytes(1000)) for at in range(3000)]
    feed(apache_kafka.bootstrap, topic, records, batch_size=900_000, linger_ms=500)
    config = {"max.partition.fetch.bytes": 10_000}
    with reading(
        apache_kafka.bootstrap,
        SourceTopic.from_earliest(topic),
        config=config,
        max_held_messages=2000,
    ) as manager:
        rows = prime(manager)
    assert rows.num_rows == 3000
    assert_in_order(rows)


def test_a_group_with_members_takes_no_commit_from_outside(apache_kafka: Stand, topic: str) -> None:
    from confluent_kafka import Consumer  # noqa: PLC0415 - only here

    create_topic(apache_kafka.bootstrap, topic)
    feed(apache_kafka.bootstrap, topic, even(1, 10))
    member = Consumer(
        {
            "bootstrap.servers": apache_kafka.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe([topic])
    assert member.poll(30) is not None
    try:
        with reading(
            apache_kafka.bootstrap, SourceTopic.from_earliest(topic), config={"group.id": topic}
        ) as manager:
            prime(manager)
            with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
                manager.commit()
    finally:
        member.close()
