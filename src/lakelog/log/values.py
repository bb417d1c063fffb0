"""What goes into the log and what comes out of it: one of each a partition, so cheap to make."""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct, field

from lakelog.model.failures import Failure

Buffer: TypeAlias = bytes | bytearray | memoryview


class Appended(Struct, frozen=True, gc=False):
    """What became of the batches of one append, in their order.

    `verdicts` are `lakelog.domain.state.Verdict`; a duplicate carries the offset and the
    timestamp of the original, any other refusal -1. A request may be stored in several parts:
    `failures` says, by the number of a batch, why its part has no verdict (it then says VOID).
    """

    verdicts: list[int]
    offsets: list[int]
    timestamps: list[int]
    failures: dict[int, Failure] = field(default_factory=dict)


Settled: TypeAlias = "Appended | Failure"
"""How an append ends: `OutcomeUnknown` where it may have been written, `Unavailable` where not."""

Settle: TypeAlias = Callable[[Settled], None]
"""Who wants to hear it; called once, from the loop, and must not raise."""


class StreamRead(Struct, frozen=True, gc=False):
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


class Fetched(Struct, frozen=True, gc=False):
    """What was read of one stream: whole batches with their offsets in place, and the marks.

    Marks are -1 when the read failed. `parts` is empty when there is nothing at the offset yet.
    `is_cut` says that there was no room for the next batch.
    """

    status: ReadStatus
    parts: Sequence[Buffer]
    size_bytes: int
    log_start: int
    head: int
    is_cut: bool = False


class ProducerFacts(Struct, frozen=True, gc=False):
    """What is known of an idempotent producer on one stream."""

    producer: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
