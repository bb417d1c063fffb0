"""The values that tasks are made of: what is planned, the file made, what a reply told. Pure.

A `PlannedTask` describes a range of a stream and what becomes of it; a `DataFile` is the file that
a task makes. A `Fact` is what a reply told a holder for certain.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from msgspec import Struct

from lakelog.model.ids import TopicId
from lakelog.records.table_schema import TableFileFacts
from lakelog.streams.objects import FileKind, FileName


class DataFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that holds the offsets [start, end) of a stream, as a Swap or a table names it.

    `facts` is what a table commit says of the file, so that a successor commits it without
    reading it; it is dropped once the table has the file.
    """

    key: str
    kind: FileKind
    start: int
    end: int
    row_count: int
    size_bytes: int
    max_timestamp_ms: int
    facts: TableFileFacts | None = None

    @property
    def name(self) -> FileName:
        """The file, as the index names it."""
        return FileName(self.kind, self.key)


@dataclass(frozen=True, slots=True)
class FileWritten:
    """The worker put this file under the present lease, and the store said so."""

    file: DataFile


@dataclass(frozen=True, slots=True)
class InputNotFound:
    """An input object is no longer there: its entry was trimmed, or it is lost."""

    problem: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The inputs cannot be made rows; `quarantine` is what can only be kept as it is, if known."""

    problem: str
    quarantine: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TableMoved:
    """The table was moved by this holder after it had read the record as ABORTED."""


Fact: TypeAlias = FileWritten | InputNotFound | Unreadable | TableMoved


class TaskTarget(Enum):
    """What becomes of a range."""

    TABLE = "table"
    """WAL entries become a file of the table and the log, or segments one of the table alone."""
    LOG = "log"
    """WAL entries become a segment, as they are; what of it can be rows, the table gets later."""
    REWRITE = "rewrite"
    """Files of the table become one with the same rows."""
    CLEAN = "clean"
    """Files of the table become one that holds the rows which log compaction keeps."""


REPLACING: Final = frozenset({TaskTarget.REWRITE, TaskTarget.CLEAN})
"""The targets whose inputs are files that the table has already."""


class Trigger(Enum):
    """Why a backlog is due."""

    AGE = "age"
    OBJECT_AGE = "object_age"
    SIZE = "size"
    COUNT = "count"
    PRESENT = "present"
    SMALL_FILES = "small_files"
    DIRTY = "dirty"


@dataclass(frozen=True, slots=True)
class StreamName:
    """A stream and the partition that it is."""

    stream: int
    topic_id: TopicId
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A range to compact; `present` is its file when the table has it already.

    `inputs` are the keys of the files that a replacing task takes out of the table.
    """

    stream: int
    topic_id: TopicId
    topic: str
    partition: int
    target: TaskTarget
    start: int
    end: int
    expected: int | None
    input_bytes: int
    entry_count: int
    oldest_ms: int
    planned_ms: int
    trigger: Trigger
    present: DataFile | None = None
    inputs: tuple[str, ...] = ()
