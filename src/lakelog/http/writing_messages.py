"""What a broker and a writer of WAL objects say to each other over HTTP: bodies in msgpack. Pure.

A question is a POST to a path below `PATH`. A commit may be asked again: the application and the
version in it make a repeat harmless (X1).
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

PATH: Final = "/write/v1/"
QUESTION_BYTES_MAX: Final = 4 << 20
"""A commit of some domains: what goes into one record of each has at most 1 MiB (rule 25)."""

NAMES_PER_QUESTION: Final = 10_000
OBJECTS_PER_QUESTION: Final = 65_535

Natural = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A domain or a version."""


class TargetsQuestion(Struct, frozen=True):
    """About which topics."""

    names: Annotated[list[str], Meta(max_length=NAMES_PER_QUESTION)]


class Target(Struct, frozen=True, array_like=True):
    """What a writer must know of a topic: its streams by partition, and what a batch must be."""

    topic: str
    topic_id: bytes
    streams: list[int]
    domains: list[int]
    max_message_bytes: int
    compression: str
    log_append_time: bool
    is_compacted: bool


class TargetsAnswer(Struct, frozen=True):
    """Those of the topics that exist."""

    targets: list[Target]


class PlaceAnswer(Struct, frozen=True):
    """Where objects are put and what their ids must be; holds no secret."""

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


class Taken(Struct, frozen=True, array_like=True):
    """What became of one domain's part; offsets are (stream, start, end) of what is new."""

    domain: int
    is_new: bool
    offsets: list[tuple[int, int, int]]


class CommitAnswer(Struct, frozen=True):
    """What became of each domain's part, by domain."""

    domains: list[Taken]
