"""Scans of one topic by Spark in every way, all with the same question, so that answers compare.

The question touches every value and every offset: what has no column pruning moves all of its
columns, what has moves two.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import lakelog
import lakelog.spark
from bench.clients import ClientError
from lakelog.lake.read.read_request import arrow_schema, default_columns, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

QUESTION = ("count(*)", "sum(length(value))", "sum(offset)")
TWO_COLUMNS = "offset long, value binary"
GENERATED_ROWS = 1 << 16
"""Rows of a generated batch: about what ours have."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How many rows, bytes of values, and all offsets added up."""

    rows: int
    value_bytes: int
    offsets: int


@dataclass(frozen=True, slots=True)
class Scan:
    """One way to the answer, and how long it took."""

    name: str
    ask: Callable[[], Answer]
    is_checked: bool = True

    def timed(self, expected: Answer) -> float:
        """Return the seconds; an answer that is wrong is no figure."""
        began = time.perf_counter()
        found = self.ask()
        took = time.perf_counter() - began
        if found != expected and (self.is_checked or found.rows != expected.rows):
            raise ClientError(f"{self.name} answered {found} and not {expected}")
        return took


def asked(frame: "DataFrame") -> Answer:
    """Ask the question of a data frame."""
    (row,) = frame.selectExpr(*QUESTION).collect()
    return Answer(*row)


def by_connector(spark: "SparkSession", bootstrap: str, topic: str) -> Answer:
    """Through Spark's own Kafka connector."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return asked(reader.option("subscribe", topic).load())


def by_format(spark: "SparkSession", server: str, topic: str, schema: str | None = None) -> Answer:
    """Through our data source, all columns or those of a schema."""
    reader = spark.read.format("lakelog").option("lakelog.server", server)
    if schema is not None:
        reader = reader.schema(schema)
    return asked(reader.option("subscribe", topic).load())


def natively(spark: "SparkSession", server: str, topic: str) -> Answer:
    """Through Spark's own Parquet scan."""
    return asked(lakelog.spark.read(spark, topic, server=server))


def without_spark(server: str, topic: str, columns: "tuple[str, ...] | None" = None) -> Answer:
    """In this process, batch by batch."""
    rows = value_bytes = offsets = 0
    for batch in lakelog.open(topic, server=server, columns=columns):
        rows += batch.num_rows
        value_bytes += pc.sum(pc.binary_length(batch.column("value"))).as_py()
        offsets += pc.sum(batch.column("offset")).as_py()
    return Answer(rows, value_bytes, offsets)


def generated(spark: "SparkSession", name: str) -> Answer:
    """From a Python data source that has its batches ready: nothing of this kind is faster."""
    return asked(spark.read.format(name).load())


@dataclass(frozen=True, slots=True)
class Shape:
    """What is generated."""

    rows: int
    tasks: int
    key_bytes: int
    value_bytes: int


def register_generator(
    spark: "SparkSession", shape: Shape, columns: tuple[str, ...] | None = None
) -> str:
    """Make a data source that gives rows of this shape; returns its name.

    Its classes are made here, so that they travel to workers as they are.
    """
    wanted = columns or default_columns(include_headers=False)
    name = f"generated{len(wanted)}"
    tasks, key_bytes, value_bytes = shape.tasks, shape.key_bytes, shape.value_bytes
    per_task = shape.rows // tasks
    ddl = spark_ddl(wanted)

    class Generator(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, _: InputPartition) -> "Iterator[pa.RecordBatch]":
            batch = made(wanted, GENERATED_ROWS, key_bytes, value_bytes)
            left = per_task
            while left > 0:
                yield batch if left >= batch.num_rows else batch.slice(0, left)
                left -= batch.num_rows

    class Generated(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return ddl

        def reader(self, schema: "StructType") -> DataSourceReader:
            return Generator()

    spark.dataSource.register(Generated)
    return name


def made(columns: tuple[str, ...], rows: int, key_bytes: int, value_bytes: int) -> pa.RecordBatch:
    """A batch as a read has it."""
    schema = arrow_schema(columns)
    same = {
        "key": b"k" * key_bytes,
        "value": b"v" * value_bytes,
        "topic": "rows",
        "partition": 1,
        "timestampType": 0,
    }
    arrays = []
    for field in schema:
        if field.name in same:
            arrays.append(pa.repeat(pa.scalar(same[field.name], field.type), rows))
        else:
            arrays.append(pa.array(np.arange(rows)).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cpu_s() -> float:
    """Return the CPU seconds so far of this process and all that run or ran below it.

    Spark ends workers that have nothing to do: what they used is their parents' then.
    """
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total
