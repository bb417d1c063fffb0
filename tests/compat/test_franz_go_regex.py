"""What franz-go's TestConsumeRegex asks of a broker.

The Go client matches its patterns itself, over a Metadata request for all topics; a group of the
new protocol (KIP-848) leaves that to the broker. Both must come to the topics that match, to no
internal ones, and to those that are made later.
"""

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from lakelog.coordinator.options import GroupOptions
from lakelog.testing.broker import EmbeddedBroker, EmbeddedOptions

WAIT_S = 30.0
PREFIX = "3f2c9a7be01d4c55-"
NAMES = ("include-1", "include-2", "exclude-1", "exclude-2")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    quick = GroupOptions(initial_rebalance_delay_ms=0, consumer_heartbeat_interval_ms=100)
    with EmbeddedBroker(EmbeddedOptions(groups=quick)) as running:
        for name in NAMES:
            running.create_topic(PREFIX + name, partitions=1)
        yield running


def wanted(names: "list[str]") -> list[str]:
    """Those that the Go client consumes: all with the prefix, without the excluded ones."""
    matching = (name for name in names if re.search(f"{PREFIX}.*", name))
    return sorted(name for name in matching if not re.search(f"{PREFIX}exclude-.*", name))


def assigned(consumer: Consumer, count: int) -> list[str]:
    """The topics of a consumer's assignment, once they are so many."""
    until_s = time.monotonic() + WAIT_S
    while True:
        consumer.poll(0.05)
        topics = sorted({partition.topic for partition in consumer.assignment()})
        if len(topics) == count or time.monotonic() > until_s:
            return topics


def test_metadata_of_all_topics_names_those_that_a_pattern_is_for(broker: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_topics(timeout=WAIT_S).topics
    assert wanted(list(found)) == [f"{PREFIX}include-1", f"{PREFIX}include-2"]
    assert all(topic.error is None for topic in found.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_gets_the_topics_that_match_and_those_that_come_later(
    broker: EmbeddedBroker, protocol: str
) -> None:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": f"regex-{protocol}",
        "group.protocol": protocol,
        "topic.metadata.refresh.interval.ms": 100,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([f"^{PREFIX}include-.*"])
        included = [f"{PREFIX}include-1", f"{PREFIX}include-2"]
        assert assigned(consumer, 2) == included
        later = f"{PREFIX}include-3"
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        (made,) = admin.create_topics([NewTopic(later, 1, 1)]).values()
        made.result(WAIT_S)
        assert assigned(consumer, 3) == [*included, later]
        (gone,) = admin.delete_topics([later]).values()
        gone.result(WAIT_S)
    finally:
        consumer.close()
