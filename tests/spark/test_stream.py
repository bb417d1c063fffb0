"""Streams in Spark: begins, limits, ends, restarts from any checkpoint, sinks."""

import pickle
import threading
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType
from tests.lake.running import Broker
from tests.spark.stream_kit import (
    Streams,
    as_kafka_wrote,
    batches,
    numbered,
    offsets,
    places,
    staged,
)

from lakelog.spark.stream_offsets import TOPIC_IDS
from lakelog.spark.stream_reader import UNLIMITED, stream_reader

NOBODY = {"lakelog.server": "http://127.0.0.1:9", "subscribe": "t"}


@pytest.fixture(scope="module")
def streams(spark: SparkSession, broker: Broker) -> Streams:
    return Streams(spark, broker)


def test_readers_are_made_without_asking_anybody_and_travel_light() -> None:
    schema = StructType().add("value", "binary").add("offset", "long")
    reader = stream_reader({**NOBODY, "maxOffsetsPerTrigger": "7"}, schema)
    data = pickle.dumps(reader)
    assert len(data) < 10_000
    assert pickle.loads(data).getDefaultReadLimit() == ReadMaxRows(7)
    assert stream_reader(NOBODY, schema).getDefaultReadLimit() == ReadAllAvailable()
    least = stream_reader({**NOBODY, "minOffsetsPerTrigger": "7"}, schema)
    assert least.getDefaultReadLimit() == ReadMaxRows(UNLIMITED)


def test_a_stream_has_what_is_there_and_what_comes(streams: Streams, tmp_path: Path) -> None:
    broker, options = streams.broker, {"subscribe": "comes", "startingOffsets": "earliest"}
    options["minOffsetsPerTrigger"] = "1"
    broker.create("comes", 2)
    broker.produce("comes", numbered(10))
    broker.produce("comes", numbered(3), partition=1)
    with streams.running(tmp_path, options) as (query, taken):
        query.processAllAvailable()
        assert taken.batches == {0: places(0, 0, 10) + places(1, 0, 3)}
        for number in range(1, 4):
            broker.produce("comes", numbered(1), partition=1)
            query.processAllAvailable()
            assert taken.batches[number] == [(1, 2 + number)]
        progress = query.lastProgress
        assert progress is not None
        (source,) = progress["sources"]
        assert source["endOffset"] == source["latestOffset"]
    assert set(offsets(tmp_path, 3)) == {"comes", TOPIC_IDS}


def test_a_stream_into_files_has_every_column_and_every_row_once(
    streams: Streams, tmp_path: Path
) -> None:
    streams.broker.create("files", 2)
    for start in (0, 20):
        for partition in (0, 1):
            streams.broker.produce("files", numbered(20, first=start), partition=partition)
        frame = streams.frame(
            {
                "subscribe": "files",
                "startingOffsets": "earliest",
                "includeHeaders": "true",
                "maxOffsetsPerTrigger": "16",
            }
        )
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "sink"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
    read = streams.spark.read.format("lakelog").option("lakelog.server", streams.broker.server)
    table = read.option("subscribe", "files").option("includeHeaders", "true").load()
    sink = streams.spark.read.parquet(str(tmp_path / "sink"))
    assert sink.columns == table.columns
    assert sorted(map(str, sink.collect())) == sorted(map(str, table.collect()))
    assert sink.count() == 80


def test_a_stream_reads_only_the_columns_of_its_schema(streams: Streams, tmp_path: Path) -> None:
    streams.broker.create("columns")
    streams.broker.produce("columns", numbered(3))
    found = []
    reader = streams.spark.readStream.schema("value binary, offset long").format("lakelog")
    reader = reader.option("lakelog.server", streams.broker.server)
    frame = reader.option("subscribe", "columns").option("startingOffsets", "earliest").load()
    writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert [(bytes(row.value), row.offset) for row in found] == [
        (value, at) for at, value in enumerate(numbered(3))
    ]


def test_a_restart_at_any_stage_of_a_checkpoint_repeats_the_batch_that_it_was_in(
    streams: Streams, tmp_path: Path
) -> None:
    streams.broker.create("stages", 2)
    streams.broker.produce("stages", numbered(6))
    streams.broker.produce("stages", numbered(3), partition=1)
    options = {
        "subscribe": "stages",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "3",
    }
    checkpoint = tmp_path / "whole"
    first = streams.available(checkpoint, options).batches
    assert first == {
        0: [(0, 0), (0, 1), (1, 0)],
        1: [(0, 2), (0, 3), (1, 1)],
        2: [(0, 4), (0, 5), (1, 2)],
    }
    streams.broker.produce("stages", numbered(1))
    streams.broker.compact()  # the same records are elsewhere then
    for number in first:
        # What was not committed is planned again as it was, whatever the options say by now.
        copy = staged(
            checkpoint, tmp_path / f"{number}", offsets_end=number + 1, commits_end=number
        )
        again = streams.available(copy, {**options, "maxOffsetsPerTrigger": "100"}).batches
        assert again[number] == first[number]
        rest = [row for batch in sorted(again) for row in again[batch]]
        assert sorted(rest) == sorted(
            [row for batch in first if batch >= number for row in first[batch]] + [(0, 6)]
        )
    done = streams.available(checkpoint, options).batches
    assert done == {3: [(0, 6)]}


def test_a_stream_from_the_latest_offset_loses_nothing_if_it_dies_before_its_first_commit(
    streams: Streams, tmp_path: Path
) -> None:
    streams.broker.create("latest")
    ending = threading.Event()

    def work() -> None:
        while not ending.is_set():
            streams.broker.produce("latest", numbered(5))

    thread = threading.Thread(target=work)
    thread.start()
    checkpoint = tmp_path / "first"
    try:
        with streams.running(checkpoint, {"subscribe": "latest"}) as (_, taken):
            taken.wait_for(10)
        begin = offsets(checkpoint, 0)["latest"]["0"]
        assert taken.batches[0] == []
        assert taken.rows[0] == (0, begin)
        copy = staged(checkpoint, tmp_path / "second", offsets_end=1, commits_end=0)
        with streams.running(copy, {"subscribe": "latest"}) as (_, again):
            again.wait_for(len(taken.rows))
    finally:
        ending.set()
        thread.join()
    assert again.batches[0] == []
    assert again.rows == places(0, begin, begin + len(again.rows))


def test_what_is_available_from_the_latest_offset_on_is_what_comes_between_two_runs(
    streams: Streams, tmp_path: Path
) -> None:
    streams.broker.create("between")
    streams.broker.produce("between", numbered(5))
    assert streams.available(tmp_path, {"subscribe": "between"}).rows == []
    streams.broker.produce("between", numbered(2))
    assert streams.available(tmp_path, {"subscribe": "between"}).rows == places(0, 5, 7)
    assert streams.available(tmp_path, {"subscribe": "between"}).batches == {}


def test_a_trigger_that_runs_once_takes_everything(streams: Streams, tmp_path: Path) -> None:
    streams.broker.create("once")
    streams.broker.produce("once", numbered(9))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", "subscribe": "once"}
    with streams.running(tmp_path, options, once=True) as (query, taken):
        assert query.awaitTermination(60)
    assert taken.batches == {0: places(0, 0, 9)}


def test_a_checkpoint_of_spark_s_kafka_source_is_continued(
    streams: Streams, tmp_path: Path
) -> None:
    options = {"subscribe": "moved", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    streams.broker.create("moved")
    streams.broker.produce("moved", numbered(8))
    whole = tmp_path / "whole"
    assert len(streams.available(whole, options).batches) == 2
    committed = staged(whole, tmp_path / "committed", offsets_end=1, commits_end=1)
    broken = staged(whole, tmp_path / "broken", offsets_end=2, commits_end=1)
    for checkpoint in (committed, broken):
        as_kafka_wrote(checkpoint)
        assert offsets(checkpoint, 0) == {"moved": {"0": 4}}
        assert streams.available(checkpoint, options).rows == places(0, 4, 8)
        ids = offsets(checkpoint, batches(checkpoint, "offsets")[-1])[TOPIC_IDS]
        assert ids == offsets(whole, 0)[TOPIC_IDS]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nowhere"}, "subscribe names 'nowhere', and there is no such topic"),
        ({"subscribe": "wrong", "endingOffsets": "latest"}, "endingOffsets is not for streams"),
        (
            {"subscribe": "wrong", "startingOffsets": '{"wrong":{"0":99}}'},
            "wrong-0 ends at offset 0.*failOnDataLoss",
        ),
    ],
)
def test_a_stream_that_cannot_be_says_which_option_is_wrong(
    streams: Streams, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    if "wrong" not in streams.admin().list_topics(timeout=30).topics:
        streams.broker.create("wrong")
    with pytest.raises(StreamingQueryException, match=said):
        streams.available(tmp_path, options)
