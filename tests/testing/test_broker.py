"""The embedded broker as users use it, with a real client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lakelog.kafka_client.failures import BrokerError
from lakelog.model.failures import Refused
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions

PATIENCE_S = 20.0


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value=value, key=b"k", headers=[("h", b"1"), ("h", None)])
    assert producer.flush(PATIENCE_S) == 0


def records(bootstrap: str, topic: str, count: int) -> Iterator[bytes]:
    # A commit would need a group coordinator; an assigned consumer needs none.
    settings = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        for _ in range(count):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert message.error() is None
            assert message.headers() == [("h", b"1"), ("h", None)]
            yield message.value()
    finally:
        consumer.close()


def test_what_a_real_client_writes_it_reads(lakelog_broker: EmbeddedBroker) -> None:
    values = [b"value %d" % number for number in range(500)]
    produce(lakelog_broker.bootstrap, "orders", values)
    assert list(records(lakelog_broker.bootstrap, "orders", 500)) == values


def test_a_broker_begins_empty_and_gives_its_port_back(lakelog_broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": lakelog_broker.bootstrap})
    assert list(admin.list_topics(timeout=PATIENCE_S).topics) == []
    lakelog_broker.create_topic("one", partitions=3, configs={"retention.ms": "1000"})
    assert len(admin.list_topics(timeout=PATIENCE_S).topics["one"].partitions) == 3
    address = lakelog_broker.address
    lakelog_broker.stop()
    with EmbeddedBroker(EmbeddedOptions(listen=address)) as again:
        assert again.address == address


def test_a_topic_that_cannot_be_made_says_why(lakelog_broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        lakelog_broker.create_topic("no/slashes")


def test_a_second_broker_on_the_same_directory_finds_what_the_first_one_wrote(
    tmp_path: Path,
) -> None:
    options = EmbeddedOptions(data=tmp_path)
    with EmbeddedBroker(options) as first:
        produce(first.bootstrap, "kept", [b"a", b"b"])
    with EmbeddedBroker(options) as second:
        assert list(records(second.bootstrap, "kept", 2)) == [b"a", b"b"]


def test_two_brokers_on_one_directory_serve_the_same_topics(tmp_path: Path) -> None:
    with (
        EmbeddedBroker(EmbeddedOptions(data=tmp_path)) as one,
        EmbeddedBroker(EmbeddedOptions(data=tmp_path, broker_id=2)) as two,
    ):
        produce(one.bootstrap, "shared", [b"x"])
        assert list(records(two.bootstrap, "shared", 1)) == [b"x"]


def test_a_start_that_is_refused_raises_in_the_thread_that_asked() -> None:
    with EmbeddedBroker() as broker:
        second = EmbeddedBroker(EmbeddedOptions(listen=broker.address))
        with pytest.raises(Refused, match="is in use"):
            second.start()
        second.stop()


def test_it_can_be_used_from_async_code() -> None:
    async def scenario() -> str:
        async with EmbeddedBroker() as broker:
            return broker.bootstrap

    assert asyncio.run(scenario()).startswith("127.0.0.1:")


def test_a_client_of_a_stopped_broker_is_told() -> None:
    with EmbeddedBroker() as broker:
        bootstrap = broker.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
