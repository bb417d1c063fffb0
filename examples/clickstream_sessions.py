"""Makes sessions of clicks: half an hour without one ends a visit.

    lakelog up                                  # a broker, in another terminal
    lakelog topics create clicks
    lakelog topics create sessions
    python examples/clickstream_sessions.py --demo

A click is {"page": …, "at": …}, keyed by its user. Open sessions are the state of the query, kept
in its checkpoint. Clicks may be ten minutes late: a session is written once, when no click can come
any more that would make it longer, and then it is final.
"""

import argparse
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import (
    col,
    count,
    from_json,
    lit,
    max_by,
    min_by,
    session_window,
    struct,
    to_json,
)

CLICKS: Final = "clicks"
SESSIONS: Final = "sessions"
GAP: Final = "30 minutes"
LATENESS: Final = "10 minutes"

NOON: Final = datetime(2024, 5, 1, 12, tzinfo=UTC)
DEMO: Final = (
    # user, minutes after noon, page, in the order in which they arrive
    ("ada", 0, "/"),
    ("bob", 1, "/news"),
    ("ada", 4, "/pricing"),
    ("ada", 19, "/signup"),
    ("bob", 9, "/about"),  # ten minutes late, and still Bob's first visit
    ("bob", 70, "/news"),
    ("ada", 75, "/docs"),
    ("eve", 200, "/"),  # hours later: all visits before are over
)


def sessions(clicks: DataFrame) -> DataFrame:
    """One record for every visit: who, from when to when, how many clicks, first and last page."""
    click = from_json(col("value").cast("string"), "page string, at timestamp")
    visits = (
        clicks.select(col("key").cast("string").alias("user"), click.alias("click"))
        .select("user", "click.page", "click.at")
        .withWatermark("at", LATENESS)
        .groupBy("user", session_window("at", GAP).alias("visit"))
        .agg(
            count(lit(1)).alias("clicks"),
            min_by("page", "at").alias("entered"),
            max_by("page", "at").alias("left"),
        )
    )
    facts = struct("user", "visit.start", "visit.end", "clicks", "entered", "left")
    return visits.select(col("user").alias("key"), to_json(facts).alias("value"))


def finished(spark: SparkSession, server: str) -> DataFrame:
    """All sessions that are over."""
    records = (
        spark.read.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", SESSIONS)
        .load()
    )
    kind = "user string, start timestamp, end timestamp, clicks long, entered string, left string"
    session = from_json(col("value").cast("string"), kind)
    return records.select(session.alias("session")).select("session.*").orderBy("start", "user")


def write_demo(spark: SparkSession, server: str) -> None:
    """Some clicks, in the order in which they arrive."""
    clicks = [(user, page, NOON + timedelta(minutes=minutes)) for user, minutes, page in DEMO]
    rows = spark.createDataFrame(clicks, "key string, page string, at timestamp").coalesce(1)
    (
        rows.select("key", to_json(struct("page", "at")).alias("value"))
        .write.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", CLICKS)
        .mode("append")
        .save()
    )


def main(spark: SparkSession, server: str, checkpoint: str, *, demo: bool, once: bool) -> None:
    """Follow the clicks until there are no more (`once`), or for ever."""
    if demo:
        write_demo(spark, server)
    clicks = (
        spark.readStream.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", CLICKS)
        .option("startingOffsets", "earliest")
        .load()
    )
    following = (
        sessions(clicks)
        .writeStream.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", SESSIONS)
        .option("checkpointLocation", checkpoint)
        .outputMode("append")  # a session appears when it is over
    )
    if not once:
        following.start().awaitTermination()
        return
    following.trigger(availableNow=True).start().awaitTermination()
    finished(spark, server).show(20, truncate=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make sessions of clicks.")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="a broker's HTTP port")
    parser.add_argument("--checkpoint", default="checkpoints/clickstream-sessions")
    parser.add_argument("--demo", action="store_true", help="write some clicks first")
    parser.add_argument("--once", action="store_true", help="end when all clicks are read")
    given = parser.parse_args()
    builder = SparkSession.builder.appName("clickstream sessions")
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    main(session, given.server, given.checkpoint, demo=given.demo, once=given.once)
