"""What a broker and a reader say to each other over HTTP: bodies in msgpack. Pure.

A question is a POST to a path below `PATH`; nothing can be changed here, so no token is asked for.
An answer about many ranges may hold only the first of them, and of each only the first entries: the
rest is asked for again. Columns travel as they are, little-endian.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

PATH: Final = "/read/v1/"
QUESTION_BYTES_MAX: Final = 2 << 20
NAMES_PER_QUESTION: Final = 10_000
STREAMS_PER_QUESTION: Final = 20_000
RANGES_PER_QUESTION: Final = 10_000
TIMES_PER_QUESTION: Final = 500
ENTRIES_PER_ANSWER: Final = 200_000
"""An answer ends after so many entries: about 10 MB, made of a few arrays."""

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A stream or an offset."""

Long = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class TopicsQuestion(Struct, frozen=True):
    """About which topics; None: all of them."""

    names: Annotated[list[str], Meta(max_length=NAMES_PER_QUESTION)] | None = None


class TopicsAnswer(Struct, frozen=True):
    """Name, id and the streams of all partitions of each topic that exists."""

    topics: list[tuple[str, bytes, list[int]]]


class BoundsQuestion(Struct, frozen=True):
    """About which streams."""

    streams: Annotated[list[Natural], Meta(max_length=STREAMS_PER_QUESTION)]


class BoundsAnswer(Struct, frozen=True):
    """Log start and head of each stream, in the order asked for; None for one that is gone."""

    bounds: list[tuple[int, int] | None]


class TimesQuestion(Struct, frozen=True):
    """Streams, and the time in milliseconds at or after which a record is looked for."""

    times_ms: Annotated[dict[Natural, Long], Meta(max_length=TIMES_PER_QUESTION)]


class TimesAnswer(Struct, frozen=True):
    """The first such offset of each stream that has one."""

    offsets: dict[int, int]


class EntriesQuestion(Struct, frozen=True):
    """Stream, start and end of each range."""

    ranges: Annotated[list[tuple[Natural, Natural, Natural]], Meta(max_length=RANGES_PER_QUESTION)]


class Entries(Struct, frozen=True, array_like=True):
    """The first entries of a range; a label numbers one of the names: a zone or a key."""

    domain: int
    log_start: int
    head: int
    starts: bytes
    ends: bytes
    kinds: bytes
    byte_starts: bytes
    byte_lengths: bytes
    max_timestamps_ms: bytes
    wal_ids: bytes
    labels: bytes
    names: list[str]


class EntriesAnswer(Struct, frozen=True):
    """The entries of the first ranges, one at least; None for a stream that is gone."""

    ranges: list[Entries | None]


class StoreAnswer(Struct, frozen=True):
    """Where the objects of this cluster are; holds no secret."""

    cluster_id: str
    url: str
    options: dict[str, str]


class RangeColumns(Protocol):
    """What an index tells of a range."""

    @property
    def domain(self) -> int:
        """The domain of the stream."""

    @property
    def log_start(self) -> int:
        """Where the stream begins."""

    @property
    def head(self) -> int:
        """Where the stream ends."""

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first offset of each entry."""

    @property
    def ends(self) -> npt.NDArray[np.int64]:
        """The offset after each entry."""

    @property
    def kinds(self) -> npt.NDArray[np.int8]:
        """What each entry points into."""

    @property
    def byte_starts(self) -> npt.NDArray[np.int64]:
        """Where its bytes begin."""

    @property
    def byte_lengths(self) -> npt.NDArray[np.int64]:
        """How many they are."""

    @property
    def max_timestamps_ms(self) -> npt.NDArray[np.int64]:
        """The greatest timestamp of its records."""

    @property
    def wal_ids(self) -> bytes:
        """Sixteen bytes each."""

    @property
    def labels(self) -> npt.NDArray[np.int32]:
        """Which of the names it has."""

    @property
    def names(self) -> tuple[str, ...]:
        """Zones and keys."""


def entries_of(found: RangeColumns) -> Entries:
    """What is known of a range as it travels."""
    return Entries(
        domain=found.domain,
        log_start=found.log_start,
        head=found.head,
        starts=found.starts.astype("<i8", copy=False).tobytes(),
        ends=found.ends.astype("<i8", copy=False).tobytes(),
        kinds=found.kinds.astype(np.uint8).tobytes(),
        byte_starts=found.byte_starts.astype("<i8", copy=False).tobytes(),
        byte_lengths=found.byte_lengths.astype("<i8", copy=False).tobytes(),
        max_timestamps_ms=found.max_timestamps_ms.astype("<i8", copy=False).tobytes(),
        wal_ids=found.wal_ids,
        labels=found.labels.astype("<i4", copy=False).tobytes(),
        names=list(found.names),
    )


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
