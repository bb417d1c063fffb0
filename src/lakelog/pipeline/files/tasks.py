"""What a worker is asked to do and what it answers: values that travel to other processes.

A task names everything that its worker needs, so a worker asks nobody and decides nothing. Answers
are values too, also the bad ones: whoever runs a bin of tasks must hear of each by itself.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from lakelog.pipeline.files.segment_tasks import RowsResult, RowsTask, SegmentResult, SegmentTask
from lakelog.records.table_facts import TableFileFacts
from lakelog.records.table_file import ROW_GROUP_BYTES

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """Make one data file of the offsets [start, end) of a stream.

    The pieces follow each other without gap and cover the range; the first may begin before it.
    The file stands for the whole range, so that its Swap covers the entries, and has no row below
    the log start: entries straddle it, because a batch is kept whole (T7), and rows need not.
    """

    task_id: str
    attempt: str
    """What makes this try's file another one than that of every other try."""
    domain: int
    stream: int
    topic_id: bytes
    topic: str
    partition: int
    start: int
    end: int
    pieces: tuple[WalPiece, ...]
    key: str
    """Where the file goes; names task and attempt."""
    log_start: int = 0
    """Records below this offset were deleted, and become no rows."""
    field_ids: tuple[tuple[str, int], ...] = ()
    """The ids of the table's columns by path, where they are not those of a new table."""
    batch_bytes_max: int = MESSAGE_BYTES_MAX
    """The topic's `max.message.bytes`, which batches rebuilt from the file keep to."""
    row_group_bytes: int = ROW_GROUP_BYTES

    def __post_init__(self) -> None:
        edges = [piece.start for piece in self.pieces]
        ends = [piece.end for piece in self.pieces]
        assert edges[1:] == ends[:-1], "the pieces do not follow each other"
        assert edges[0] <= self.start < self.end <= ends[-1], (self.start, self.end)


@dataclass(frozen=True, slots=True)
class TablePiece:
    """An index entry of a data file, which answers for the offsets [start, end)."""

    key: str
    size_bytes: int
    start: int
    end: int
    in_table: bool
    """Whether the table names the file; one that it does not name has no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Make one data file of several that follow each other, with their rows or some of them.

    The first piece may begin before its entry does: rows that trimming has passed stay in the
    table. The offsets [start, end) hold all rows of all pieces.
    """

    task_id: str
    attempt: str
    domain: int
    stream: int
    topic_id: bytes
    topic: str
    partition: int
    start: int
    end: int
    pieces: tuple[TablePiece, ...]
    key: str
    """Where the file goes; names task and attempt."""
    kept: bytes | None = None
    """The offsets of the rows that stay (`lakelog.pipeline.files.kept`); None: all of them."""
    field_ids: tuple[tuple[str, int], ...] = ()
    batch_bytes_max: int = MESSAGE_BYTES_MAX
    row_group_bytes: int = ROW_GROUP_BYTES

    def __post_init__(self) -> None:
        edges = [piece.start for piece in self.pieces]
        ends = [piece.end for piece in self.pieces]
        assert edges[1:] == ends[:-1], "the pieces do not follow each other"
        assert self.start <= edges[0] < ends[-1] == self.end, (self.start, self.end)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The file is in the store under the task's key."""

    task_id: str
    attempt: str
    key: str
    facts: TableFileFacts
    read_bytes: int
    """What was read of the inputs."""


class Trouble(StrEnum):
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
class CompactionFailure:
    """There is no file, and nothing that the task named was changed."""

    task_id: str
    attempt: str
    trouble: Trouble
    reason: str
    object_key: str
    """The object at fault, empty where there is none."""
    start: int
    end: int
    """The offsets that the trouble is about: of one piece, one batch, or the whole task."""


CompactionAnswer: TypeAlias = CompactionResult | CompactionFailure

Task: TypeAlias = CompactionTask | RewriteTask | SegmentTask | RowsTask
"""What an engine is asked for."""

Answer: TypeAlias = CompactionAnswer | SegmentResult | RowsResult
"""What an engine answers to one task."""
