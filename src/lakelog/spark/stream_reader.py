"""Reads topics in micro-batches: what `spark.readStream.format("lakelog")` is to Spark.

Rules:

- Spark builds a reader in several processes and ships it with every task, so it does no I/O and is
  small; in the one process that plans for the query it opens what it needs when it is first asked.
- The same two vectors are always the same records: a batch that is planned again, by this process
  or by one that was started from the checkpoint, is the range between them and nothing else.
- Where a stream begins is decided once. A begin that would be another one later (`latest`) is
  given out as the end of the first batch, which is empty, so that the checkpoint has it before the
  first record is read: else records between two starts would be lost.
- Under `Trigger.AvailableNow` the stream ends at what was there when it was told so.
- A loss is an error, unless `failOnDataLoss` is false: then it is noted, and the stream goes on
  with what is there (`lakelog.spark.stream_offsets`).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from lakelog.clock import Clock, SystemClock
from lakelog.config.named_options import INT64_END, BadOption
from lakelog.lake.read.range_plan import DataLoss, pinned
from lakelog.lake.read.read_options import parse_read
from lakelog.lake.read.read_request import LATEST, PartitionName, ReadRequest
from lakelog.lake.read.topic_source import ReadPlan, TopicSource
from lakelog.spark.batch_reader import SplitPartition, columns_of, read, slots
from lakelog.spark.runtime import runtime
from lakelog.spark.stream_offsets import (
    Document,
    LivePartitions,
    StreamOffsets,
    StreamProgress,
    admitted,
    batch_ranges,
    document_of,
    is_due,
    is_known,
    never_there,
    offset_count,
    offsets_of,
    parse_offsets,
    progress_from,
)
from lakelog.spark.topic_poller import TopicPoller

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

LOSSES_SHOWN: Final = 5
NOTHING: Final = ReadPlan((), {}, ())

_log: Final = logging.getLogger(__name__)


class StreamQuery:
    """The source of one streaming query, in the process that plans for it."""

    def __init__(
        self,
        source: TopicSource,
        poller: TopicPoller,
        request: ReadRequest,
        clock: Clock,
        *,
        slots: int = 1,
    ) -> None:
        self._source = source
        self._poller = poller
        self._request = request
        self._clock = clock
        self._slots = slots
        self._initial: Document | None = None
        self._is_passing = False
        """Whether the begin would be another one if it were asked for later."""
        self._has_begun = False
        self._end: LivePartitions | None = None
        self._triggered_s: float | None = None
        self._said: tuple[str, ...] = ()
        self._idle: tuple[LivePartitions, Document] | None = None
        """What was seen when there was nothing to read from there on."""
        self._planned: tuple[Document, Document, ReadPlan] | None = None
        _say(request.notes)

    async def initial(self) -> Document:
        """Where the stream begins, the same whenever it is asked for."""
        if self._initial is None:
            self._initial = await self._poller.patient(self._begin)
        return self._initial

    async def pin(self) -> None:
        """Let the stream end at what is there now."""
        self._end = await self._poller.fresh()

    async def latest(self, start: Document, rows_max: int | None) -> Document:
        """Where the next batch from the start ends; the start itself when there is none.

        Without a limit everything is taken, whatever the options say.
        """
        is_first = not self._has_begun and start == self._initial
        self._has_begun = True
        if is_first and self._is_passing:
            return start
        live = await self._poller.current()
        if self._idle is not None and self._idle[0] is live and self._idle[1] == start:
            return start
        answer = self._next(start, rows_max, live)
        is_idle = answer == start and self._request.min_offsets_per_trigger is None
        self._idle = (live, start) if is_idle else None
        return answer

    async def available(self) -> Document:
        """The end of all that there is for the stream."""
        live = await self._poller.seen() if self._end is None else self._end
        return document_of(offsets_of(live))

    async def planned(self, start: Document, end: Document) -> ReadPlan:
        """The batch between the two, cut for tasks."""
        self._has_begun = True
        if self._planned is not None and self._planned[:2] == (start, end):
            return self._planned[2]  # Spark asks several times for a batch
        plan = await self._plan(parse_offsets(start), parse_offsets(end))
        self._planned = (start, end, plan)
        return plan

    async def _begin(self) -> Document:
        source, request = self._source, self._request
        partitions = await source.partitions(request)
        starts = await source.offsets(request.starting, partitions, is_start=True)
        bounds = await source.bounds(partitions)
        ends = dict.fromkeys(starts, LATEST)
        fail = request.fail_on_data_loss
        found = pinned(partitions, starts, ends, bounds, fail_on_data_loss=fail)
        _say(found.notes)
        self._is_passing = LATEST in starts.values()
        begins = {place: start for place, (start, _) in found.vector.items()}
        return document_of(StreamOffsets(begins, {one.topic: one.topic_id for one in partitions}))

    def _next(self, start: Document, rows_max: int | None, live: LivePartitions) -> Document:
        vector = parse_offsets(start)
        found = progress_from(vector, live, self._request.topics)
        self._check(vector, live)
        self._lose(found.losses, found.notes)
        ends = self._ends(vector, live, found)
        if rows_max is not None:
            if not self._is_due(offset_count(found.begins, ends)):
                return start
            ends = admitted(found.begins, ends, limit=rows_max)
        ids = {place.topic: found.topic_ids[place.topic] for place in ends}
        return document_of(StreamOffsets(ends, ids))

    def _ends(
        self, vector: StreamOffsets, live: LivePartitions, found: StreamProgress
    ) -> Mapping[PartitionName, int]:
        """As far as the stream may go: to the heads, or to what they were when it was pinned."""
        if self._end is None:
            return found.heads
        ends: dict[PartitionName, int] = {}
        for place, begin in found.begins.items():
            then, present = self._end.get(place), live[place]
            if then is not None and then.partition == present.partition:
                ends[place] = max(begin, min(present.bounds.head, then.bounds.head))
            elif is_known(place, present, vector):
                ends[place] = begin
        return ends

    def _is_due(self, count: int) -> bool:
        least = self._request.min_offsets_per_trigger
        if least is None or self._end is not None:
            return True
        now_s, since_s = self._clock.monotonic_s(), self._triggered_s
        waited_s = None if since_s is None else now_s - since_s
        delay_s = self._request.max_trigger_delay_ms / 1000
        if not is_due(count, least=least, waited_s=waited_s, delay_s=delay_s):
            return False
        self._triggered_s = now_s
        return True

    def _check(self, vector: StreamOffsets, live: LivePartitions) -> None:
        """What was never there is no loss, but a wrong option."""
        unknown = never_there(self._request.topics, vector, live)
        if unknown is not None and self._request.fail_on_data_loss:
            option, name = unknown
            raise BadOption(option, f"{option} names {name}, which does not exist")

    async def _plan(self, start: StreamOffsets, end: StreamOffsets) -> ReadPlan:
        if not batch_ranges(start, end, {}).losses:  # nobody is asked about an empty batch
            return NOTHING
        live = await self._poller.seen()
        found = batch_ranges(start, end, live)
        if found.losses or any(live[at].bounds.head < found.ends[at] for at in found.ends):
            # The options may have changed since, and what was seen may be older than the batch.
            names = sorted({place.topic for place in end.offsets})
            live = await self._poller.at(names)
            found = batch_ranges(start, end, live)
        self._lose(found.losses)
        bounds = {live[at].partition.stream: live[at].bounds for at in found.ends}
        fail = self._request.fail_on_data_loss
        pins = pinned(found.partitions, found.starts, found.ends, bounds, fail_on_data_loss=fail)
        work = partial(self._source.planned, pins, self._request, slots=self._slots)
        plan = await self._poller.patient(work)
        _say(plan.notes[len(self._request.notes) :])
        return plan

    def _lose(self, losses: Sequence[str], notes: Sequence[str] = ()) -> None:
        if losses and self._request.fail_on_data_loss:
            shown = "; ".join(losses[:LOSSES_SHOWN])
            more = len(losses) - LOSSES_SHOWN
            also = f"; and {more} more" if more > 0 else ""
            raise DataLoss(
                f"{shown}{also}; set failOnDataLoss to false to go on with what is there"
            )
        said = (*losses, *notes)
        if said != self._said:  # a stream that waits is asked again and again
            _say(said)
        self._said = said


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        _log.warning("%s", note)


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
