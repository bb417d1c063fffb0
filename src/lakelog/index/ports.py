"""The index of the log as brokers serve it and others ask for it: its values, and the ports. Pure.

A view is a value taken at one moment. Which view is taken before which is part of the saga's
correctness, not of its speed: see `lakelog.pipeline.saga.steps`.

Whoever asks holds no state of a domain: `apply` runs in brokers alone, and a broker answers for the
index, proved current after the question came (rule 16).

A range [start, end) of a stream holds the same records for ever, whatever files they lie in. A
topic that was deleted and made again has other streams under its name, so a range never means
another topic than the one that it was planned for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import Entry, LocatedRange, StreamIndex
from lakelog.model.ids import TopicId

PIECES_MAX: Final = 1 << 16
"""The most entries in a range: a Swap names each object with 8 bytes and is below 1 MiB."""


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The offsets [start, end) of a stream."""

    stream: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream in the index: its log start and its entries, all of them or those of one range.

    `first_start` is where the first entry of the whole stream begins (the head when there is
    none), so that a view of a range can tell what trimming took from what a swap took.
    """

    stream: int
    log_start: int
    first_start: int
    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, stream: int, located: LocatedRange) -> "StreamView":
        """A range as the pipeline acts on it: entry by entry."""
        return cls(stream, located.log_start, located.first_start, tuple(located.entries))

    def overlapping(self, *, start: int, end: int) -> tuple[Entry, ...]:
        """The entries that hold an offset of [start, end)."""
        return tuple(entry for entry in self.entries if entry.end > start and entry.start < end)


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
class TopicStreams:
    """A topic as readers see it: its id, and the stream of each partition from partition 0 on."""

    name: str
    topic_id: bytes
    streams: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a stream has: the offsets [log_start, head)."""

    log_start: int
    head: int


@dataclass(frozen=True, slots=True)
class PinnedRange:
    """The offsets [start, end) of a partition; the same records whoever reads them and when."""

    topic: str
    topic_id: bytes
    partition: int
    stream: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class LogIndex(Protocol):
    """What the pipeline asks for and changes. Raises `Unavailable` and `OutcomeUnknown`."""

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


class ServedIndex(LogIndex, Protocol):
    """What a broker's HTTP port answers from, for the pipeline and for readers.

    Answers are proved current. Raises `Unavailable` and `OutcomeUnknown`.
    """

    async def located(
        self, ranges: Sequence[StreamRange], *, entries_max: int | None = None
    ) -> Sequence[LocatedRange | None]:
        """The entries of each range, the first so many of them; None for a stream that is gone."""

    async def topic_streams(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""

    async def bounds(self, streams: Sequence[int]) -> Sequence[Bounds | None]:
        """What each stream has, in the order asked for; None for one that is gone."""

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""


class ReadIndex(Protocol):
    """What a reader asks for before it goes to the object store. Raises `Unavailable`."""

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        """What the streams have; those that are gone are left out."""

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""

    async def located(self, ranges: Sequence[PinnedRange]) -> Sequence[LocatedRange | None]:
        """Where each range lies, as far as its stream has it; None for a stream that is gone."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the objects are, as a broker tells everybody: a URL, and settings without a secret."""

    url: str
    options: Mapping[str, str]


_PUBLIC: Final = frozenset(
    (
        "account_name",
        "allow_http",
        "bucket",
        "bucket_name",
        "container_name",
        "default_region",
        "endpoint",
        "endpoint_url",
        "region",
        "request_payer",
        "s3_express",
        "skip_signature",
        "unsigned_payload",
        "virtual_hosted_style_request",
    )
)
"""The settings of an object store that say where it is and how to speak to it, not who may."""

_PREFIXES: Final = ("aws_", "azure_storage_", "azure_", "google_")


def public_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of the settings that everybody may know: what is not known to be harmless stays."""
    return {name: text for name, text in options.items() if _bare(name) in _PUBLIC}


def _bare(name: str) -> str:
    bare = name.lower()
    for prefix in _PREFIXES:
        if bare.startswith(prefix):
            return bare.removeprefix(prefix)
    return bare
