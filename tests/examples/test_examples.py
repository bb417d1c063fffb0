"""The examples run as they stand, against a broker, and do what they say."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.lake.running import Broker

from examples import backfill, clickstream_sessions, late_join, word_count
from lakelog.lake.read.arrow_reader import read

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module", autouse=True)
def settled(spark: SparkSession) -> Iterator[None]:
    """Few tasks in a shuffle, and the session is that of this thread, as in a script."""
    spark.createDataFrame([], "none int")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


def test_words_are_counted_over_restarts(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for topic in (word_count.LINES, word_count.COUNTS):
        broker.create(topic, 2)
    checkpoint = str(tmp_path / "checkpoint")
    word_count.main(spark, broker.server, checkpoint, demo=True, once=True)
    assert "|merrily|4    |" in capsys.readouterr().out
    word_count.main(spark, broker.server, checkpoint, demo=True, once=True)
    counts = {
        row["word"]: row["count"]
        for row in word_count.latest_counts(spark, broker.server).collect()
    }
    assert counts["merrily"] == 8
    assert counts["row"] == 6
    assert counts["stream"] == 2
    assert len(counts) == 13


def test_clicks_become_sessions(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    for topic in (clickstream_sessions.CLICKS, clickstream_sessions.SESSIONS):
        broker.create(topic)
    clickstream_sessions.main(
        spark, broker.server, str(tmp_path / "checkpoint"), demo=True, once=True
    )
    found = clickstream_sessions.finished(spark, broker.server).collect()
    assert [
        (row["user"], row["clicks"], row["entered"], row["left"], row["end"] - row["start"])
        for row in found
    ] == [
        ("ada", 3, "/", "/signup", timedelta(minutes=49)),
        ("bob", 2, "/news", "/about", timedelta(minutes=38)),
        ("bob", 1, "/news", "/news", timedelta(minutes=30)),
        ("ada", 1, "/docs", "/docs", timedelta(minutes=30)),
    ], "and Eve is still there"


def test_late_payments_are_joined_and_lost_ones_are_not(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    for topic in (late_join.ORDERS, late_join.PAYMENTS, late_join.SETTLED):
        broker.create(topic)
    late_join.main(spark, broker.server, str(tmp_path / "checkpoint"), demo=True, once=True)
    rows = late_join.all_settled(spark, broker.server).collect()
    found = {row["id"]: row["paid_at"] is not None for row in rows}
    assert len(found) == len(rows), "each order once"
    assert found == {"a": True, "b": True, "c": False, "d": True, "e": True}


def test_a_backfill_and_the_stream_after_it_have_each_record_once(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create(backfill.READINGS, 3, lakelog_table_freshness_ms="0")
    broker.create(backfill.CELSIUS, 2)

    def written() -> list[tuple[int, int]]:
        table = read(backfill.CELSIUS, server=broker.server, columns=["value"])
        found = [json.loads(value) for value in table["value"].to_pylist()]
        return sorted((one["partition"], one["offset"]) for one in found)

    def expected() -> list[tuple[int, int]]:
        columns = ["partition", "offset"]
        table = read(backfill.READINGS, server=broker.server, columns=columns)
        return [(row["partition"], row["offset"]) for row in table.to_pylist()]

    backfill.write_demo(spark, broker.server, 1000, 50)
    broker.compact()
    place = tmp_path / "work"
    backfill.main(spark, broker.server, str(place), BEGINNING, demo=True, once=True)
    assert written() == expected()
    assert len(expected()) == 380
    # It dies before the stream has a checkpoint, and starts again: the batch is there already.
    noted = (place / "backfill.json").read_text()
    backfill.write_demo(spark, broker.server, 2000, 20)
    backfill.backfill(spark, broker.server, backfill.noted_offsets(place / "backfill.json", {}))
    assert len(written()) == 380
    backfill.main(spark, broker.server, str(place), BEGINNING, once=True)
    assert written() == expected()
    assert len(expected()) == 400
    assert (place / "backfill.json").read_text() == noted
