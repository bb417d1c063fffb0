"""`df.write.format("lakelog")` and `writeStream` with real Spark."""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.lake.running import Broker

import lakelog
from lakelog.records.build import murmur2

QUERY_S = 60


@pytest.fixture(scope="module", autouse=True)
def settled(spark: SparkSession) -> Iterator[None]:
    """A shuffle makes two tasks; and the session is that of this thread.

    Spark looks up where to write to in the session of the thread, which is not set in a thread that
    did not make the session; to create a data frame sets it.
    """
    spark.createDataFrame([], "none int")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def table_of(broker: Broker, topic: str) -> pa.Table:
    return lakelog.read(topic, server=broker.server, options={"includeHeaders": "true"})


def values_in(broker: Broker, topic: str) -> list[str]:
    return sorted(value.decode() for value in table_of(broker, topic)["value"].to_pylist())


def save(frame: DataFrame, broker: Broker, topic: str | None = None, **options: str) -> None:
    writer = frame.write.format("lakelog").option("lakelog.server", broker.server).mode("append")
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def test_a_job_for_kafka_runs_with_another_format_and_place(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("written", 5)
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "concat('k', id % 50) as key", "cast(id as string) as value"
    )
    (
        frame.write.format("lakelog")
        .option("kafka.bootstrap.servers", str(broker.running.address))
        .option("lakelog.server", broker.server)
        .option("topic", "written")
        .mode("append")
        .save()
    )
    found = table_of(broker, "written")
    assert sorted(int(value) for value in found["value"].to_pylist()) == list(range(1000))
    for key, partition in zip(
        found["key"].to_pylist(), found["partition"].to_pylist(), strict=True
    ):
        assert partition == (murmur2(key) & 0x7FFFFFFF) % 5
    now_ms = time.time() * 1000
    for stamp in found["timestamp"].to_pylist()[:10]:
        assert abs(stamp.timestamp() * 1000 - now_ms) < 120_000


def test_rows_name_their_topic_partition_and_headers(spark: SparkSession, broker: Broker) -> None:
    broker.create("left", 2)
    broker.create("right", 3)
    frame = spark.sql(
        """
        select if(id % 2 = 0, 'left', 'right') as topic,
               cast(id as string) as value,
               cast(if(id < 4, 1, null) as int) as partition,
               array(named_struct("key", "n", "value", cast(string(id) as binary))) as headers
        from range(0, 10, 1, 2)
        """
    )
    save(frame, broker)
    for topic, numbers in (("left", [0, 2, 4, 6, 8]), ("right", [1, 3, 5, 7, 9])):
        found = table_of(broker, topic).to_pylist()
        assert sorted(int(row["value"]) for row in found) == numbers
        for row in found:
            assert row["headers"] == [{"key": "n", "value": row["value"]}]
            if int(row["value"]) < 4:
                assert row["partition"] == 1


def test_what_is_read_from_a_topic_can_be_written_to_another(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("from")
    broker.create("to")
    broker.produce("from", [b"a", b"b"])
    read = spark.read.format("lakelog").option("lakelog.server", broker.server)
    save(read.option("subscribe", "from").load(), broker, "to")
    assert values_in(broker, "to") == ["a", "b"]


def test_what_cannot_be_written_is_refused_with_the_reason(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("refusing", 2, max_message_bytes="2000")
    cases = (
        ("id as value", "the column value has the type bigint"),
        ("if(id = 0, 'x', repeat('x', 3000)) as value", "the topic refusing allows 2000"),
    )
    for column, said in cases:
        frame = spark.range(2).selectExpr(column)
        with pytest.raises(PySparkException) as caught:
            save(frame, broker, "refusing", **{"kafka.compression.type": "none"})
        assert said in str(caught.value)
    assert values_in(broker, "refusing") == []


def test_overwrite_is_refused(spark: SparkSession, broker: Broker) -> None:
    frame = spark.range(1).selectExpr("'x' as value").write.format("lakelog")
    options = {"lakelog.server": broker.server, "topic": "t"}
    with pytest.raises(PySparkException, match=r'mode\("append"\)'):
        frame.options(**options).mode("overwrite").save()


def test_a_task_that_fails_leaves_no_record(spark: SparkSession, broker: Broker) -> None:
    broker.create("half", 2)
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "if(id = 99, raise_error('on purpose'), cast(id as string)) as value"
    )
    with pytest.raises(PySparkException, match="on purpose"):
        save(frame, broker, "half")
    assert values_in(broker, "half") == []


def test_a_job_that_runs_twice_under_one_version_writes_once(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("twice", 3)
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
    for _ in range(2):
        save(frame, broker, "twice", txnAppId="nightly", txnVersion="7")
    assert len(values_in(broker, "twice")) == 100
    save(frame, broker, "twice", txnAppId="nightly", txnVersion="8")
    assert len(values_in(broker, "twice")) == 200


class Stream:
    """A stream from text files, each a batch, to a topic."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, topic: str) -> None:
        self.spark = spark
        self.broker = broker
        self.files = folder / "files"
        self.files.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.topic = topic

    def put(self, name: str, lines: list[str]) -> None:
        hidden = self.files / f".{name}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        hidden.rename(self.files / name)

    def run(self, **options: str) -> StreamingQuery:
        """Everything that is there, batch by batch."""
        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.files))
        query = (
            rows.repartition(2)
            .writeStream.format("lakelog")
            .option("lakelog.server", self.broker.server)
            .option("topic", self.topic)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(QUERY_S)
        finally:
            query.stop()
        return query

    def forget(self, batch: int) -> None:
        """As if Spark had gone down after our commit and before its own."""
        for name in (str(batch), f".{batch}.crc"):
            path = self.checkpoint / "commits" / name
            path.unlink(missing_ok=name.startswith("."))


@pytest.fixture
def stream(
    spark: SparkSession, broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> Stream:
    topic = f"stream-{abs(hash(request.node.name))}"
    broker.create(topic, 4)
    return Stream(spark, broker, tmp_path, topic)


def test_a_batch_that_spark_repeats_is_there_once(stream: Stream) -> None:
    stream.put("a", [f"a{number}" for number in range(50)])
    stream.put("b", [f"b{number}" for number in range(50)])
    stream.run()
    stream.forget(1)
    again = stream.run()
    assert [progress["batchId"] for progress in again.recentProgress] == [1]
    assert again.recentProgress[0]["numInputRows"] == 50
    stream.put("c", ["c"])
    stream.run()
    found = Counter(values_in(stream.broker, stream.topic))
    assert set(found.values()) == {1}
    assert len(found) == 101


def test_batches_without_rows_are_committed_too(stream: Stream) -> None:
    stream.put("a", [])
    stream.put("b", ["b"])
    stream.run()
    assert values_in(stream.broker, stream.topic) == ["b"]


def test_a_topic_that_is_deleted_between_batches_is_made_again(stream: Stream) -> None:
    stream.put("a", ["a"])
    stream.run()
    stream.broker.delete(stream.topic)
    stream.put("b", ["b"])
    stream.run()
    assert values_in(stream.broker, stream.topic) == ["b"]


@pytest.fixture
def counts(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """How often each line was there, over two batches."""
    (tmp_path / "files").mkdir()
    for number, (name, lines) in enumerate((("a", "x\nx\n"), ("b", "x\ny\n"))):
        (tmp_path / "files" / name).write_text(lines)
        os.utime(tmp_path / "files" / name, (number, number))  # the older file comes first
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(tmp_path / "files"))
    counted = rows.groupBy("value").count()
    return counted.selectExpr("value as key", "concat(value, count) as value")


def test_a_stream_in_complete_mode_appends_every_result(
    counts: DataFrame, broker: Broker, tmp_path: Path
) -> None:
    broker.create("complete")
    query = (
        counts.writeStream.format("lakelog")
        .outputMode("complete")
        .option("lakelog.server", broker.server)
        .option("topic", "complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_S)
    assert values_in(broker, "complete") == ["x2", "x3", "y1"]


def test_updates_are_written_once_through_a_function_for_each_batch(
    counts: DataFrame, broker: Broker, tmp_path: Path
) -> None:
    broker.create("update")

    def write_twice(rows: DataFrame, batch: int) -> None:
        for _ in range(2):
            save(rows, broker, "update", txnAppId="counts", txnVersion=str(batch))

    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(write_twice)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_S)
    assert values_in(broker, "update") == ["x2", "x3", "y1"]


def test_a_stream_that_names_a_transaction_is_refused(stream: Stream) -> None:
    stream.put("a", ["a"])
    with pytest.raises(StreamingQueryException, match="txnAppId is for batches"):
        stream.run(txnAppId="a")
