"""What a pipeline worker looks at beside the index: a topic's table, a file of it, a reply. Pure.

A view is a value taken at one moment. Which view is taken before which is part of the saga's
correctness, not of its speed: see `lakelog.pipeline.saga.steps`. A `Fact` is what a reply told a
holder for certain.
"""

from dataclasses import dataclass
from typing import TypeAlias

from lakelog.model.ids import TopicId
from lakelog.records.table_facts import TableFileFacts
from lakelog.streams.objects import FileName


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that holds the offsets [start, end) of a stream, as a Swap or a table names it.

    `facts` is what a table commit says of the file, so that a successor commits it without
    reading it; it is dropped once the table has the file.
    """

    name: FileName
    start: int
    end: int
    row_count: int
    size_bytes: int
    max_timestamp_ms: int
    facts: TableFileFacts | None = None


@dataclass(frozen=True, slots=True)
class TableView:
    """A topic's table at one snapshot, seen by one partition.

    `token` names the snapshot for the compare-and-swap of a commit: whatever changes the table
    changes it. `offset` is the partition's place in the offset vector, None before its first file.
    `topic_id` is the table's own property: a topic made again has another table under the name.
    `files` are the keys of the live files with rows in the range of a replacing task, in order of
    offsets, looked up after `token` was read; None where nobody asked.
    """

    topic_id: TopicId
    token: str
    offset: int | None
    files: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The worker put this file under the present lease, and the store said so."""

    file: DataFile


@dataclass(frozen=True, slots=True)
class InputsGone:
    """An input object is no longer there: its entry was trimmed, or it is lost."""

    problem: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The inputs cannot be made rows; `quarantine` is what can only be kept as it is, if known."""

    problem: str
    quarantine: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """The table was moved by this holder after it had read the record as ABORTED."""


Fact: TypeAlias = Written | InputsGone | Unreadable | Moved
