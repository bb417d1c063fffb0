"""Which WAL entries to compact next: one contiguous range of a stream, when it is due. Pure.

A stream's backlog is the WAL entries that follow each other from the first one on. It is due when
it is old (the table's freshness), when a WAL object that it shares with others is old (a quiet
stream must not pin what busy ones filled), when it is large, or when it is many pieces. A range
ends where an entry ends, so that one Swap can take its place, and is cut near the target size.

The range begins at the first WAL entry, and the table's vector must agree:

- it says that offset, or less, and the log has nothing for the table in between (it was trimmed):
  the range may be written;
- it says less, and the log has segments in between: their rows come first, for rows are appended
  in order (`BackfillDue`, `lakelog.pipeline.planning.backfill`). What becomes a segment itself
  does not wait for that, because it does not move the vector;
- it says more: the table is ahead (a task's record was lost after its commit). Nothing is written;
  the file is looked up in the table and swapped in (`plan_present`);
- it says less although the index names table files there: a problem to report.

Order of looking: the stream's task record first, then table, then index; the new record is put with
the version that was read, so no other task can have run in between
(`lakelog.pipeline.saga.task_record`). For the same reason `PendingSwap` and `Problem` count only if
the record, read again, is unchanged.

Quarantine is how much is kept as it is when a batch cannot be rows; it grows where bad batches are
many (`widened`). A worker stops at the first batch that it cannot read, so each one costs a failed
task and two more for its entry: a segment, and the rows beside it. A thousand of them would cost
thousands. So a bad batch that follows the last one closely takes twice as much of the log along, up
to the end of the task that met it: the tasks that fail are few, however many batches are bad. What
is taken along is in the table as it would be otherwise, for its rows are read from the segment, and
just what is bad is left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np

from lakelog.index.entries import StreamColumns
from lakelog.index.ports import PIECES_MAX
from lakelog.pipeline.saga.values import DataFile, PlannedTask, StreamName, TaskTarget, Trigger
from lakelog.streams.objects import FileKind


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """When a backlog is due and how it is cut."""

    freshness_ms: int = 60_000
    object_age_ms_max: int = 600_000
    bytes_min: int = 128 << 20
    bytes_target: int = 256 << 20
    bytes_max: int = 512 << 20
    entries_due: int = 1000
    pieces_max: int = PIECES_MAX

    def __post_init__(self) -> None:
        assert 0 <= self.bytes_min <= self.bytes_target <= self.bytes_max, self
        assert 0 < self.pieces_max <= PIECES_MAX, self


@dataclass(frozen=True, slots=True)
class NothingDue:
    """There is nothing to do for the stream yet."""


@dataclass(frozen=True, slots=True)
class PendingSwap:
    """The table holds [start, end) and the index still names WAL objects there."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BackfillDue:
    """Something is due, and before it the log has segments that the table lacks."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Table and index do not fit together; nothing is done before somebody looked."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Run:
    """The entries [first, stop) of the columns."""

    first: int
    stop: int
    target: TaskTarget


def plan_stream(
    name: StreamName,
    columns: StreamColumns,
    *,
    vector: int | None,
    quarantine: Sequence[tuple[int, int]] = (),
    options: PlanOptions,
    now_ms: int,
) -> PlannedTask | NothingDue | PendingSwap | BackfillDue | Problem:
    """The next range of the stream, if one is due; `vector` is its place in the table's vector."""
    is_wal = columns.kinds == FileKind.WAL
    if not is_wal.any():
        return NothingDue()
    first = int(is_wal.argmax())
    start = int(columns.starts[first])
    if vector is not None and vector > start:
        return PendingSwap(start, vector)
    is_ahead = columns.ends[:first] > (-1 if vector is None else vector)  # of the vector
    files = is_ahead & (columns.kinds[:first] == FileKind.PARQUET)
    if files.any():
        # A task commits its file to the table, which moves the vector, before it swaps it in.
        at = int(columns.starts[:first][files][0])
        return Problem(f"the index names a table file at {at}, the table reaches to {vector}")
    run = _run(columns, is_wal, first, quarantine)
    trigger = _trigger(columns, run, options, now_ms)
    if trigger is None:
        return NothingDue()
    if run.target is TaskTarget.TABLE and is_ahead.any():
        return BackfillDue()  # rows are appended in order
    run = _cut(columns, run, options)
    chosen = slice(run.first, run.stop)
    return PlannedTask(
        stream=name.stream,
        topic_id=name.topic_id,
        topic=name.topic,
        partition=name.partition,
        target=run.target,
        start=start,
        end=int(columns.ends[run.stop - 1]),
        expected=vector,
        input_bytes=int(columns.byte_lengths[chosen].sum()),
        entry_count=run.stop - run.first,
        oldest_ms=int(columns.object_times_ms[chosen].min()),
        planned_ms=now_ms,
        trigger=trigger,
    )


def plan_present(
    name: StreamName, columns: StreamColumns, file: DataFile, *, now_ms: int
) -> PlannedTask | Problem:
    """The task that swaps in a file which the table has already, at the first WAL entry."""
    is_wal = columns.kinds == FileKind.WAL
    inside = (columns.ends > file.start) & (columns.starts < file.end)
    if not inside.any() or not is_wal[inside].all():
        return Problem(f"{file.key} is in the table and its range is not in WAL objects")
    first, stop = int(inside.argmax()), int(inside.argmax() + inside.sum())
    begin = int(columns.starts[first])
    aligned = begin == file.start or (first == 0 and begin > file.start)
    if not aligned or int(columns.ends[stop - 1]) != file.end:
        return Problem(f"{file.key} is in the table and does not end where entries end")
    return PlannedTask(
        stream=name.stream,
        topic_id=name.topic_id,
        topic=name.topic,
        partition=name.partition,
        target=TaskTarget.TABLE,
        start=file.start,
        end=file.end,
        expected=None,
        input_bytes=0,
        entry_count=stop - first,
        oldest_ms=int(columns.object_times_ms[first:stop].min()),
        planned_ms=now_ms,
        trigger=Trigger.PRESENT,
        present=file,
    )


def chosen(
    tasks: Iterable[PlannedTask], *, tasks_max: int, input_bytes_max: int
) -> tuple[PlannedTask, ...]:
    """The tasks of one round, the oldest first, within what a round may take (one at least)."""
    picked: list[PlannedTask] = []
    total_bytes = 0
    for task in sorted(tasks, key=lambda task: (task.oldest_ms, task.stream)):
        total_bytes += task.input_bytes
        if picked and (len(picked) >= tasks_max or total_bytes > input_bytes_max):
            break
        picked.append(task)
    return tuple(picked)


def _run(
    columns: StreamColumns, is_wal: np.ndarray, first: int, quarantine: Sequence[tuple[int, int]]
) -> _Run:
    """The WAL entries from the first one on that can go the same way."""
    after = np.flatnonzero(~is_wal[first:])
    stop = first + int(after[0]) if len(after) else len(is_wal)
    bad = np.zeros(stop - first, dtype=bool)
    for start, end in quarantine:
        bad |= (columns.ends[first:stop] > start) & (columns.starts[first:stop] < end)
    changes = np.flatnonzero(bad != bad[0])
    target = TaskTarget.LOG if bad[0] else TaskTarget.TABLE
    return _Run(first, first + int(changes[0]) if len(changes) else stop, target)


def _trigger(
    columns: StreamColumns, run: _Run, options: PlanOptions, now_ms: int
) -> Trigger | None:
    """Why the run is due, None when it is not."""
    chosen = slice(run.first, run.stop)
    # A clock that is far ahead dates objects into the future: that must not keep rows back.
    age_ms = abs(now_ms - int(columns.object_times_ms[chosen].min()))
    if run.target is TaskTarget.LOG or age_ms >= options.freshness_ms:
        return Trigger.AGE
    if age_ms >= options.object_age_ms_max:
        return Trigger.OBJECT_AGE
    if int(columns.byte_lengths[chosen].sum()) >= options.bytes_target:
        return Trigger.SIZE
    return Trigger.COUNT if run.stop - run.first >= options.entries_due else None


def _cut(columns: StreamColumns, run: _Run, options: PlanOptions) -> _Run:
    """The run cut near the target size; a rest too small for a file of its own comes along."""
    stop = min(run.stop, run.first + options.pieces_max)
    sizes = np.cumsum(columns.byte_lengths[run.first : stop])
    total = int(sizes[-1])
    count = min(int(np.searchsorted(sizes, options.bytes_target)) + 1, len(sizes))
    taken = int(sizes[count - 1])
    if taken > options.bytes_max and count > 1:
        count -= 1
    elif total - taken < options.bytes_min and total <= options.bytes_max:
        count = len(sizes)
    return _Run(run.first, run.first + count, run.target)


NEAR: Final = 1000
"""Bad batches are close when less than so many times the last range lies between them."""

GROWTH: Final = 2


def widened(
    quarantine: Sequence[tuple[int, int]], *, start: int, end: int, limit: int
) -> tuple[int, int]:
    """The offsets to keep as they are, from a bad batch [start, end) on and not beyond `limit`."""
    assert start < end <= limit, (start, end, limit)
    before = [(first, stop) for first, stop in quarantine if stop <= start]
    if not before:
        return start, end
    last_start, last_end = max(before, key=itemgetter(1))
    size = last_end - last_start
    if start - last_end >= NEAR * size:
        return start, end
    return start, min(limit, max(end, start + GROWTH * size))
