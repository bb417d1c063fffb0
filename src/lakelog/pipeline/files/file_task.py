"""What a worker is asked to do and what it answers: values that travel to other processes. Pure.

A task names everything that its worker needs, so a worker asks nobody and decides nothing. There is
one `FileTask`, whatever it reads and makes: its `inputs` are WAL objects, segments or files of the
table, its `output` is a data file (PARQUET) or a segment, and only WAL objects become segments.
Answers are values too, also the bad ones: whoever runs a bin of tasks must hear of each by itself.

Bins say which tasks one task of the engine runs, one after another (`pack`). A task of the engine
costs 25 to 30 ms however little it does, so a thousand small compaction tasks share a few: a bin
holds about a target file's bytes, or a second of work, and there are at most a few bins a slot;
work that is worth it is spread over all slots. Large tasks are placed first, each into the lightest
bin, so that no slot waits long for the last one.

Sets of offsets, the rows that log compaction keeps, travel packed (`pack_offsets`): a set of rising
offsets is its differences, byte by byte of all of them, compressed. A dense run costs next to
nothing, a thin one about two bytes a row.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heapreplace
from typing import Final, TypeAlias, assert_never

import numpy as np

from lakelog.model.failures import Corrupt
from lakelog.records.segment_file import INDEX_INTERVAL_BYTES, SEGMENT_BYTES_MAX, SegmentFacts
from lakelog.records.table_file import ROW_GROUP_BYTES
from lakelog.records.table_schema import TableFileFacts
from lakelog.streams.objects import FileKind
from lakelog.streams.table import Int64s

MESSAGE_BYTES_MAX: Final = 1_048_588
"""Kafka's default of `max.message.bytes`."""


@dataclass(frozen=True, slots=True)
class WalPiece:
    """An index entry: the offsets [start, end) lie in these bytes of that WAL object."""

    zone: str
    wal_id: bytes
    byte_start: int
    byte_length: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """An index entry of a segment, which answers for the offsets [start, end)."""

    key: str
    size_bytes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TablePiece:
    """An index entry of a data file, which answers for the offsets [start, end)."""

    key: str
    size_bytes: int
    start: int
    end: int
    in_table: bool
    """Whether the table names the file; one that it does not name has no rows."""


@dataclass(frozen=True, slots=True)
class WalInputs:
    """Ranges of WAL objects: the first may begin before the task's range.

    For a data file the last may also end behind it. A segment keeps batches whole, also the one
    that the range begins in.
    """

    domain: int
    pieces: tuple[WalPiece, ...]


@dataclass(frozen=True, slots=True)
class SegmentInputs:
    """Segments, which are the task's range: their rows become a file of the table alone."""

    pieces: tuple[SegmentPiece, ...]


@dataclass(frozen=True, slots=True)
class TableInputs:
    """Data files that become one, with their rows or some of them.

    The first file may begin before its entry does: rows that trimming has passed stay in the
    table. The task's range holds all rows of all pieces.
    """

    pieces: tuple[TablePiece, ...]
    kept_offsets: bytes | None = None
    """The offsets of the rows that stay (`pack_offsets`); None: all of them."""


Inputs: TypeAlias = WalInputs | SegmentInputs | TableInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Make one file of the offsets [start, end) of a stream.

    The pieces of the inputs follow each other without gap. A data file stands for the whole range,
    so that its Swap covers the entries, and of WAL objects and segments it has no row below the log
    start: entries straddle it, because a batch is kept whole (T7), and rows need not.
    """

    task_id: str
    attempt: str
    """What makes this try's file another one than that of every other try."""
    stream: int
    topic_id: bytes
    topic: str
    partition: int
    start: int
    end: int
    inputs: Inputs
    output: FileKind
    key: str
    """Where the file goes; names task and attempt."""
    log_start: int = 0
    """Records below this offset were deleted, and become no rows."""
    field_ids: tuple[tuple[str, int], ...] = ()
    """The ids of the table's columns by path, where they are not those of a new table."""
    batch_bytes_max: int = MESSAGE_BYTES_MAX
    """The topic's `max.message.bytes`, which batches rebuilt from a data file keep to."""
    row_group_bytes: int = ROW_GROUP_BYTES
    created_ms: int = 0
    """When the task was made, which a segment's header says."""
    index_interval_bytes: int = INDEX_INTERVAL_BYTES

    def __post_init__(self) -> None:
        starts = [piece.start for piece in self.inputs.pieces]
        ends = [piece.end for piece in self.inputs.pieces]
        assert starts[1:] == ends[:-1], "the pieces do not follow each other"
        first, last = starts[0], ends[-1]
        match self.inputs:
            case WalInputs() if self.output is FileKind.SEGMENT:
                assert first <= self.start < self.end == last, (self.start, self.end)
                assert self.input_bytes <= SEGMENT_BYTES_MAX, self.task_id
                return
            case WalInputs():
                assert first <= self.start < self.end <= last, (self.start, self.end)
            case SegmentInputs():
                assert (first, last) == (self.start, self.end), (self.start, self.end)
            case TableInputs():
                assert self.start <= first < last == self.end, (self.start, self.end)
            case _:
                assert_never(self.inputs)
        assert self.output is FileKind.PARQUET, (self.task_id, self.output)

    @property
    def input_bytes(self) -> int:
        """What it reads, about."""
        match self.inputs:
            case WalInputs(pieces=pieces):
                return sum(piece.byte_length for piece in pieces)
            case SegmentInputs() | TableInputs():
                return sum(piece.size_bytes for piece in self.inputs.pieces)
            case _:
                assert_never(self.inputs)


@dataclass(frozen=True, slots=True)
class FileResult:
    """The file is in the store under the task's key; a data file perhaps without rows."""

    task_id: str
    attempt: str
    key: str
    facts: TableFileFacts | SegmentFacts
    read_bytes: int
    """What was read of the inputs."""
    left_out: tuple[tuple[int, int], ...] = ()
    """The offsets of batches whose records cannot be read: all that the table lacks of segments."""


class FailureKind(StrEnum):
    """Why there is no file, by what has to happen next."""

    MISSING = "missing"
    """An object that the task names is not there: the index moved on, or data is lost."""
    CORRUPT = "corrupt"
    """Stored bytes are not what was written: somebody has to look."""
    UNREADABLE = "unreadable"
    """A batch is intact but its records cannot be read; it must be left out of the table."""
    UNAVAILABLE = "unavailable"
    """The store or the disk failed: try again."""


@dataclass(frozen=True, slots=True)
class FileFailure:
    """There is no file, and nothing that the task named was changed."""

    task_id: str
    attempt: str
    trouble: FailureKind
    reason: str
    object_key: str
    """The object at fault, empty where there is none."""
    start: int
    end: int
    """The offsets that the trouble is about: of one piece, one batch, or the whole task."""


FileAnswer: TypeAlias = FileResult | FileFailure
"""What an engine answers to one task."""


@dataclass(frozen=True, slots=True)
class BinOptions:
    """What a task of the engine should hold, and what work is thought to cost."""

    bins_per_slot_max: int = 3
    work_ms_min: int = 1000
    spread_ms_min: int = 200
    """Less work than this is not worth a second task of the engine."""
    bytes_target: int = 256 << 20
    bytes_per_ms: int = 100_000
    """About what a core decodes and writes; only the proportion to `task_ms` matters."""
    task_ms: int = 8
    """What a compaction task costs however small it is: a few requests and a file."""

    def __post_init__(self) -> None:
        assert min(self.bins_per_slot_max, self.work_ms_min, self.bytes_target) > 0, self
        assert self.bytes_per_ms > 0, self
        assert self.task_ms > 0, self


def pack(
    input_bytes: Sequence[int], *, slots: int, options: BinOptions
) -> tuple[tuple[int, ...], ...]:
    """Bins of places in `input_bytes`, each in rising order; every place is in exactly one bin."""
    assert slots > 0, slots
    if not input_bytes:
        return ()
    costs_ms = [options.task_ms + size // options.bytes_per_ms for size in input_bytes]
    count = _bin_count(sum(input_bytes), sum(costs_ms), len(input_bytes), slots, options)
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    for place in sorted(range(len(costs_ms)), key=lambda place: (-costs_ms[place], place)):
        load, number = loads[0]
        bins[number].append(place)
        heapreplace(loads, (load + costs_ms[place], number))
    return tuple(tuple(sorted(places)) for places in bins)


def _bin_count(total_bytes: int, total_ms: int, tasks: int, slots: int, options: BinOptions) -> int:
    """Enough bins that each has its share of work, not more than slots can use, none empty."""
    by_work = total_ms // options.work_ms_min
    by_bytes = total_bytes // options.bytes_target
    by_slots = min(slots, total_ms // options.spread_ms_min)
    wanted = max(1, by_work, by_bytes, by_slots)
    return min(wanted, slots * options.bins_per_slot_max, tasks)


def pack_offsets(offsets: Int64s) -> bytes:
    """Rising offsets as bytes."""
    steps = np.diff(offsets, prepend=np.int64(0)).astype("<i8")
    assert not len(steps) or (steps[0] >= 0 and bool((steps[1:] > 0).all())), "offsets must rise"
    planes = np.ascontiguousarray(steps.view(np.uint8).reshape(-1, 8).T)
    return zlib.compress(planes.tobytes(), 1)


def unpack_offsets(data: bytes) -> Int64s:
    """The offsets of these bytes."""
    try:
        content = np.frombuffer(zlib.decompress(data), np.uint8)
        steps = np.ascontiguousarray(content.reshape(8, -1).T).view("<i8").reshape(-1)
    except (zlib.error, ValueError) as error:
        raise Corrupt(f"these are no packed offsets: {error}") from error
    offsets: Int64s = np.cumsum(steps, dtype=np.int64)
    return offsets


def are_kept(offsets: Int64s, kept_offsets: Int64s) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which of these rising offsets are among those kept, which rise too."""
    if not len(kept_offsets):
        return np.zeros(len(offsets), np.bool_)
    places = np.minimum(np.searchsorted(kept_offsets, offsets), len(kept_offsets) - 1)
    return np.asarray(kept_offsets[places] == offsets, np.bool_)
