"""The index of the log as brokers serve it and others read it: its values, and the port. Pure.

A view is a value taken at one moment. Which view is taken before which is part of the saga's
correctness, not of its speed: see `lakelog.pipeline.saga.steps`.

Whoever asks holds no state of a domain: `apply` runs in brokers alone, and a broker answers for the
index, proved current after the question came (rule 16).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.model.ids import TopicId
from lakelog.streams.objects import FileKind, ObjectName, WalName
from lakelog.streams.table import Int64s

PIECES_MAX: Final = 1 << 16
"""The most entries in a range: a Swap names each object with 8 bytes and is below 1 MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamColumns:
    """All entries of a stream in order, as columns: a plan reads millions of them."""

    starts: Int64s
    ends: Int64s
    kinds: Int64s
    byte_lengths: Int64s
    object_times_ms: Int64s
    """When each entry's WAL object was closed; of no meaning for other kinds."""


@dataclass(frozen=True, slots=True)
class StreamEntry:
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
    entries: tuple[StreamEntry, ...]

    def overlapping(self, *, start: int, end: int) -> tuple[StreamEntry, ...]:
        """The entries that hold an offset of [start, end)."""
        return tuple(one for one in self.entries if one.end > start and one.start < end)


@dataclass(frozen=True, slots=True)
class IndexedTopic:
    """A topic as the pipeline sees it."""

    name: str
    topic_id: TopicId
    streams: tuple[int, ...]
    """The stream of each partition, from partition 0 on."""
    has_table: bool
    """`lakelog.format` is parquet; otherwise compacted files are segments, and no table is kept."""
    freshness_ms: int
    message_bytes_max: int
    table_retention_ms: int
    """-1: for ever."""
    is_compacted: bool
    """`cleanup.policy` names compact: the latest record of each key is kept."""
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    dirty_ratio_min: float
    snapshots_history_ms: int = 30 * 24 * 3_600_000
    """How long snapshots are remembered that the table let go of; -1: for ever."""


@dataclass(frozen=True, slots=True)
class StreamIndex:
    """A stream's entries: all of them, or those from the last one before the first WAL entry on."""

    log_start: int
    head: int
    columns: StreamColumns


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The offsets [start, end) of a stream."""

    stream: int
    start: int
    end: int


class LogIndex(Protocol):
    """The topics of a cluster and its offset index. Raises `Unavailable` and `OutcomeUnknown`."""

    async def cluster_id(self) -> str:
        """The id of the cluster."""

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, by name."""

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that have WAL entries, without what is long compacted."""

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
