"""A stream that reads topics: where it begins, how far a trigger goes, what a batch is.

Rules:

- The same two vectors are always the same records: a batch that is planned again, by this process
  or by one that was started from the checkpoint, is the range between them and nothing else.
- Where a stream begins is decided once. A begin that would be another one later (`latest`) is
  given out as the end of the first batch, which is empty, so that the checkpoint has it before the
  first record is read: else records between two starts would be lost.
- Under `Trigger.AvailableNow` the stream ends at what was there when it was told so.
- A loss is an error, unless `failOnDataLoss` is false: then it is noted, and the stream goes on
  with what is there (`lakelog.spark.standing`).
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from lakelog.clock import Clock
from lakelog.config.named_options import BadOption
from lakelog.lake.read.range_plan import DataLoss, pinned
from lakelog.lake.read.read_request import LATEST, PartitionName, ReadRequest
from lakelog.lake.read.topic_source import ReadPlan, TopicSource
from lakelog.spark.admission import admitted, is_due, offset_count
from lakelog.spark.offsets import Document, Vector, document_of, parse_vector
from lakelog.spark.standing import (
    LivePartitions,
    Standing,
    is_known,
    never_there,
    ranges,
    standing,
    vector_of,
)
from lakelog.spark.topic_poller import TopicPoller

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
        return document_of(vector_of(live))

    async def planned(self, start: Document, end: Document) -> ReadPlan:
        """The batch between the two, cut for tasks."""
        self._has_begun = True
        if self._planned is not None and self._planned[:2] == (start, end):
            return self._planned[2]  # Spark asks several times for a batch
        plan = await self._plan(parse_vector(start), parse_vector(end))
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
        return document_of(Vector(begins, {one.topic: one.topic_id for one in partitions}))

    def _next(self, start: Document, rows_max: int | None, live: LivePartitions) -> Document:
        vector = parse_vector(start)
        found = standing(vector, live, self._request.topics)
        self._check(vector, live)
        self._lose(found.losses, found.notes)
        ends = self._ends(vector, live, found)
        if rows_max is not None:
            if not self._is_due(offset_count(found.begins, ends)):
                return start
            ends = admitted(found.begins, ends, limit=rows_max)
        ids = {place.topic: found.topic_ids[place.topic] for place in ends}
        return document_of(Vector(ends, ids))

    def _ends(
        self, vector: Vector, live: LivePartitions, found: Standing
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

    def _check(self, vector: Vector, live: LivePartitions) -> None:
        """What was never there is no loss, but a wrong option."""
        unknown = never_there(self._request.topics, vector, live)
        if unknown is not None and self._request.fail_on_data_loss:
            option, name = unknown
            raise BadOption(option, f"{option} names {name}, which does not exist")

    async def _plan(self, start: Vector, end: Vector) -> ReadPlan:
        if not ranges(start, end, {}).losses:  # nobody is asked about an empty batch
            return NOTHING
        live = await self._poller.seen()
        found = ranges(start, end, live)
        if found.losses or any(live[at].bounds.head < found.ends[at] for at in found.ends):
            # The options may have changed since, and what was seen may be older than the batch.
            names = sorted({place.topic for place in end.offsets})
            live = await self._poller.at(names)
            found = ranges(start, end, live)
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
