"""Which files of a table become one: a run of small ones, by size. Pure.

A run is the PARQUET entries of a stream that follow each other, up to a segment, a WAL entry, a
range that could not be read, or a file of half the target size and more. A window of a run is
merged when it is at most a target file and

- at least `GROWTH` times as large as the largest file in it, and
- of `files_min` files or more, or large enough for a file that is never merged again.

Where a run has more files than a partition may keep (`files_kept`), and these rules take none, the
smallest window is merged that makes them few enough.

By the first rule each byte moves into a file at least twice as large as the one that it was in, so
it is rewritten at most log2(target / smallest file) times in its life, whatever files come; where
they are of one size, windows are of `files_min` files and it is log8. What no rule takes is less
than `files_min` files a doubling of size between two files of half the target.

Planning has two parts, because names cost more than numbers: `plan_rewrite` reads the columns of
all entries, `replacement` the entries of one window and the files that the table has there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lakelog.catalog.port import DataFileView
from lakelog.index.entries import Entry, StreamColumns
from lakelog.pipeline.planning.wal_ranges import Problem
from lakelog.pipeline.saga.task_record import INPUTS_MAX
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget, Trigger
from lakelog.streams.objects import FileKind, FileName
from lakelog.streams.table import Int64s

GROWTH: Final = 2
"""A file is rewritten only into one so many times as large, at least."""

FILES_MIN: Final = 8
"""So many files of one size are merged."""

_TRIGGERS: Final = {TaskTarget.REWRITE: Trigger.SMALL_FILES, TaskTarget.CLEAN: Trigger.DIRTY}


@dataclass(frozen=True, slots=True)
class RewriteOptions:
    """How many files are too many, and how large one should be."""

    files_min: int = FILES_MIN
    bytes_target: int = 256 << 20
    files_max: int = INPUTS_MAX
    files_kept: int = 100
    """The most small files next to each other that are left alone."""

    def __post_init__(self) -> None:
        assert 2 <= self.files_min <= self.files_max <= INPUTS_MAX, self
        assert self.files_kept >= 2, self
        assert self.bytes_target > 1, self

    @property
    def bytes_settled(self) -> int:
        """A file of this size is not merged any more."""
        return self.bytes_target // GROWTH


@dataclass(frozen=True, slots=True)
class RewriteWindow:
    """Entries that become one: they cover the offsets [start, end)."""

    start: int
    end: int
    entry_count: int
    input_bytes: int


def plan_rewrite(
    columns: StreamColumns,
    *,
    quarantine: Sequence[tuple[int, int]] = (),
    options: RewriteOptions,
) -> RewriteWindow | None:
    """The first window of the stream's files that should be one file, None when all is well."""
    sizes = columns.byte_lengths
    for low, high in _runs(columns, quarantine, options):
        places = _search(sizes, low, high, options) or _cheapest(sizes, low, high, options)
        if places is not None:
            first, stop = places
            return RewriteWindow(
                start=int(columns.starts[first]),
                end=int(columns.ends[stop - 1]),
                entry_count=stop - first,
                input_bytes=int(columns.byte_lengths[first:stop].sum()),
            )
    return None


def replacement(
    name: StreamName,
    entries: Sequence[Entry],
    files: Sequence[DataFileView],
    *,
    target: TaskTarget,
    now_ms: int,
) -> PlannedTask | Problem:
    """The task that replaces these entries, which follow each other.

    `files` are those of the partition with a row below the entries' end, from the table as it was
    before the entries were read. A file that the table does not have has no rows; one may have rows
    before its entry, where trimming has been, and they stay in the table.
    """
    keys = [entry.name.key for entry in entries if isinstance(entry.name, FileName)]
    assert len(keys) == len(entries) > 0, entries
    start, end = entries[0].start, entries[-1].end
    known = {file.key: file for file in files}
    for file in files:
        if file.key not in keys and file.offset_end > start and file.offset_first < end:
            return Problem(f"{file.key} is in the table, and the index names others in its range")
    inputs = [known[key] for key in keys if key in known]
    return PlannedTask(
        stream=name.stream,
        topic_id=name.topic_id,
        topic=name.topic,
        partition=name.partition,
        target=target,
        start=min([start, *(file.offset_first for file in inputs)]),
        end=end,
        expected=None,
        input_bytes=sum(entry.byte_length for entry in entries),
        entry_count=len(entries),
        oldest_ms=now_ms,
        planned_ms=now_ms,
        trigger=_TRIGGERS[target],
        inputs=tuple(file.key for file in inputs),
    )


def _runs(
    columns: StreamColumns, quarantine: Sequence[tuple[int, int]], options: RewriteOptions
) -> Iterator[tuple[int, int]]:
    """The places [low, high) of entries that may be merged with each other."""
    movable = columns.kinds == FileKind.PARQUET
    movable &= columns.byte_lengths < options.bytes_settled
    for start, end in quarantine:
        movable &= (columns.ends <= start) | (columns.starts >= end)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], movable, [False])).astype(np.int8)))
    for low, high in edges.reshape(-1, 2).tolist():
        if high - low > 1:
            yield low, high


def _search(sizes: Int64s, low: int, high: int, options: RewriteOptions) -> tuple[int, int] | None:
    """The first window in the places [low, high) that is to be merged."""
    ends = np.cumsum(sizes[low:high])
    at = low
    while high - at > 1:
        before = int(ends[at - low]) - int(sizes[at])
        room = int(np.searchsorted(ends, before + options.bytes_target, side="right"))
        stop = min(low + room, at + options.files_max, high)
        largest = at + int(sizes[at:stop].argmax())
        total = int(ends[stop - 1 - low]) - before
        if total < GROWTH * int(sizes[largest]):
            # So is every window within this one that holds the largest: look before and behind it.
            window = _search(sizes, at, largest, options)
            if window is not None:
                return window
            at = largest + 1
        elif stop - at >= options.files_min or total >= options.bytes_settled:
            return at, stop
        else:
            at = stop
    return None


def _cheapest(
    sizes: Int64s, low: int, high: int, options: RewriteOptions
) -> tuple[int, int] | None:
    """The window that brings the files [low, high) down to those kept and costs the least."""
    count = min(high - low - options.files_kept + 1, options.files_max)
    ends = np.concatenate(([0], np.cumsum(sizes[low:high])))
    while count > 1:  # two fit always: each is less than half of the target
        totals = ends[count:] - ends[:-count]
        at = int(totals.argmin())
        if int(totals[at]) <= options.bytes_target:
            return low + at, low + at + count
        count -= 1
    return None
