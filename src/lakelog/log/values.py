"""What goes into the log and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of the batches of one append, in their order.

    `verdicts` are `lakelog.domain.outcomes.Verdict`; a duplicate carries the offset and the
    timestamp of the original, any other refusal -1.
    """

    verdicts: Sequence[int]
    offsets: Sequence[int]
    timestamps: Sequence[int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants of one stream: from an offset on, about this many bytes."""

    stream: int
    offset: int
    bytes_max: int


class ReadStatus(IntEnum):
    """How a read of one stream went."""

    OK = 0
    OUT_OF_RANGE = 1
    UNKNOWN_STREAM = 2
    DAMAGED = 3


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was read of one stream: whole batches with their offsets in place, and the marks.

    Marks are -1 when the read failed. `parts` is empty when there is nothing at the offset yet.
    """

    status: ReadStatus
    parts: Sequence[Buffer]
    size_bytes: int
    log_start: int
    head: int


@dataclass(frozen=True, slots=True)
class Found:
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """What is known of an idempotent producer on one stream."""

    producer: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
