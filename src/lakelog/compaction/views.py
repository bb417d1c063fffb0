"""What a pipeline worker looks at: a stream of the index, a topic's table, a file of it. Pure.

A view is a value taken at one moment. Which view is taken before which is part of the saga's
correctness, not of its speed: see `lakelog.compaction.saga`.
"""

from dataclasses import dataclass

from lakelog.model.ids import TopicId
from lakelog.records.table_facts import TableFileFacts
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One run of bytes that holds the offsets [start, end) of a stream."""

    start: int
    end: int
    name: ObjectName
    byte_start: int
    byte_length: int
    max_timestamp_ms: int

    @property
    def kind(self) -> FileKind:
        """What the entry points into."""
        return FileKind.WAL if isinstance(self.name, WalName) else self.name.kind


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream in the index: its log start and its entries, all of them or those of one range.

    `first_start` is where the first entry of the whole stream begins (the head when there is
    none), so that a view of a range can tell what trimming took from what a swap took.
    """

    stream: int
    log_start: int
    first_start: int
    entries: tuple[IndexEntry, ...]

    def overlapping(self, *, start: int, end: int) -> tuple[IndexEntry, ...]:
        """The entries that hold an offset of [start, end)."""
        return tuple(one for one in self.entries if one.end > start and one.start < end)


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
