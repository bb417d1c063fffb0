"""Reads topics in micro-batches: what `spark.readStream.format("lakelog")` is to Spark.

Spark builds a reader in several processes and ships it with every task, so it does no I/O and is
small; in the one process that plans for the query it opens what it needs when it is first asked.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lakelog.clock import SystemClock
from lakelog.config.named_options import INT64_END
from lakelog.lake.read.read_options import parse_read
from lakelog.lake.read.read_request import ReadRequest
from lakelog.spark.batch import columns_of, slots
from lakelog.spark.offsets import Document
from lakelog.spark.runtime import runtime
from lakelog.spark.stream_query import StreamQuery
from lakelog.spark.task_rows import SplitPartition, read
from lakelog.spark.topic_poller import TopicPoller

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

UNLIMITED: Final = INT64_END - 1
"""A limit that tells a trigger with options of ours from one that must take everything."""


def stream_reader(options: Mapping[str, str], schema: "StructType") -> DataSourceStreamReader:
    """The reader of these columns; raises `BadOption`."""
    return StreamReader(parse_read(options, streaming=True), columns_of(schema))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the topics of a request, batch after batch."""

    def __init__(self, request: ReadRequest, columns: Sequence[str]) -> None:
        self.request = request
        self.columns = tuple(columns)
        self._query: StreamQuery | None = None

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return StreamReader, (self.request, self.columns)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the stream begins; raises `BadOption` and `DataLoss`."""
        return dict(runtime().call(self._opened().initial()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """What a trigger takes at most, as the options say."""
        request = self.request
        if request.max_offsets_per_trigger is not None:
            return ReadMaxRows(request.max_offsets_per_trigger)
        # Spark's limit for a least number of rows has no delay, so ours are kept to ourselves.
        return ReadAllAvailable() if request.min_offsets_per_trigger is None else _ANY

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Document, limit: ReadLimit
    ) -> dict[str, Any]:
        """Where the next batch ends; raises `DataLoss`."""
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return dict(runtime().call(self._opened().latest(start, rows_max)))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of what there is, for the progress of the query."""
        return dict(runtime().call(self._opened().available()))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream at what is there now."""
        runtime().call(self._opened().pin())

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """The batch between the two, cut for tasks; raises `DataLoss`."""
        running = runtime()
        plan = running.call(self._opened().planned(start, end))
        reached = running.reached(self.request.connection)
        fail = self.request.fail_on_data_loss
        return [SplitPartition(split, reached, self.columns, fail) for split in plan.splits]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one task."""
        return read(partition)

    def commit(self, end: Document) -> None:
        """Nothing: the checkpoint of the query keeps its offsets."""

    def stop(self) -> None:
        """Let go what was seen; connections belong to the process."""
        self._query = None

    def _opened(self) -> StreamQuery:
        if self._query is None:
            running, clock, request = runtime(), SystemClock(), self.request
            source = running.source(running.reached(request.connection))
            poller = TopicPoller(source, request.topics, clock)
            self._query = StreamQuery(source, poller, request, clock, slots=slots())
        return self._query


_ANY: Final = ReadMaxRows(UNLIMITED)
