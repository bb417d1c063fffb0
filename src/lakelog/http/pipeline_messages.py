"""What a broker and the pipeline say to each other over HTTP: bodies in msgpack. Pure.

A question is a POST to a path below `PATH` with the token of `lakelog.topics.cluster`. An
answer to many streams or ranges may hold only the first of them, and says how many: the rest is
asked for again. Columns travel as they are, 8 bytes little-endian a number.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from lakelog.domain.events import Swap
from lakelog.index.ports import (
    IndexedTopic,
    StreamColumns,
    StreamEntry,
    StreamIndex,
    StreamRange,
    StreamView,
)
from lakelog.model.failures import (
    Conflict,
    Corrupt,
    Failure,
    NotFound,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from lakelog.model.ids import WalId
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName

PATH: Final = "/pipeline/v1/"
CONTENT_TYPE: Final = "application/msgpack"
QUESTION_BYTES_MAX: Final = 4 << 20
STREAMS_PER_QUESTION: Final = 10_000
RANGES_PER_QUESTION: Final = 1_000

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A stream, an offset or a size."""

_NUMBERS: Final = np.dtype("<i8")


class StreamsQuestion(Struct, frozen=True):
    """About which streams."""

    streams: Annotated[list[Natural], Meta(max_length=STREAMS_PER_QUESTION)]


class Columns(Struct, frozen=True, array_like=True):
    """A stream's entries."""

    log_start: int
    head: int
    starts: bytes
    ends: bytes
    kinds: bytes
    byte_lengths: bytes
    object_times_ms: bytes


class StreamsAnswer(Struct, frozen=True):
    """What was found of the first `asked` streams."""

    asked: int
    found: dict[int, Columns]


class RangesQuestion(Struct, frozen=True):
    """Stream, start and end of each range."""

    ranges: Annotated[list[tuple[Natural, Natural, Natural]], Meta(max_length=RANGES_PER_QUESTION)]


class Entry(Struct, frozen=True, array_like=True):
    """An index entry; a WAL object is named by id and zone, another file by its key."""

    start: int
    end: int
    kind: int
    name: bytes
    zone: str
    byte_start: int
    byte_length: int
    max_timestamp_ms: int


class View(Struct, frozen=True, array_like=True):
    """A stream and its entries in a range."""

    stream: int
    log_start: int
    first_start: int
    entries: list[Entry]


class ViewsAnswer(Struct, frozen=True):
    """The views of the first ranges, one at least; None for a stream that is gone."""

    views: list[View | None]


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


class TopicsAnswer(Struct, frozen=True):
    """Every topic there is."""

    topics: list[IndexedTopic]


class FilesAnswer(Struct, frozen=True):
    """The keys of files."""

    keys: list[str]


class ClusterAnswer(Struct, frozen=True):
    """Which cluster the broker is part of."""

    cluster_id: str


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


def columns_of(index: StreamIndex) -> Columns:
    """A stream's index as it travels."""
    found = index.columns
    return Columns(
        log_start=index.log_start,
        head=index.head,
        starts=_packed(found.starts),
        ends=_packed(found.ends),
        kinds=found.kinds.astype(np.uint8).tobytes(),
        byte_lengths=_packed(found.byte_lengths),
        object_times_ms=_packed(found.object_times_ms),
    )


def index_of(columns: Columns) -> StreamIndex:
    """The stream's index; ValueError when the columns do not fit together."""
    kinds = np.frombuffer(columns.kinds, dtype=np.uint8).astype(np.int64)
    packed = (columns.starts, columns.ends, columns.byte_lengths, columns.object_times_ms)
    starts, ends, byte_lengths, times_ms = (np.frombuffer(one, dtype=_NUMBERS) for one in packed)
    if any(len(one) != len(kinds) for one in (starts, ends, byte_lengths, times_ms)):
        raise ValueError("columns of several lengths")
    found = StreamColumns(starts, ends, kinds, byte_lengths, times_ms)
    return StreamIndex(columns.log_start, columns.head, found)


def entry_of(entry: StreamEntry) -> Entry:
    """An index entry as it travels."""
    named = entry.name
    return Entry(
        entry.start,
        entry.end,
        int(entry.kind),
        bytes(named.wal_id) if isinstance(named, WalName) else named.key.encode(),
        named.zone if isinstance(named, WalName) else "",
        entry.byte_start,
        entry.byte_length,
        entry.max_timestamp_ms,
    )


def view_in(view: View | None) -> StreamView | None:
    """The view of a range; ValueError when an entry names nothing."""
    if view is None:
        return None
    entries = tuple(
        StreamEntry(
            one.start,
            one.end,
            _name(one),
            one.byte_start,
            one.byte_length,
            one.max_timestamp_ms,
        )
        for one in view.entries
    )
    return StreamView(view.stream, view.log_start, view.first_start, entries)


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


def ranges_question(ranges: Sequence[StreamRange]) -> RangesQuestion:
    """Ranges as they travel."""
    return RangesQuestion([(one.stream, one.start, one.end) for one in ranges])


def _name(entry: Entry) -> ObjectName:
    kind = FileKind(entry.kind)
    if kind is not FileKind.WAL:
        return FileName(kind, entry.name.decode())
    if len(entry.name) != 16:
        raise ValueError("not the id of a WAL object")
    return WalName(WalId(entry.name), entry.zone)


def _packed(values: npt.NDArray[Any]) -> bytes:
    return values.astype(_NUMBERS, copy=False).tobytes()
