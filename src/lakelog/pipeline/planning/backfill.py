"""Which segments still have rows for the table, and which streams to look for them in. Pure.

A Swap replaces whole entries, so a batch that cannot be rows takes the good ones beside it in its
entry into a segment. Their rows are not lost to the table: the segment is read once more, for the
table alone, and only what cannot be read is left out. The index keeps the segment, the vector moves
past it. So a table lacks exactly the batches that nobody can read, and a topic that becomes a table
late has all of its past in it.

The vector says what is still to do, as for WAL entries: a segment that ends above it is not in the
table, and rows are appended in order, so it is due only where no WAL entry comes before it.

Whether a stream has such segments is known only with its table and all of its entries, and most
streams have no segment at all. So candidates are remembered between rounds: a stream is looked at
when its last task made a segment or was given up, after rows of its segments were planned, and when
its entries end with segments; once nothing was found, not again until another task has run, for
only a task makes segments.
"""

from collections.abc import Set

import numpy as np

from lakelog.index.entries import StreamColumns
from lakelog.pipeline.planning.wal_ranges import PlanOptions, Problem
from lakelog.pipeline.saga.record_store import StoredRecord
from lakelog.pipeline.saga.task_record import TaskState
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget, Trigger
from lakelog.streams.objects import FileKind


def plan_backfill(
    name: StreamName,
    columns: StreamColumns,
    *,
    vector: int | None,
    options: PlanOptions,
    now_ms: int,
) -> PlannedTask | Problem | None:
    """The segments that come next for the table; None when WAL entries or nothing does."""
    ahead = np.flatnonzero(columns.ends > (-1 if vector is None else vector))
    if not len(ahead) or columns.kinds[ahead[0]] != FileKind.SEGMENT:
        return None
    first = int(ahead[0])
    start = int(columns.starts[first])
    if vector is not None and start < vector:
        return Problem(f"the table reaches to {vector}, into a segment that begins at {start}")
    others = np.flatnonzero(columns.kinds[first:] != FileKind.SEGMENT)
    stop = first + int(others[0]) if len(others) else len(columns.kinds)
    waiting_ms = columns.object_times_ms[columns.kinds == FileKind.WAL].tolist()
    sizes = np.cumsum(columns.byte_lengths[first:stop])
    count = max(1, int(np.searchsorted(sizes, options.bytes_max, side="right")))
    return PlannedTask(
        stream=name.stream,
        topic_id=name.topic_id,
        topic=name.topic,
        partition=name.partition,
        target=TaskTarget.TABLE,
        start=start,
        end=int(columns.ends[first + count - 1]),
        expected=vector,
        input_bytes=int(sizes[count - 1]),
        entry_count=count,
        oldest_ms=min([now_ms, *waiting_ms]),  # a segment knows no time, what waits behind it does
        planned_ms=now_ms,
        trigger=Trigger.AGE,
    )


def ends_in_segment(columns: StreamColumns) -> bool:
    """Whether what is before the WAL entries ends with a segment, which the table may lack.

    Segments that a data file follows are in the table, because rows are appended in order.
    """
    is_wal = columns.kinds == FileKind.WAL
    before = int(is_wal.argmax()) if is_wal.any() else len(is_wal)
    return before > 0 and int(columns.kinds[before - 1]) == FileKind.SEGMENT


class BackfillCandidates:
    """The streams to be looked at."""

    def __init__(self) -> None:
        self._suspects: set[int] = set()
        self._settled: dict[int, int] = {}
        """The number of the task after which nothing was found."""

    def keep(self, streams: Set[int]) -> None:
        """Forget streams that are gone."""
        self._suspects &= streams
        for stream in self._settled.keys() - streams:
            del self._settled[stream]

    def suspect(self, stream: int, last: StoredRecord | None) -> None:
        """The stream may lack something, unless a look since its last task says otherwise."""
        if self._settled.get(stream) != _number(last):
            self._suspects.add(stream)

    def settle(self, stream: int, last: StoredRecord | None) -> None:
        """A look after this task has found nothing."""
        self._suspects.discard(stream)
        self._settled[stream] = _number(last)

    def holds(self, stream: int, last: StoredRecord | None) -> bool:
        """Whether the stream is to be looked at."""
        if stream in self._suspects or last is None:
            return stream in self._suspects
        record = last.record
        if record.target is not TaskTarget.LOG and record.state is not TaskState.CLOSED:
            return False
        return self._settled.get(stream) != record.task


def _number(last: StoredRecord | None) -> int:
    return 0 if last is None else last.record.task
