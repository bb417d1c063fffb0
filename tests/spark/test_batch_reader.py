"""`spark.read.format("lakelog")`: the rows of the log, whichever way they are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from tests.lake.running import Broker
from tests.spark.kinds import HEADED, reader, rows

import lakelog
from lakelog.lake.read.read_options import parse_read
from lakelog.spark.batch_reader import BatchReader, PushingReader, batch_reader, warn_once

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    """Three partitions of 300 records, a second apart, partly in data files."""
    broker.create("batch", 3, lakelog_table_freshness_ms="0")
    for partition in range(3):
        broker.produce("batch", [b"v%d" % at for at in range(200)], partition=partition)
    broker.compact()
    for partition in range(3):
        more = [b"v%d" % at for at in range(200, 300)]
        broker.produce("batch", more, partition=partition, first_ms=1_700_000_200_000)
    return "batch"


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def splits(frame: DataFrame) -> int:
    return frame.rdd.getNumPartitions()


def test_rows_and_columns_are_those_of_sparks_kafka_source(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = reader(spark, broker, topic).load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    found = frame.where("partition = 1").orderBy("offset").limit(2).collect()
    assert [row.asDict() for row in found] == [
        {
            "key": b"k%d" % at,
            "value": b"v%d" % at,
            "topic": topic,
            "partition": 1,
            "offset": at,
            "timestamp": found[at].timestamp,
            "timestampType": 0,
        }
        for at in range(2)
    ]
    assert found[1].timestamp.timestamp() == 1_700_000_001
    headed = reader(spark, broker, topic, **HEADED).load()
    assert headed.where("headers is null").count() == 450
    assert bytes(headed.selectExpr("max(headers[0].value)").collect()[0][0]) == b"x"


def test_rows_are_those_of_a_read_without_spark(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    there = lakelog.read(topic, server=broker.server)
    table = reader(spark, broker, topic, minPartitions="5").load().toArrow()
    order = [("partition", "ascending"), ("offset", "ascending")]
    assert table.sort_by(order).cast(there.schema).equals(there)


@pytest.mark.parametrize(
    "condition",
    [
        "partition in (0, 2) and offset >= 250 and timestamp < timestamp_micros(1700000280000000)",
        "timestamp >= timestamp_micros(1700000290000000)",
        "topic = 'batch' and not partition = 0 and value is not null",
        "topic = 'other'",
        "partition <=> null",
        "key = cast('k7' as binary)",
    ],
)
def test_rows_are_the_same_whether_filters_are_pushed_down_or_not(
    spark: SparkSession, broker: Broker, topic: str, condition: str
) -> None:
    plain = reader(spark, broker, topic, minPartitions="9").load().where(condition)
    with setting(spark, PUSH_DOWN, "true"):
        pushed = reader(spark, broker, topic, minPartitions="9").load().where(condition)
        assert rows(pushed) == rows(plain)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("partition = 1", 3),
        ("topic = 'other'", 1),
        ("timestamp >= timestamp_micros(1700000290000000)", 3),
    ],
)
def test_pushed_filters_leave_less_to_be_read(
    spark: SparkSession, broker: Broker, topic: str, condition: str, count: int
) -> None:
    with setting(spark, PUSH_DOWN, "true"):
        pruned = reader(spark, broker, topic, maxRecordsPerPartition="100").load().where(condition)
        assert splits(pruned) == count
    plain = reader(spark, broker, topic, maxRecordsPerPartition="100").load().where(condition)
    assert splits(plain) == 9


def test_a_schema_with_some_columns_in_any_order_reads_just_these(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    frame = reader(spark, broker, topic).schema("value binary, offset long").load()
    assert frame.columns == ["value", "offset"]
    assert frame.selectExpr("sum(offset)", "sum(length(value))").collect()[0][0] == 3 * 44850
    headed = reader(spark, broker, topic)
    shape = "headers array<struct<key:string,value:binary>>, timestampType int"
    assert headed.schema(shape).load().where("headers[0].key = 'h'").count() == 450


def test_options_choose_partitions_and_offsets(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    connection = {"lakelog.server": broker.server}
    chosen = spark.read.format("lakelog").options(
        **connection,
        assign='{"batch":[0,2]}',
        startingOffsets='{"batch":{"0":290,"2":-2}}',
        endingOffsets='{"batch":{"0":-1,"2":5}}',
    )
    found = rows(chosen.load().select("partition", "offset"))
    assert set(found) == {(0, at) for at in range(290, 300)} | {(2, at) for at in range(5)}
    late = spark.read.format("lakelog").options(
        **connection, subscribePattern="^bat.h$", startingTimestamp="1700000299000"
    )
    assert rows(late.load().select("partition", "offset")) == {(at, 299): 1 for at in range(3)}
    nothing = spark.read.format("lakelog").options(**connection, subscribePattern="no-such")
    assert nothing.load().count() == 0


def test_a_data_frame_has_the_same_rows_however_often_it_is_used(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("growing")
    broker.produce("growing", [b"x"] * 5)
    frame = reader(spark, broker, "growing").load()
    assert frame.count() == 5
    broker.produce("growing", [b"y"] * 5)
    assert frame.count() == 5
    assert reader(spark, broker, "growing").load().count() == 10


def test_a_few_rows_of_many_are_read_and_the_rest_is_not_waited_for(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    assert len(reader(spark, broker, topic).load().limit(7).collect()) == 7
    assert reader(spark, broker, topic).load().where("partition = 2").limit(3).count() == 3


def test_times_are_instants_whatever_the_session_calls_a_timestamp(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    with setting(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
        frame = reader(spark, broker, topic).load()
        first = frame.selectExpr("min(unix_micros(timestamp))").collect()[0][0]
    assert first == 1_700_000_000_000_000
    with setting(spark, "spark.sql.session.timeZone", "Asia/Kolkata"):
        late = reader(spark, broker, topic).load().where("timestamp >= '2023-11-15 03:48:19'")
        assert late.count() == 3


def test_a_schema_that_says_never_null_is_refused(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    schema = StructType([StructField("offset", LongType(), nullable=False)])
    with pytest.raises(PySparkException, match="offset, and whatever is in it, must be nullable"):
        reader(spark, broker, topic).schema(schema).load().count()


def test_only_where_filters_are_pushed_a_reader_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"lakelog.server": "http://h:1", "subscribe": "t"}
    schema = StructType([StructField("offset", LongType())])
    assert type(batch_reader(options, schema)) is BatchReader
    monkeypatch.setitem(
        __import__("sys").modules, "pyspark.sql.worker.data_source_pushdown_filters", pytest
    )
    assert type(batch_reader(options, schema)) is PushingReader


def test_a_note_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    options = {"subscribe": "t", "lakelog.server": "http://h:1", "kafka.group.id": "once"}
    notes = parse_read(options, streaming=False).notes
    warn_once(notes)
    warn_once(notes)
    assert caplog.text.count("kafka.group.id is ignored") == 1
