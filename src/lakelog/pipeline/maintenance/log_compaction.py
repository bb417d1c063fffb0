"""Log compaction: which range of a stream is to be cleaned, which rows stay, what is written. Pure.

A pass looks at all data files from the log's start to `end`, the first entry that is not ready. In
this range stay

- the latest record of each key (whole keys are compared);
- all records without a key, which a compacted topic refuses, but an older one may have;
- of the latest records, a tombstone (null value) for `delete.retention.ms` after the pass that
  first had it in its range: nobody who reads from the start within that time misses the deletion.

Everything else goes, offsets stay as they are, and the index keeps the range of what went.

A pass is a scan, which finds the rows that stay file by file, and then a replacing task for each
`CleaningGroup` of files that lose some, one after another, because a stream has one task at a time.
Between any two the pass may end: a row goes only because of a later one, which is in the log as
long as its key has nothing later still, and a tombstone only after a whole pass over everything
before it has ended. How far whole passes came is `Cleaned`, put into the stream's record after the
last group (`after_pass`); lost or never put, the next pass does it again and finds less to do.

It is due as in Kafka: more than `min.cleanable.dirty.ratio` of the bytes are dirty, or something
dirty is older than `max.compaction.lag.ms`; what is younger than `min.compaction.lag.ms` is not
looked at, nor what follows it. What differs from Kafka:

- the active segment is here what is not a data file yet, so minutes, not `segment.ms`;
- Kafka drops records without a key, and never the last record of a log; here the index remembers
  offsets, so no record has to stay for that;
- a stream that gets nothing new is passed once more when its last tombstones are due;
- the time of the first pass counts per pass, not per batch, and to a sixteenth of the retention,
  which is taken as it is now and not as it was then;
- `max.compaction.lag.ms` counts from the newest record of a file, Kafka's from the first of a
  segment;
- a file that cannot be read stops the range before it, and a segment, whose keys are unknown, lets
  no tombstone behind it go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lakelog.index.entries import Entry
from lakelog.index.ports import IndexedTopic, StreamView
from lakelog.pipeline.files.file_task import TablePiece, pack_offsets, unpack_offsets
from lakelog.pipeline.saga.task_record import INPUTS_MAX, Cleaned
from lakelog.pipeline.saga.values import StreamName
from lakelog.streams.objects import FileKind

STEPS_PER_RETENTION: Final = 16
"""Passes this close to each other, as parts of the retention of tombstones, count as one."""

PASSES_MAX: Final = 32
"""What a record remembers of passes."""


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """A topic's configuration, by the names that Kafka gives it."""

    dirty_ratio_min: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    delete_retention_ms: int = 86_400_000


def rules_of(topic: IndexedTopic) -> CleaningRules:
    """How the topic wants to be compacted."""
    return CleaningRules(
        dirty_ratio_min=topic.dirty_ratio_min,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        delete_retention_ms=topic.delete_retention_ms,
    )


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """A pass over the first entries of a stream."""

    name: StreamName
    entries: tuple[Entry, ...]
    """The data files and segments of the range, in order."""
    end: int
    """Rows below this offset are looked at."""
    tombstones_end: int
    """Tombstones below this offset go."""
    tombstones_gone: int
    """Below this offset an earlier pass has left none."""

    @property
    def files(self) -> tuple[Entry, ...]:
        """The data files of the range."""
        return tuple(entry for entry in self.entries if entry.kind is FileKind.PARQUET)

    @property
    def pieces(self) -> tuple[TablePiece, ...]:
        """The data files as a scan reads them; whether a table names each is not known here."""
        return tuple(
            TablePiece(entry.key, entry.byte_length, entry.start, entry.end, in_table=True)
            for entry in self.files
        )


@dataclass(frozen=True, slots=True)
class RetainedRows:
    """The rows of one file that stay."""

    key: str
    row_count: int
    """How many rows the file has."""
    kept_count: int
    kept_offsets: bytes
    """Their offsets (`lakelog.pipeline.files.file_task`)."""


@dataclass(frozen=True, slots=True)
class CleaningGroup:
    """Files next to each other that become one, with the rows of each that stay."""

    entries: tuple[Entry, ...]
    retained: tuple[RetainedRows, ...]

    @property
    def kept_offsets(self) -> bytes:
        """The offsets of all rows that stay, as `TableInputs` wants them."""
        return pack_offsets(
            np.concatenate([unpack_offsets(file.kept_offsets) for file in self.retained])
        )

    def is_in(self, view: StreamView) -> bool:
        """Whether the index still has exactly these files: otherwise a next scan looks again."""
        inside = view.overlapping(start=self.entries[0].start, end=self.entries[-1].end)
        return inside == self.entries


def plan_pass(
    name: StreamName,
    view: StreamView,
    cleaned: Cleaned,
    *,
    rules: CleaningRules,
    quarantine: Sequence[tuple[int, int]] = (),
    now_ms: int,
) -> CleaningPlan | None:
    """The pass that is due over a stream, of which the view shows everything; None when none is."""
    entries = _ready(view, cleaned, rules, quarantine, now_ms)
    files = [entry for entry in entries if entry.kind is FileKind.PARQUET]
    if not files or entries[-1].end < cleaned.end:
        return None  # nothing there, or something within the clean part cannot be read any more
    segments = [entry.start for entry in entries if entry.kind is FileKind.SEGMENT]
    due_end = tombstones_due(cleaned, rules=rules, now_ms=now_ms)
    # The keys of a segment are unknown: a tombstone behind one may be all that deletes its record.
    tombstones_end = max(cleaned.tombstones_end, min([due_end, *segments]))
    dirty = [entry for entry in files if entry.end > cleaned.end]
    if not _is_dirty(files, dirty, rules, now_ms):
        # A stream that gets nothing new is passed once more when its last tombstones are due.
        is_last = not dirty and due_end >= cleaned.end
        if not is_last or tombstones_end <= cleaned.tombstones_end:
            return None
    return CleaningPlan(name, entries, entries[-1].end, tombstones_end, cleaned.tombstones_end)


def tombstones_due(cleaned: Cleaned, *, rules: CleaningRules, now_ms: int) -> int:
    """Below which offset tombstones have been kept for long enough."""
    ends = [end for end, at_ms in cleaned.passes if at_ms + rules.delete_retention_ms <= now_ms]
    return max(ends, default=cleaned.tombstones_end)


def after_pass(
    cleaned: Cleaned, plan: CleaningPlan, *, rules: CleaningRules, now_ms: int
) -> Cleaned:
    """What is true once a scan of this plan was made and all its groups have been replaced."""
    waiting = [(end, at_ms) for end, at_ms in cleaned.passes if end > plan.tombstones_end]
    step_ms = max(1, rules.delete_retention_ms // STEPS_PER_RETENTION)
    if plan.end > cleaned.end:
        if waiting and waiting[-1][1] // step_ms == now_ms // step_ms:
            waiting.pop()  # of the same step, to which times count: this pass covers it
        waiting.append((plan.end, now_ms))
    return Cleaned(
        end=max(cleaned.end, plan.end),
        tombstones_end=max(cleaned.tombstones_end, min(plan.tombstones_end, plan.end)),
        passes=tuple(waiting[-PASSES_MAX:]),
    )


def groups_of(
    plan: CleaningPlan, retained: Mapping[str, RetainedRows], *, bytes_target: int
) -> tuple[CleaningGroup, ...]:
    """What has to be written: runs of files that lose rows, each about a target file afterwards.

    Files without rows go along where they are next to one. The pass is over when there is nothing.
    """
    groups: list[CleaningGroup] = []
    run: list[Entry] = []
    size_bytes = 0

    def close() -> None:
        nonlocal size_bytes
        kept = tuple(retained[entry.key] for entry in run)
        if any(file.kept_count < file.row_count for file in kept):
            groups.append(CleaningGroup(tuple(run), kept))
        run.clear()
        size_bytes = 0

    for entry in plan.entries:
        if entry.kind is not FileKind.PARQUET:
            close()
            continue
        file = retained[entry.key]
        stays = file.row_count > 0 and file.kept_count == file.row_count
        kept_bytes = entry.byte_length * file.kept_count // max(1, file.row_count)
        # A file that loses nothing stays as it is, and files become one only next to each other.
        if stays or len(run) == INPUTS_MAX or (run and size_bytes + kept_bytes > bytes_target):
            close()
        if not stays:
            run.append(entry)
            size_bytes += kept_bytes
    close()
    return tuple(groups)


def _ready(
    view: StreamView,
    cleaned: Cleaned,
    rules: CleaningRules,
    quarantine: Sequence[tuple[int, int]],
    now_ms: int,
) -> tuple[Entry, ...]:
    """The entries from the first one on that may be looked at."""
    youngest_ms = now_ms - rules.min_compaction_lag_ms
    ready = []
    for entry in view.entries:
        if entry.kind is FileKind.WAL:
            break  # as good as the active segment, which Kafka does not clean either
        is_young = rules.min_compaction_lag_ms > 0 and entry.max_timestamp_ms > youngest_ms
        if entry.end > cleaned.end and is_young:
            break  # `min.compaction.lag.ms`, which what is clean already has behind it
        if entry.kind is FileKind.PARQUET and _overlaps(entry, quarantine):
            break  # it cannot be read
        ready.append(entry)
    return tuple(ready)


def _overlaps(entry: Entry, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(entry.end > start and entry.start < end for start, end in ranges)


def _is_dirty(
    files: Sequence[Entry], dirty: Sequence[Entry], rules: CleaningRules, now_ms: int
) -> bool:
    if not dirty:
        return False
    dirty_bytes = sum(entry.byte_length for entry in dirty)
    total_bytes = sum(entry.byte_length for entry in files)
    if dirty_bytes > rules.dirty_ratio_min * total_bytes:
        return True
    stamps = [entry.max_timestamp_ms for entry in dirty if entry.max_timestamp_ms > 0]
    return min(stamps, default=now_ms) < now_ms - rules.max_compaction_lag_ms
