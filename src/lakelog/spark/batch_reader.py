"""Reads a topic once: what `spark.read.format("lakelog")` plans, and what each of its tasks reads.

Rules:

- Readers are built in several processes and shipped with every task: they do no I/O and are small.
- A read is pinned when Spark first plans it, and never planned again: the same data frame has the
  same rows however often it is used.
- Spark refuses a reader with `pushFilters` unless push-down is switched on, so only a reader that
  is made where filters are pushed has it. All filters are left to Spark, too; ours only prune.
- A partition is all that a task knows: where the cluster is, what to read, which columns.
- Rows are fetched and made on the process's loop and one thread beside it, while Spark's thread
  hands over the batch before; a few batches wait, so memory is bounded.
- The read ends when Spark has enough of it: nothing goes on behind an iterator that was closed.
- A failure reaches the job as it was raised: its text names the option, object or range.
- Ranges may be given as the text of an option that only `lakelog.spark.frames` sets. Offsets in
  Kafka's JSON name one range of a partition, by names that may come to mean another topic; these
  name any number, by their streams.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from lakelog.config.named_options import BadOption, boolean
from lakelog.index.ports import PinnedRange
from lakelog.lake.read.range_plan import Pinned
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_options import INCLUDE_HEADERS, parse_read
from lakelog.lake.read.read_request import (
    EVERYTHING,
    HEADERS,
    SCHEMA,
    Condition,
    Filters,
    ReadRequest,
    checked_schema,
    default_columns,
    filters_of,
    spark_ddl,
)
from lakelog.lake.read.splits import Split
from lakelog.lake.read.topic_source import ClusterAddress, ReadPlan, TopicSource
from lakelog.spark.runtime import Runtime, runtime

if TYPE_CHECKING:
    import pyarrow as pa

RANGES: Final = "lakelog.ranges"

_Topics = list[tuple[str, bytes, list[tuple[int, int, int, int]]]]


def encode_ranges(ranges: Iterable[PinnedRange]) -> str:
    """The ranges as text; each topic is named once."""
    topics: dict[tuple[str, bytes], list[tuple[int, int, int, int]]] = {}
    for one in ranges:
        place = (one.partition, one.stream, one.start, one.end)
        topics.setdefault((one.topic, one.topic_id), []).append(place)
    found: _Topics = [(*topic, places) for topic, places in topics.items()]
    return msgspec.json.encode(found).decode()


def decode_ranges(text: str) -> tuple[PinnedRange, ...]:
    """The ranges of a text; raises `BadOption`."""
    try:
        topics = msgspec.json.decode(text, type=_Topics)
    except msgspec.MsgspecError as reason:
        raise BadOption(RANGES, f"{RANGES} cannot be read: {reason}") from reason
    return tuple(
        PinnedRange(name, topic_id, *place) for name, topic_id, places in topics for place in places
    )


BATCHES_AHEAD: Final = 2
"""Batches that wait for Spark to take them."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class SplitPartition(InputPartition):
    """A split as it travels to a task."""

    split: Split
    reached: ClusterAddress
    columns: tuple[str, ...]
    fail_on_data_loss: bool = True
    since_us: int | None = None
    """Rows that are older need not be given, and some are not."""


def read(partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The rows of a partition; raises `DataLoss`, `Corrupt` and `Unavailable`."""
    if not isinstance(partition, SplitPartition):
        return  # Spark's own stand-in for a plan without partitions
    yield from rows(
        partition.split,
        partition.reached,
        RowOptions(
            partition.columns,
            partition.fail_on_data_loss,
            pool=runtime().pool,
            note=_warn,
            since_us=partition.since_us,
        ),
    )


def rows(split: Split, reached: ClusterAddress, options: RowOptions) -> "Iterator[pa.RecordBatch]":
    """The rows of a split, read ahead on the loop of this process."""
    running = runtime()
    pump = _Pump(running, running.source(reached), split, options)
    try:
        while (found := running.call(pump.queue.get())) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        pump.stop()


class _Pump:
    """Puts the rows of a split into a queue, until there are no more or somebody stops it."""

    def __init__(
        self, running: Runtime, source: TopicSource, split: Split, options: RowOptions
    ) -> None:
        self.queue: asyncio.Queue[pa.RecordBatch | BaseException | None]
        self.queue = asyncio.Queue(BATCHES_AHEAD)
        self._running = running
        self._task = running.spawn(self._run(source, split, options), name="split")

    async def _run(self, source: TopicSource, split: Split, options: RowOptions) -> None:
        try:
            async with aclosing(source.read(split, options)) as batches:
                async for batch in batches:
                    await self.queue.put(batch)
        except Exception as error:  # noqa: BLE001 - raised in the thread that takes
            await self.queue.put(error)
        await self.queue.put(None)

    def stop(self) -> None:
        """End it, from any thread."""
        self._running.cancel(self._task)


def _warn(note: str) -> None:
    _log.warning("%s", note)


_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The program of the process in which Spark pushes filters."""

_OPERATORS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}
"""The filters that can prune; of a row that has null there, none is true."""

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

_warned: Final[set[str]] = set()


def schema_of(options: Mapping[str, str]) -> str:
    """The columns of a read or a stream that names none itself."""
    text = next(
        (text for name, text in options.items() if name.lower() == INCLUDE_HEADERS.lower()), "false"
    )
    return ddl_of(default_columns(include_headers=boolean(INCLUDE_HEADERS, text)))


def ddl_of(columns: Sequence[str]) -> str:
    """The columns as a schema that means the same in every session.

    Where a session takes timestamps for local times, `timestamp` would be another type.
    """
    return spark_ddl(columns).replace("timestamp timestamp", "timestamp timestamp_ltz")


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema names, checked; raises `BadOption`."""
    columns = checked_schema((one.name, one.dataType.simpleString()) for one in schema.fields)
    for one in schema.fields:
        if not one.nullable or (one.name == HEADERS and one.dataType != _HEADERS):
            raise BadOption(SCHEMA, f"{one.name}, and whatever is in it, must be nullable")
    return columns


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of these columns; raises `BadOption`."""
    given = {name.lower(): text for name, text in options.items()}
    ranges = given.pop(RANGES, None)
    request = parse_read(given, streaming=False)
    made = PushingReader if _is_pushing() else BatchReader
    return made(request, columns_of(schema), None if ranges is None else decode_ranges(ranges))


class BatchReader(DataSourceReader):
    """Reads the rows that the options mean when Spark plans them."""

    def __init__(
        self,
        request: ReadRequest,
        columns: Sequence[str],
        ranges: tuple[PinnedRange, ...] | None = None,
    ) -> None:
        self.request = request
        self.columns = tuple(columns)
        self.ranges = ranges
        self.filters: Filters = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """The rows as they are now, cut for tasks; raises `BadOption` and `DataLoss`."""
        running = runtime()
        reached = running.reached(self.request.connection)
        plan = running.call(self._planned(running.source(reached)))
        warn_once(plan.notes)
        fail, since_us = self.request.fail_on_data_loss, self.filters.timestamp_start_us
        return [
            SplitPartition(split, reached, self.columns, fail, since_us) for split in plan.splits
        ]

    async def _planned(self, source: TopicSource) -> ReadPlan:
        found = (
            await source.pin(self.request) if self.ranges is None else Pinned(self.ranges, {}, ())
        )
        return await source.planned(found, self.request, filters=self.filters, slots=slots())

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task."""
        return read(partition)


class PushingReader(BatchReader):
    """The same, where filters can be pushed."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Leave out what cannot hold such a row; whether a row is wanted is for Spark to say."""
        self.filters = filters_of([one for each in filters for one in _conditions(each)])
        return iter(filters)


def slots() -> int:
    """How many tasks are taken to run at once.

    A process that plans is not told how many there are, so the cores of the driver's machine stand
    for them; `minPartitions` asks for more.
    """
    return os.cpu_count() or 1


def warn_once(notes: Sequence[str]) -> None:
    """Say what was ignored or left out, once in a process."""
    for note in notes:
        if note not in _warned:
            _warned.add(note)
            _log.warning("%s", note)


def _conditions(one: Filter) -> Iterator[Condition]:
    operator = _OPERATORS.get(type(one))
    if operator is not None:
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) == 1:
            yield path[0], operator, getattr(one, "value", None)


def _is_pushing() -> bool:
    """Whether this process runs the program that pushes filters, forked or started for it."""
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHING in sys.modules or (started is not None and started.name == _PUSHING)
