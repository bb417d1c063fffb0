"""What the pipeline needs of the rest: the log's index, an engine for its work, and its effects.

The pipeline is no broker and holds no state of a domain: `apply` runs in brokers alone, and a
broker answers for the index, proved current after the question came (rule 16).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from lakelog.compaction.plan import StreamColumns
from lakelog.compaction.tasks import Answer, Task
from lakelog.compaction.views import StreamView
from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.model.ids import TopicId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicView:
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

    async def topics(self) -> Sequence[TopicView]:
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


class Engine(Protocol):
    """Runs tasks, many at once, wherever it likes."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    async def run(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        """The answer to each task, in order; `Unavailable` when the engine itself failed."""


class Effects:
    """Every side effect of the saga goes through here by its name; a test makes it fail there."""

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        """Do it."""
        return await action()
