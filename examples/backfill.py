"""Works through the history of a topic in one batch, and then follows it, without gap or overlap.

    lakelog up                                  # a broker, in another terminal
    lakelog topics create readings --partitions 3
    lakelog topics create readings-celsius
    python examples/backfill.py --demo --since 2024-05-01

A new job needs the past as well as what comes. A stream could read all of it, but a batch reads the
data files of the past much faster, with Spark's own Parquet scan. The batch is pinned to one offset
for each partition; the stream starts at exactly these offsets.

Every reading is written once, whenever the job dies and starts again: the offsets are noted before
anything is written, the batch is written under a name of its own (`txnAppId`), so that a repeated
one counts once, and the stream has its checkpoint.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json, round, struct, to_json  # noqa: A004 - Spark's own

import lakelog.spark

READINGS: Final = "readings"
CELSIUS: Final = "readings-celsius"


def converted(readings: DataFrame) -> DataFrame:
    """Readings in degrees Celsius; where each came from is kept."""
    reading = from_json(col("value").cast("string"), "fahrenheit double")
    degrees = round((reading.fahrenheit - 32) / 1.8, 1).alias("celsius")
    return readings.select("key", to_json(struct(degrees, "partition", "offset")).alias("value"))


def noted_offsets(notes: Path, found: dict[str, dict[str, list[int]]]) -> dict[str, list[int]]:
    """From where to where the batch reads in each partition: as an earlier run noted it, or now."""
    if not notes.exists():
        notes.parent.mkdir(parents=True, exist_ok=True)
        fresh = notes.with_suffix(".new")
        fresh.write_text(json.dumps(found))
        fresh.replace(notes)  # all of it, or nothing
    kept: dict[str, list[int]] = json.loads(notes.read_text())[READINGS]
    return kept


def backfill(spark: SparkSession, server: str, offsets: dict[str, list[int]]) -> None:
    """Convert the readings of the past, once."""
    history = lakelog.spark.read(
        spark,
        READINGS,
        server=server,
        starting={int(partition): start for partition, (start, _) in offsets.items()},
        ending={int(partition): end for partition, (_, end) in offsets.items()},
    )
    (
        converted(history)
        .write.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", CELSIUS)
        .option("txnAppId", "backfill-of-readings")
        .option("txnVersion", "1")
        .mode("append")
        .save()
    )


def write_demo(spark: SparkSession, server: str, first: int, count: int) -> None:
    """Some readings of three sensors."""
    rows = spark.range(first, first + count).selectExpr(
        "concat('sensor-', id % 3) AS key", "to_json(struct(50.0 + id AS fahrenheit)) AS value"
    )
    (
        rows.write.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", READINGS)
        .mode("append")
        .save()
    )


def main(
    spark: SparkSession,
    server: str,
    checkpoint: str,
    since: datetime,
    *,
    demo: bool = False,
    once: bool = False,
) -> None:
    """Work off the past, then what comes, until there is no more (`once`) or for ever."""
    if demo:
        write_demo(spark, server, 0, 300)
    # A partition without a reading since then has no past: it is followed from its end on.
    silent = {"startingOffsetsByTimestampStrategy": "latest"}
    past = lakelog.spark.pin(spark, READINGS, server=server, starting=since, options=silent)
    by_partition = {str(place.partition): [*ends] for place, ends in past.vector.items()}
    offsets = noted_offsets(Path(checkpoint, "backfill.json"), {READINGS: by_partition})
    if demo:
        write_demo(spark, server, 300, 30)  # what comes meanwhile
    backfill(spark, server, offsets)
    ends = {READINGS: {partition: end for partition, (_, end) in offsets.items()}}
    readings = (
        spark.readStream.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", READINGS)
        .option("startingOffsets", json.dumps(ends))
        .load()
    )
    following = (
        converted(readings)
        .writeStream.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", CELSIUS)
        .option("checkpointLocation", f"{checkpoint}/stream")
    )
    if once:
        following = following.trigger(availableNow=True)
    following.start().awaitTermination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Convert all readings, old and new.")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="a broker's HTTP port")
    parser.add_argument("--checkpoint", default="checkpoints/backfill")
    parser.add_argument(
        "--since",
        type=lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
        default=datetime(1970, 1, 1, tzinfo=UTC),
        help="where the past begins, in UTC",
    )
    parser.add_argument("--demo", action="store_true", help="write some readings first")
    parser.add_argument("--once", action="store_true", help="end when all readings are converted")
    given = parser.parse_args()
    session = SparkSession.builder.appName("backfill").getOrCreate()
    main(
        session,
        given.server,
        given.checkpoint,
        given.since,
        demo=given.demo,
        once=given.once,
    )
