"""From the columns of data files to those of a read, as expressions of Spark.

What `lakelog.lake.read.row_decoder` does to Arrow's columns is done here to Spark's: timestamps are
exact, also those that the column of a table cannot hold, and a record without headers has null
there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions

from lakelog.index.ports import PinnedRange
from lakelog.lake.read.read_request import Condition
from lakelog.lake.read.row_decoder import MS_MAX, MS_MIN
from lakelog.records.header import LOG_APPEND_TIME_BIT
from lakelog.records.table_schema import RAW_TIMESTAMP_BYTES

if TYPE_CHECKING:
    from pyspark.sql import Column

FILE_DDL: Final = (
    "partition int, offset bigint, timestamp timestamp_ltz, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>, attributes int, raw binary"
)
"""The columns of a data file that rows are made of."""

FILE_OPTIONS: Final[Mapping[str, str]] = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
}
"""A read gives all rows as they are or fails, whatever the session has set."""


def as_rows(columns: Sequence[str], topic: str) -> "list[Column]":
    """The columns of a read, made of those of a data file."""
    return [_made(name, topic).alias(name) for name in columns]


def within(ranges: Sequence[PinnedRange]) -> "Column":
    """Whether a row lies in one of these ranges."""
    partition, offset = functions.col("partition"), functions.col("offset")
    wanted = [
        (partition == one.partition) & (offset >= one.start) & (offset < one.end) for one in ranges
    ]
    return reduce(or_, wanted)


def holds(condition: Condition) -> "Column":
    """The condition as an expression; of null, none holds."""
    column, operator, value = condition
    return _OPERATORS[operator](functions.col(column), value)


_OPERATORS: Final[Mapping[str, "Callable[[Column, Any], Column]"]] = {
    "=": lambda column, value: column == value,
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
    "in": lambda column, value: column.isin(list(value)),
    "not in": lambda column, value: ~column.isin(list(value)),
}


def _made(name: str, topic: str) -> "Column":
    match name:
        case "topic":
            # A value that may be null to Spark, as all columns of a read.
            return functions.when(functions.lit(True), functions.lit(topic))
        case "timestamp":
            return _timestamps()
        case "timestampType":
            mark = functions.col("attributes").bitwiseAND(LOG_APPEND_TIME_BIT)
            return (mark != 0).cast("int")
        case "headers":
            headers = functions.col("headers")
            return functions.when(functions.size(headers) > 0, headers)
        case _:
            return functions.col(name)


def _timestamps() -> "Column":
    """`raw` begins with the milliseconds, as a big-endian number of 64 bits."""
    raw = functions.col("raw")
    digits = functions.hex(functions.substring(raw, 1, RAW_TIMESTAMP_BYTES))
    sent_ms = functions.conv(digits, 16, -10).cast("bigint")
    least, most = functions.lit(MS_MIN), functions.lit(MS_MAX)
    held_ms = functions.greatest(functions.least(sent_ms, most), least)
    exact = functions.timestamp_micros(held_ms * 1000)
    return functions.when(raw.isNull(), functions.col("timestamp")).otherwise(exact)
