"""A job as it is written for `format("kafka")`: batch and stream, read and write.

It knows two things about where it runs, the format's name and the option that connects; whoever
moves it to another format changes these two words and nothing below.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 120
Rows: TypeAlias = tuple[tuple[Any, ...], ...]
Options: TypeAlias = Mapping[str, str]

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "unix_micros(timestamp)",
    "timestampType",
)
"""What is compared of every row, with the time as a number, which no time zone changes."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The two words: the format, and the option that says where."""

    format: str
    option: str
    address: str


class StuckError(RuntimeError):
    """A query did not come to its end."""


def read(spark: SparkSession, to: Connection, options: Options) -> DataFrame:
    """Read a batch."""
    reader = spark.read.format(to.format).option(to.option, to.address)
    return reader.options(**options).load()


def read_stream(spark: SparkSession, to: Connection, options: Options) -> DataFrame:
    """Read a stream."""
    reader = spark.readStream.format(to.format).option(to.option, to.address)
    return reader.options(**options).load()


def write(frame: DataFrame, to: Connection, options: Options) -> None:
    """Write a batch."""
    writer = frame.write.format(to.format).option(to.option, to.address)
    writer.options(**options).mode("append").save()


def keep(stream: DataFrame, folder: Path) -> list[int]:
    """Append everything that is there now to files, and remember how far that was.

    Returns how many rows each micro-batch had.
    """
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    return finished(query)


def follow(stream: DataFrame, folder: Path, meanwhile: Callable[[], None]) -> None:
    """Append what comes while something else goes on, and stop when it has come."""
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        meanwhile()
        query.processAllAvailable()
    finally:
        query.stop()


def pipe(stream: DataFrame, to: Connection, options: Options, checkpoint: Path) -> list[int]:
    """Write what is there now to a topic, changed a little."""
    changed = stream.select(
        "partition", "key", f.concat(f.lit("seen "), f.hex("value")).alias("value"), "headers"
    )
    query = (
        changed.writeStream.format(to.format)
        .option(to.option, to.address)
        .options(**options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    return finished(query)


def count(stream: DataFrame, name: str) -> DataFrame:
    """Count by topic and partition, in a table of that name."""
    counted = stream.groupBy("topic", "partition").agg(
        f.count("*").alias("count"),
        f.sum(f.length("value")).alias("bytes"),
        f.max("offset").alias("last"),
    )
    query = (
        counted.writeStream.format("memory")
        .queryName(name)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    finished(query)
    return stream.sparkSession.table(name).orderBy("topic", "partition")


def finished(query: StreamingQuery) -> list[int]:
    """Wait for a query that ends by itself; returns how many rows each micro-batch had."""
    try:
        if not query.awaitTermination(WAIT_S):
            raise StuckError(f"a query did not end in {WAIT_S} s: {query.lastProgress}")
    finally:
        query.stop()
    return [progress["numInputRows"] for progress in query.recentProgress]


def kept(spark: SparkSession, folder: Path) -> DataFrame:
    """Everything that streams appended to a folder."""
    return spark.read.parquet(str(folder / "rows"))


def rows_of(frame: DataFrame) -> Rows:
    """The rows in order of topic, partition and offset, as values that compare."""
    columns = [*COLUMNS, *(["headers"] if "headers" in frame.columns else [])]
    chosen = frame.selectExpr(*columns)
    return tuple(sorted(map(values_of, chosen.collect()), key=lambda row: row[:3]))


def values_of(row: Row) -> tuple[Any, ...]:
    """The row as values that compare."""
    return tuple(_plain(value) for value in row)


def _plain(value: object) -> object:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list | Row):
        return tuple(_plain(one) for one in value)
    return value
