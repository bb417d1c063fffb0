"""Counts words as lines arrive, and keeps the newest count of every word in a topic.

    lakelog up                                  # a broker, in another terminal
    lakelog topics create lines
    lakelog topics create word-counts
    python examples/word_count.py --demo        # writes some lines first; Ctrl+C ends it

The stream reads lines straight from object storage and writes counts back, each micro-batch exactly
once: ended at any moment and started again, it goes on where its checkpoint says. Counts that
change are rows that change (`update`), which Spark hands to `foreachBatch` only; a batch that is
repeated has the same number, and is written once.
"""

import argparse
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, explode, lit, lower, max_by, regexp_extract_all

LINES: Final = "lines"
COUNTS: Final = "word-counts"

RHYME: Final = (
    "Row, row, row your boat",
    "Gently down the stream",
    "Merrily, merrily, merrily, merrily",
    "Life is but a dream",
)


def word_counts(lines: DataFrame) -> DataFrame:
    """How often every word came, as records: the word is the key, its count the value."""
    word = explode(regexp_extract_all(lower(col("value").cast("string")), lit(r"([a-z']+)")))
    return (
        lines.select(word.alias("key"))
        .groupBy("key")
        .agg(count(lit(1)).cast("string").alias("value"))
    )


def latest_counts(spark: SparkSession, server: str) -> DataFrame:
    """The last count of every word: all of one key are in one partition, the newest is last."""
    records = (
        spark.read.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", COUNTS)
        .load()
    )
    return (
        records.groupBy(col("key").cast("string").alias("word"))
        .agg(max_by(col("value").cast("string").cast("long"), "offset").alias("count"))
        .orderBy(col("count").desc(), "word")
    )


def write_demo(spark: SparkSession, server: str) -> None:
    """Some lines to count."""
    lines = spark.createDataFrame([(line,) for line in RHYME], "value string")
    (
        lines.write.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", LINES)
        .mode("append")
        .save()
    )


def write_counts(server: str, counts: DataFrame, batch: int) -> None:
    """The counts that changed in one batch; query and number name the write, so it counts once."""
    query = counts.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert query, "Spark says which stream the batch belongs to"
    (
        counts.write.format("lakelog")
        .option("lakelog.server", server)
        .option("topic", COUNTS)
        .option("txnAppId", query)
        .option("txnVersion", batch)
        .mode("append")
        .save()
    )


def main(spark: SparkSession, server: str, checkpoint: str, *, demo: bool, once: bool) -> None:
    """Count until there are no more lines (`once`), or for ever."""
    if demo:
        write_demo(spark, server)
    lines = (
        spark.readStream.format("lakelog")
        .option("lakelog.server", server)
        .option("subscribe", LINES)
        .option("startingOffsets", "earliest")
        .load()
    )
    counting = (
        word_counts(lines)
        .writeStream.foreachBatch(partial(write_counts, server))
        .option("checkpointLocation", checkpoint)
        .outputMode("update")  # of every batch, the words whose counts changed
    )
    if not once:
        counting.start().awaitTermination()
        return
    counting.trigger(availableNow=True).start().awaitTermination()
    latest_counts(spark, server).show(10, truncate=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words as lines arrive.")
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="a broker's HTTP port")
    parser.add_argument("--checkpoint", default="checkpoints/word-count")
    parser.add_argument("--demo", action="store_true", help="write some lines first")
    parser.add_argument("--once", action="store_true", help="end when all lines are counted")
    given = parser.parse_args()
    builder = SparkSession.builder.appName("word count")
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    main(session, given.server, given.checkpoint, demo=given.demo, once=given.once)
