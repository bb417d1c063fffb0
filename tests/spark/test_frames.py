"""`lakelog.spark.read`: Spark's own scan of data files and the data source have the same rows."""

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.compat.lake_log import send_hostile
from tests.lake.running import Broker, running_broker
from tests.records.table_cases import TIMESTAMPS_MS
from tests.spark.kinds import HEADED, all_kinds, reader, rows

import lakelog.spark
from lakelog.config.named_options import BadOption
from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.read.read_request import PartitionName
from lakelog.lake.read.row_decoder import MS_MAX, MS_MIN
from lakelog.model.failures import Refused
from lakelog.pipeline.spark.diagnosis import spark_failures
from lakelog.spark.frames import pin, read
from lakelog.spark.parquet_scan import as_rows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of our own, whose directory is a hard one for Hadoop, and loses files here."""
    folder = tmp_path_factory.mktemp("broker") / "a [b] {é} *"
    with running_broker(folder) as running:
        yield running


@pytest.fixture(scope="module")
def topic(broker: Broker) -> str:
    all_kinds(broker, "mixed")
    return "mixed"


def data_files(broker: Broker, topic: str) -> list[Path]:
    folder = Path(broker.options.objects_url().removeprefix("file:").removeprefix("//"))
    return sorted(folder.glob(f"compaction/v1/topic={topic}/**/*.parquet"))


def test_rows_are_those_of_the_data_source_wherever_they_lie(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    plain = reader(spark, broker, topic, **HEADED).load()
    frame = read(spark, topic, server=broker.server, options=HEADED)
    assert frame.schema == plain.schema
    assert len(frame.inputFiles()) >= 2, "Spark reads data files itself"
    expected = rows(plain)
    assert sum(expected.values()) > 1500
    assert rows(frame) == expected
    assert rows(read(spark, topic, server=broker.server, native=False, options=HEADED)) == expected


def test_a_part_has_the_rows_of_that_part(spark: SparkSession, broker: Broker, topic: str) -> None:
    ends = pin(spark, topic, server=broker.server).vector
    starting, ending = (
        {at: ends[PartitionName(topic, at)][1] * part // 8 for at in (0, 1)} for part in (3, 6)
    )
    pinned = pin(spark, topic, server=broker.server, starting=starting, ending=ending)
    assert pinned.vector == {PartitionName(topic, at): (starting[at], ending[at]) for at in (0, 1)}
    limits = {
        name: json.dumps({topic: {str(at): offset for at, offset in one.items()}})
        for name, one in (("startingOffsets", starting), ("endingOffsets", ending))
    }
    plain = reader(spark, broker, topic, **limits).load()
    assert rows(pinned.frame()) == rows(plain)


@pytest.mark.parametrize(
    "where",
    [
        [("offset", ">=", 300), ("partition", "in", [1])],
        [("timestamp", ">=", datetime(2023, 11, 14, 22, 13, 30, tzinfo=UTC)), ("offset", "<", 600)],
        [("timestamp", "<", datetime(1970, 1, 1, tzinfo=UTC)), ("value", "!=", b"")],
        [("key", "==", b"k7"), ("timestampType", "not in", [1])],
        [("topic", "=", "other")],
    ],
)
def test_conditions_choose_the_rows_that_they_choose_without_spark(
    spark: SparkSession, broker: Broker, topic: str, where: list[tuple[str, str, object]]
) -> None:
    frame = read(spark, topic, server=broker.server, where=where, columns=["partition", "offset"])
    found = sorted(tuple(row) for row in frame.collect())
    expected = lakelog.read(
        topic, server=broker.server, where=where, columns=["partition", "offset"]
    )
    columns = [expected[name].to_pylist() for name in ("partition", "offset")]
    assert found == sorted(zip(*columns, strict=True))


def test_times_of_the_broker_and_several_topics_are_read(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    stamped = "stamped"
    append = {"message_timestamp_type": "LogAppendTime", "lakelog_table_freshness_ms": "0"}
    broker.create(stamped, 2, **append)
    asyncio.run(send_hostile(str(broker.running.address), stamped))
    broker.compact()
    both = f"{topic},{stamped}"
    frame = read(spark, [topic, stamped], server=broker.server)
    assert rows(frame) == rows(reader(spark, broker, both).load())
    assert frame.where("timestampType = 1").select("topic").distinct().collect() == [(stamped,)]


def test_timestamps_that_no_column_holds_are_exact(spark: SparkSession) -> None:
    shown = 253_402_127_999_999_999
    table = pa.table(
        {
            "timestamp": pa.array([shown] * len(TIMESTAMPS_MS), pa.timestamp("us", tz="UTC")),
            "raw": [one.to_bytes(8, "big", signed=True) + b"headers" for one in TIMESTAMPS_MS],
        }
    )
    made = spark.createDataFrame(table).select(*as_rows(["timestamp"], "t"))
    found = [row[0] for row in made.selectExpr("unix_micros(timestamp)").collect()]
    assert found == [min(max(one, MS_MIN), MS_MAX) * 1000 for one in TIMESTAMPS_MS]
    plain = spark.createDataFrame(table.set_column(1, "raw", pa.nulls(len(table), pa.binary())))
    rows = plain.select(*as_rows(["timestamp"], "t")).selectExpr("unix_micros(timestamp)")
    assert {row[0] for row in rows.collect()} == {shown}


def test_only_columns_that_are_used_are_read_of_data_files(
    spark: SparkSession, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read(spark, topic, server=broker.server).selectExpr("sum(offset)").explain()
    (scan,) = [line for line in capsys.readouterr().out.splitlines() if "FileScan" in line]
    assert "ReadSchema: struct<offset:bigint>" in scan


def test_a_read_of_nothing_has_columns_and_no_rows(spark: SparkSession, broker: Broker) -> None:
    broker.create("nothing")
    frame = read(spark, "nothing", server=broker.server)
    assert frame.columns == reader(spark, broker, "nothing").load().columns
    assert frame.collect() == []


def test_a_session_that_ignores_missing_files_hears_of_them_all_the_same(
    spark: SparkSession, broker: Broker
) -> None:
    broker.create("vanishing", lakelog_table_freshness_ms="0")
    broker.produce("vanishing", [b"x"] * 100)
    broker.compact()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = read(spark, "vanishing", server=broker.server)
        for path in data_files(broker, "vanishing"):
            path.unlink()
        with pytest.raises(spark_failures(), match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_pinned_read_finds_its_rows_where_they_went(spark: SparkSession, broker: Broker) -> None:
    broker.create("moved", lakelog_table_freshness_ms="0")
    broker.produce("moved", [b"v%d" % at for at in range(100)])
    pinned = pin(spark, "moved", server=broker.server)
    before = rows(pinned.frame())
    broker.produce("moved", [b"late"])
    broker.compact()
    assert len(pinned.frame().inputFiles()) == 1
    assert rows(pinned.frame()) == before


def test_a_topic_that_was_deleted_is_data_loss(spark: SparkSession, broker: Broker) -> None:
    broker.create("deleted")
    broker.produce("deleted", [b"x"])
    pinned = pin(spark, "deleted", server=broker.server)
    frame = pinned.frame()
    broker.delete("deleted")
    broker.create("deleted")
    broker.produce("deleted", [b"another"])
    with pytest.raises(DataLoss, match="its topic was deleted"):
        pinned.frame()
    with pytest.raises(PySparkException, match="its topic was deleted"):
        frame.collect()


def test_without_a_file_system_for_the_store_the_data_source_reads_everything(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("lakelog.spark.frames.hadoop_place", lambda _: "s3a://no-such/bucket/")
    with caplog.at_level(logging.WARNING):
        frame = read(spark, topic, server=broker.server)
    assert "S3AFileSystem not found" in caplog.text
    assert frame.inputFiles() == []
    assert frame.count() == reader(spark, broker, topic).load().count()


def test_bad_arguments_are_named(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(BadOption, match="there is no such topic"):
        lakelog.spark.read(spark, "no-such", server=broker.server)
    with pytest.raises(BadOption, match="columns names 'valu'"):
        lakelog.spark.read(spark, "mixed", server=broker.server, columns=["valu"])
    with pytest.raises(BadOption, match="'~' is not one of"):
        lakelog.spark.read(spark, "mixed", server=broker.server, where=[("offset", "~", 1)])
    with pytest.raises((Refused, BadOption)):
        lakelog.spark.read(spark, "mixed")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lakelog.spark.nothing  # noqa: B018 - it is what is tested
