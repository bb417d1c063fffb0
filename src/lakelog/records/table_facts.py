"""What is known of a data file without reading it again: for the index, a fetch and a catalog."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFileOrigin:
    """Where the rows of a file come from; its footer says the same."""

    stream: int
    topic_id: bytes
    partition: int
    task: str
    start: int
    end: int
    """The offsets [start, end) that the file stands for, whether or not a row holds them."""
    batch_bytes_max: int
    """The largest batch that a fetch makes of the rows: the topic's `max.message.bytes`."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """One row group: it answers for the offsets [start, end) and is the bytes [.., ..) of its file.

    The first group answers from the file's start on, each one up to the next one's first row.
    """

    start: int
    end: int
    byte_start: int
    byte_end: int
    row_count: int
    first_offset: int
    max_timestamp_us: int
    """As its column holds it, so clamped."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One leaf column of a file; counts and bounds are None where nothing was measured."""

    path: str
    field_id: int
    size_bytes: int
    value_count: int
    null_count: int | None
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class TableFileFacts:
    """A finished file. Timestamps are exact, in milliseconds; of an empty file they are -1."""

    origin: TableFileOrigin
    size_bytes: int
    row_count: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    row_groups: tuple[RowGroup, ...]
    columns: tuple[ColumnFacts, ...]
