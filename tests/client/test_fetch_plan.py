"""Planned requests as Fetch messages."""

from lakelog.client.fetch_plan import PlannedFetch, PlannedPartition, build_request, has_ids
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.admin import TopicPartition
from lakelog.kafka_client.settings import ClientSettings

IDS = {"a": b"a" * 16, "b": b"b" * 16}
PARTITIONS = {
    index: PartitionState(index, TopicPartition(topic, number), IDS[topic], position)
    for index, (topic, number, position) in enumerate([("a", 0, 10), ("b", 3, 20), ("a", 1, 30)])
}
SETTINGS = ClientSettings.parse({"bootstrap.servers": "h:1", "fetch.max.bytes": 2_000_000})
ASK = PlannedFetch(
    partitions=(PlannedPartition(1, 100), PlannedPartition(0, 200), PlannedPartition(2, 300)),
    bytes_max=600,
)


def test_partitions_stand_by_topic_in_the_order_of_the_plan() -> None:
    request, sent = build_request(ASK, PARTITIONS, SETTINGS, version=17)
    assert [
        (topic.topic_id, [(each.partition, each.fetch_offset) for each in topic.partitions])
        for topic in request.topics
    ] == [(IDS["b"], [(3, 20)]), (IDS["a"], [(0, 10), (1, 30)])]
    assert set(sent) == {(IDS["b"], 3), (IDS["a"], 0), (IDS["a"], 1)}
    assert sent[IDS["a"], 1].bytes_max == 300


def test_old_versions_know_topics_by_name() -> None:
    request, sent = build_request(ASK, PARTITIONS, SETTINGS, version=12)
    assert [topic.topic for topic in request.topics] == ["b", "a"]
    assert ("b", 3) in sent


def test_only_a_request_that_waits_has_a_wait() -> None:
    request, _ = build_request(ASK, PARTITIONS, SETTINGS, version=17)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (0, 1, 600)
    waiting = PlannedFetch(partitions=ASK.partitions, bytes_max=10**9, is_waiting=True)
    request, _ = build_request(waiting, PARTITIONS, SETTINGS, version=17)
    assert (request.max_wait_ms, request.max_bytes) == (500, 2_000_000)
    assert (request.session_id, request.session_epoch, request.isolation_level) == (0, -1, 1)


def test_a_topic_without_an_id_is_seen() -> None:
    assert has_ids(ASK, PARTITIONS)
    nameless = PartitionState(0, TopicPartition("a", 0), bytes(16), 0)
    assert not has_ids(ASK, {**PARTITIONS, 0: nameless})
