"""What a worker of segments is asked to do and what it answers: values that travel.

They stand beside `lakelog.pipeline.files.tasks`, whose unions name them. A failure is the same
value as for every other task.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelog.records.segment_file import INDEX_INTERVAL_BYTES, SEGMENT_BYTES_MAX, SegmentFacts
from lakelog.records.table_facts import TableFileFacts
from lakelog.records.table_file import ROW_GROUP_BYTES

if TYPE_CHECKING:  # tasks names these classes, so it cannot be imported before them
    from lakelog.pipeline.files.tasks import WalPiece


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentTask:
    """Make one segment of the offsets [start, end) of a stream, batches as they are.

    The pieces follow each other without gap, begin at or before the range and end with it: a
    batch is kept whole, also the one that the range begins in.
    """

    task_id: str
    attempt: str
    """What makes this try's file another one than that of every other try."""
    domain: int
    stream: int
    start: int
    end: int
    pieces: "tuple[WalPiece, ...]"
    key: str
    """Where the file goes; names task and attempt."""
    created_ms: int
    """When the task was made, which the file's header says."""
    index_interval_bytes: int = INDEX_INTERVAL_BYTES

    def __post_init__(self) -> None:
        edges = [piece.start for piece in self.pieces]
        ends = [piece.end for piece in self.pieces]
        assert edges[1:] == ends[:-1], "the pieces do not follow each other"
        assert edges[0] <= self.start < self.end == ends[-1], (self.start, self.end)
        assert sum(piece.byte_length for piece in self.pieces) <= SEGMENT_BYTES_MAX, self.task_id


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """The segment is in the store under the task's key."""

    task_id: str
    attempt: str
    key: str
    facts: SegmentFacts
    read_bytes: int
    """What was read of WAL objects."""


@dataclass(frozen=True, slots=True)
class SegmentPiece:
    """An index entry of a segment, which answers for the offsets [start, end)."""

    key: str
    size_bytes: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsTask:
    """Make one data file of the rows that can be read of segments, for the table alone.

    The pieces follow each other without gap and are the range. The file stands for all of it and
    has no row below the log start, as with `lakelog.pipeline.files.tasks.CompactionTask`.
    """

    task_id: str
    attempt: str
    stream: int
    topic_id: bytes
    topic: str
    partition: int
    start: int
    end: int
    pieces: tuple[SegmentPiece, ...]
    key: str
    """Where the file goes; names task and attempt."""
    batch_bytes_max: int
    log_start: int = 0
    """Records below this offset were deleted, and become no rows."""
    field_ids: tuple[tuple[str, int], ...] = ()
    row_group_bytes: int = ROW_GROUP_BYTES

    def __post_init__(self) -> None:
        edges = [piece.start for piece in self.pieces]
        ends = [piece.end for piece in self.pieces]
        assert edges[1:] == ends[:-1], "the pieces do not follow each other"
        assert (edges[0], ends[-1]) == (self.start, self.end), (self.start, self.end)


@dataclass(frozen=True, slots=True)
class RowsResult:
    """The file is in the store under the task's key, perhaps without rows."""

    task_id: str
    attempt: str
    key: str
    facts: TableFileFacts
    read_bytes: int
    left_out: tuple[tuple[int, int], ...]
    """The offsets of the batches whose records cannot be read: all that the table lacks."""
