"""What of a plan Spark's own Parquet scan reads, and its columns as those of a read.

An index entry names a data file for the offsets [start, end). The file holds just these, but for
the first file of a log, of which retention may have let go a part: so only at the two ends of a
range rows have to be looked at. Where there are too many such ends for one condition, the data
source reads them.

What `lakelog.lake.read.row_decoder` does to Arrow's columns is done here to Spark's, as
expressions: timestamps are exact, also those that the column of a table cannot hold, and a record
without headers has null there.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import numpy as np
from pyspark.sql import functions

from lakelog.index.entries import Entry
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.read_request import Condition
from lakelog.lake.read.row_decoder import MS_MAX, MS_MIN
from lakelog.lake.read.topic_source import local_directory
from lakelog.records.header import LOG_APPEND_TIME_BIT
from lakelog.records.table_schema import RAW_TIMESTAMP_BYTES
from lakelog.streams.objects import FileKind

if TYPE_CHECKING:
    from pyspark.sql import Column

TOPICS_MAX: Final = 32
"""Topics that get a scan of their own: a file does not know its topic, and plans grow with them."""

CUTS_MAX: Final = 64
"""Ranges in the condition of one scan."""

_SCHEMES: Final = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""What Hadoop calls the stores that it may know; only `file` is there without more jars."""

_GLOB: Final = re.compile(r"([\\\[\]{}*?])")


@dataclass(slots=True)
class NativeScan:
    """The data files of one topic: those read whole, and those of which a range is wanted."""

    topic: str
    whole: list[str] = field(default_factory=list)
    cut: list[tuple[str, PinnedRange]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Division:
    """A plan, divided."""

    scans: tuple[NativeScan, ...]
    rest: tuple[PinnedRange, ...]


def divided(hinted: Iterable[PlannedRange]) -> Division:
    """Data files for Spark, and all other ranges, in order."""
    scans: dict[str, NativeScan] = {}
    rest: list[PinnedRange] = []
    for one in hinted:
        for run, is_native in _runs(one):
            scan = scans.get(one.pinned.topic)
            if is_native and scan is None and len(scans) < TOPICS_MAX:
                scan = scans[one.pinned.topic] = NativeScan(one.pinned.topic)
            if not is_native or scan is None:
                rest.append(run.pinned)
                continue
            for entry in run.entries:
                _add(scan, entry, one.pinned, rest)
    return Division(tuple(scans.values()), joined_ranges(rest))


def everything(hinted: Iterable[PlannedRange]) -> Division:
    """All of it for the data source."""
    return Division((), joined_ranges([one.pinned for one in hinted]))


def joined_ranges(ranges: Sequence[PinnedRange]) -> tuple[PinnedRange, ...]:
    """The same ranges, neighbours as one."""
    found: list[PinnedRange] = []
    for one in ranges:
        if found and (found[-1].stream, found[-1].end) == (one.stream, one.start):
            found[-1] = replace(found[-1], end=one.end)
        else:
            found.append(one)
    return tuple(found)


def hadoop_place(objects_url: str) -> str | None:
    """Where Hadoop finds the objects, as a prefix of paths; None where it cannot."""
    directory = local_directory(objects_url)
    if directory is not None:
        return f"file:{_literal(str(directory.absolute()))}/"
    parts = urlsplit(objects_url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None:
        return None
    prefix = parts.path.strip("/")
    return f"{scheme}://{parts.netloc}/{_literal(prefix)}{'/' if prefix else ''}"


def _literal(path: str) -> str:
    """The path where Spark expects a pattern."""
    return _GLOB.sub(r"\\\1", path)


def _runs(hinted: PlannedRange) -> Iterator[tuple[PlannedRange, bool]]:
    """The range in parts that lie in data files or do not."""
    wanted, found = hinted.pinned, hinted.entries
    found = found.overlapping(start=wanted.start, end=wanted.end)
    is_native = found.kinds == FileKind.PARQUET
    edges = np.flatnonzero(np.diff(is_native.astype(np.int8))) + 1
    for first, stop in pairwise([0, *edges.tolist(), len(found)]):
        if first < stop:
            start = max(wanted.start, int(found.edges[first]))
            end = min(wanted.end, int(found.edges[stop]))
            part = PlannedRange(replace(wanted, start=start, end=end), found.part(first, stop))
            yield part, bool(is_native[first])


def _add(scan: NativeScan, entry: Entry, pinned: PinnedRange, rest: list[PinnedRange]) -> None:
    begins_whole = entry.start > pinned.start or entry.start == pinned.start == 0
    if begins_whole and entry.end <= pinned.end:
        scan.whole.append(entry.key)
        return
    start, end = max(entry.start, pinned.start), min(entry.end, pinned.end)
    wanted = replace(pinned, start=start, end=end)
    if len(scan.cut) < CUTS_MAX:
        scan.cut.append((entry.key, wanted))
    else:
        rest.append(wanted)


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
