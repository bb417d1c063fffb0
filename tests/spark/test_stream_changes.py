"""Streams of topics that change: more partitions, more topics, deleted ones, records that go."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.lake.running import Broker
from tests.spark.stream_kit import Streams, numbered, offsets, places, process_until

from lakelog.spark.stream_offsets import TOPIC_IDS


@pytest.fixture(scope="module")
def streams(spark: SparkSession, broker: Broker) -> Streams:
    return Streams(spark, broker)


def test_partitions_and_topics_that_are_added_are_read_from_their_begin(
    streams: Streams, tmp_path: Path
) -> None:
    broker = streams.broker
    broker.create("grows-1")
    broker.produce("grows-1", numbered(3))
    with streams.running(tmp_path, {"subscribePattern": "^grows-"}) as (query, taken):
        query.processAllAvailable()
        streams.add_partitions("grows-1", 3)
        broker.produce("grows-1", numbered(2), partition=2)
        process_until(query, lambda: len(taken.rows) == 2)
        assert taken.rows == places(2, 0, 2)
        broker.create("grows-2")
        broker.produce("grows-2", numbered(4))
        process_until(query, lambda: len(taken.rows) == 6)
        assert taken.rows[2:] == places(0, 0, 4)


def test_a_topic_that_was_made_again_ends_a_stream_or_is_read_from_its_begin(
    streams: Streams, tmp_path: Path
) -> None:
    broker, options = streams.broker, {"subscribe": "again", "startingOffsets": "earliest"}
    broker.create("again")
    broker.produce("again", numbered(5))
    with streams.running(tmp_path, options) as (query, taken):
        query.processAllAvailable()
        before = offsets(tmp_path, 0)[TOPIC_IDS]
        broker.delete("again")
        broker.create("again")
        broker.produce("again", numbered(7))
        with pytest.raises(StreamingQueryException, match="DataLoss: again-0 was read up to"):
            process_until(query, lambda: False)
    assert taken.rows == places(0, 0, 5)
    with pytest.raises(StreamingQueryException, match="made again since; set failOnDataLoss to"):
        streams.available(tmp_path, options)
    found = streams.available(tmp_path, {**options, "failOnDataLoss": "false"})
    assert found.rows == places(0, 0, 7)
    assert offsets(tmp_path, 1)[TOPIC_IDS] != before


def test_a_topic_that_is_deleted_while_it_is_read_is_waited_for_where_losses_are_allowed(
    streams: Streams, tmp_path: Path
) -> None:
    broker = streams.broker
    for name in ("stays", "goes"):
        broker.create(name)
        broker.produce(name, numbered(2))
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    with streams.running(tmp_path, {"subscribe": "stays,goes", **options}) as (query, taken):
        query.processAllAvailable()
        broker.delete("goes")
        broker.produce("stays", numbered(3))
        process_until(query, lambda: len(taken.rows) == 7)
        broker.create("goes")
        broker.produce("goes", numbered(1))
        process_until(query, lambda: len(taken.rows) == 8)
        assert taken.rows[7:] == [(0, 0)]


def test_retention_that_overtakes_a_stream_ends_it_or_is_left_out(
    streams: Streams, tmp_path: Path
) -> None:
    broker, options = streams.broker, {"subscribe": "overtaken", "startingOffsets": "earliest"}
    broker.create("overtaken", 2)
    broker.produce("overtaken", numbered(4))
    assert streams.available(tmp_path, options).rows == places(0, 0, 4)
    broker.produce("overtaken", numbered(6))
    broker.produce("overtaken", numbered(2), partition=1)
    streams.delete_records("overtaken", 0, before=7)
    said = r"overtaken-0 was read up to offset 4, and begins at 7 by now: \[4, 7\) is gone"
    with pytest.raises(StreamingQueryException, match=said):
        streams.available(tmp_path, options)
    lenient = streams.available(tmp_path, {**options, "failOnDataLoss": "false"})
    assert lenient.rows == places(0, 7, 10) + places(1, 0, 2)
