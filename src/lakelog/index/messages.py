"""What brokers and those outside of them say to each other over HTTP: bodies in msgpack. Pure.

A question is a POST to a path below that of its kind. An answer about many streams or ranges may
hold only the first of them, and of a range only the first entries: the rest is asked for again.
Columns travel as they are in memory, little-endian (`lakelog.index.entries`). The pages of a
table's history travel as they are stored (`lakelog.catalog.snapshot_page`). A failure travels as
what it is: `Unavailable` promises that nothing was written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from lakelog.domain.events import Swap
from lakelog.index.entries import PackedColumns, PackedRange
from lakelog.index.ports import IndexedTopic, PinnedRange, StreamRange
from lakelog.model.failures import (
    Conflict,
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from lakelog.streams.objects import FileKind, FileName

CONTENT_TYPE: Final = "application/msgpack"


@dataclass(frozen=True, slots=True)
class QuestionPath:
    """Where the questions of one kind are asked, and how large they may be."""

    path: str
    question_bytes_max: int


PIPELINE: Final = QuestionPath("/pipeline/v1/", 4 << 20)
"""Asked with the token of `lakelog.topics.cluster`, since it can change the index."""

READ: Final = QuestionPath("/read/v1/", 2 << 20)
"""Nothing can be changed here, so no token is asked for."""

SNAPSHOTS: Final = QuestionPath("/read/v1/", 1 << 20)

WRITE: Final = QuestionPath("/write/v1/", 4 << 20)
"""A commit of some domains: what goes into one record of each has at most 1 MiB (rule 25)."""

STREAMS_PER_QUESTION: Final = 10_000
RANGES_PER_QUESTION: Final = 10_000
BOUNDS_PER_QUESTION: Final = 20_000
TIMES_PER_QUESTION: Final = 500
NAMES_PER_QUESTION: Final = 10_000
OBJECTS_PER_QUESTION: Final = 65_535
PAGES_PER_QUESTION: Final = 64

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A stream, a domain, an offset, a size or a version."""

Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name = Annotated[str, Meta(max_length=1 << 16)]
TopicIdBytes = Annotated[bytes, Meta(min_length=16, max_length=16)]


class FailureAnswer(Struct, frozen=True):
    """Why there is no other answer."""

    failure: str
    reason: str


FAILURES: Final[Mapping[str, tuple[type[Failure], int]]] = {
    "unavailable": (Unavailable, 503),
    "outcome_unknown": (OutcomeUnknown, 500),
    "refused": (Refused, 403),
    "not_found": (NotFound, 404),
    "conflict": (Conflict, 409),
    "corrupt": (Corrupt, 500),
}
"""The failures that travel, with their HTTP status."""


def told(failure: Failure) -> tuple[int, FailureAnswer]:
    """A failure as status and body; one that has no name here may have changed something."""
    for name, (kind, status) in FAILURES.items():
        if isinstance(failure, kind):
            return status, FailureAnswer(name, str(failure))
    return 500, FailureAnswer("outcome_unknown", repr(failure))


def failure_in(body: bytes) -> Failure | None:
    """The failure that a broker told, or None when this is not how it tells one."""
    try:
        said = msgspec.msgpack.decode(body, type=FailureAnswer)
    except msgspec.MsgspecError:
        return None
    found = FAILURES.get(said.failure)
    return None if found is None else found[0](said.reason)


# Ranges: for the pipeline and for readers.


class RangesQuestion(Struct, frozen=True):
    """Stream, start and end of each range."""

    ranges: Annotated[list[tuple[Natural, Natural, Natural]], Meta(max_length=RANGES_PER_QUESTION)]


class RangesAnswer(Struct, frozen=True):
    """Where the first ranges lie, one at least; None for a stream that is gone."""

    ranges: list[PackedRange | None]


def ranges_question(ranges: Sequence[StreamRange] | Sequence[PinnedRange]) -> RangesQuestion:
    """Ranges as they travel."""
    return RangesQuestion([(wanted.stream, wanted.start, wanted.end) for wanted in ranges])


# The pipeline: topics, columns to plan with, and swaps.


class ClusterAnswer(Struct, frozen=True):
    """Which cluster the broker is part of."""

    cluster_id: str


class IndexedTopicsAnswer(Struct, frozen=True):
    """Every topic there is, as the pipeline sees it."""

    topics: list[IndexedTopic]


class StreamsQuestion(Struct, frozen=True):
    """About which streams."""

    streams: Annotated[list[Natural], Meta(max_length=STREAMS_PER_QUESTION)]


class StreamsAnswer(Struct, frozen=True):
    """What was found of the first `asked` streams."""

    asked: int
    found: dict[int, PackedColumns]


class SwapQuestion(Struct, frozen=True):
    """An event for the log."""

    stream: Natural
    start: Natural
    end: Natural
    kind: int
    key: str
    size_bytes: Natural
    max_timestamp_ms: int
    replaces: list[bytes]

    def swap(self) -> Swap:
        """The event; ValueError for a kind that is none."""
        file = FileName(FileKind(self.kind), self.key)
        rest = (self.size_bytes, self.max_timestamp_ms, tuple(self.replaces))
        return Swap(self.stream, self.start, self.end, file, *rest)


class SwapAnswer(Struct, frozen=True):
    """What `apply` made of the event."""

    accepted: bool
    reason: str


class FilesAnswer(Struct, frozen=True):
    """The keys of files."""

    keys: list[str]


def swap_question(swap: Swap) -> SwapQuestion:
    """An event as it travels."""
    return SwapQuestion(
        stream=swap.stream,
        start=swap.start,
        end=swap.end,
        kind=int(swap.file.kind),
        key=swap.file.key,
        size_bytes=swap.size_bytes,
        max_timestamp_ms=swap.max_timestamp_ms,
        replaces=list(swap.replaces),
    )


# Readers: where the objects are, topics, bounds and times.


class StoreAnswer(Struct, frozen=True):
    """Where the objects of this cluster are; holds no secret."""

    cluster_id: str
    url: str
    options: dict[str, str]


class TopicsQuestion(Struct, frozen=True):
    """About which topics; None: all of them."""

    names: Annotated[list[str], Meta(max_length=NAMES_PER_QUESTION)] | None = None


class TopicsAnswer(Struct, frozen=True):
    """Name, id and the streams of all partitions of each topic that exists."""

    topics: list[tuple[str, bytes, tuple[int, ...]]]


class BoundsQuestion(Struct, frozen=True):
    """About which streams."""

    streams: Annotated[list[Natural], Meta(max_length=BOUNDS_PER_QUESTION)]


class BoundsAnswer(Struct, frozen=True):
    """Log start and head of each stream, in the order asked for; None for one that is gone."""

    bounds: list[tuple[int, int] | None]


class TimesQuestion(Struct, frozen=True):
    """Streams, and the time in milliseconds at or after which a record is looked for."""

    times_ms: Annotated[dict[Natural, Long], Meta(max_length=TIMES_PER_QUESTION)]


class TimesAnswer(Struct, frozen=True):
    """The first such offset of each stream that has one."""

    offsets: dict[int, int]


# Readers of tables: snapshots, and the offsets of groups.


class Missing(StrEnum):
    """What there is not, of that which was asked about."""

    NOTHING = ""
    TOPIC = "topic"
    TABLE = "table"
    GROUP = "group"
    OFFSETS = "offsets"


class SnapshotsQuestion(Struct, frozen=True):
    """About which topic's table."""

    topic: Name


class SnapshotsAnswer(Struct, frozen=True):
    """The newest snapshots as two pages, and the numbers [first, end) of the pages with the rest.

    When something is missing, the topic or its table, the rest says nothing.
    """

    missing: str = Missing.NOTHING
    topic_id: bytes = b""
    partition_count: int = 0
    kept_from_ms: int = 0
    """What expired before is not told, though it may still be written down."""
    live: bytes = b""
    """A page of those that the table has."""
    recent: bytes = b""
    """A page of those that it let go of last."""
    first: int = 0
    end: int = 0


class PagesQuestion(Struct, frozen=True):
    """About which pages of which topic's history."""

    topic_id: TopicIdBytes
    numbers: Annotated[list[Natural], Meta(max_length=PAGES_PER_QUESTION)]


class PagesAnswer(Struct, frozen=True):
    """The first of the pages asked for, one at least; None for one that was deleted."""

    pages: list[bytes | None]


class GroupQuestion(Struct, frozen=True):
    """What a group has committed in a topic."""

    group: Name
    topic: Name


class GroupAnswer(Struct, frozen=True):
    """Committed offsets by partition, unless the topic, the group or its offsets are missing."""

    missing: str = Missing.NOTHING
    topic_id: bytes = b""
    partition_count: int = 0
    offsets: dict[int, int] = {}


# Writers of WAL objects. A commit may be asked again: the application and the version in it make a
# repeat harmless (X1).


class TargetsQuestion(Struct, frozen=True):
    """About which topics."""

    names: Annotated[list[str], Meta(max_length=NAMES_PER_QUESTION)]


class WriteTarget(Struct, frozen=True, array_like=True):
    """A topic that records can be written to: its streams by partition, and what batches must be.

    `compression` is a codec's name, or "producer" for whichever the writer likes. On a topic with
    `log_append_time` the batch says so in its attributes, and its greatest timestamp is the time of
    writing. A compacted topic takes no record without a key.
    """

    topic: str
    topic_id: bytes
    streams: tuple[int, ...]
    domains: tuple[int, ...]
    max_message_bytes: int
    compression: str
    log_append_time: bool
    is_compacted: bool


class TargetsAnswer(Struct, frozen=True):
    """Those of the topics that exist."""

    targets: list[WriteTarget]


class WriteStore(Struct, frozen=True):
    """Where WAL objects are put and what their ids must be; pickles, and holds no secret.

    The time in a WAL id is the writer's clock, and never less than `id_time_ms_min`, whatever that
    clock says (rule 18). An object that is not committed `object_ttl_ms` after the time in its id
    never will be.
    """

    cluster_id: str
    url: str
    options: dict[str, str]
    zone: str
    id_time_ms_min: int
    object_ttl_ms: int


class CommitQuestion(Struct, frozen=True):
    """A domain and the bytes of a Commit for each object, in the order they are to stand."""

    application: Annotated[str, Meta(min_length=1, max_length=255)]
    version: Natural
    placed: Annotated[
        list[tuple[Natural, bytes]], Meta(min_length=1, max_length=OBJECTS_PER_QUESTION)
    ]


class DomainResult(Struct, frozen=True, array_like=True):
    """One domain's part of a commit: taken in now, or there before.

    `offsets` are (stream, start, end) of what is new; the same stream may be there several times.
    """

    domain: int
    is_new: bool
    offsets: tuple[tuple[int, int, int], ...] = ()


class CommitAnswer(Struct, frozen=True):
    """What became of each domain's part, by domain."""

    domains: list[DomainResult]
