"""Accepted batches as rows of numbers, beside the buffers they lie in. Pure.

A batch that was looked at is known by some numbers: where it lies, whose it is, what it holds. As
rows of one array a thousand batches are handed on, sorted, laid out and answered by a few calls,
where an object each would cost more than everything else. The kernels name the same columns
(native/rows.h).
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from lakelog.records.kernels import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lakelog.records.acceptance import AcceptedBatch

Buffer: TypeAlias = bytes | bytearray | memoryview


class BatchColumn(IntEnum):
    """What a row says of its batch."""

    BUFFER = 0
    """Which of the buffers it lies in, where, and how long it is."""
    START = 1
    LENGTH = 2
    STREAM = 3
    RECORDS = 4
    """How many; it takes as many offsets."""
    LEAST_MS = 5
    GREATEST_MS = 6
    PRODUCER = 7
    """-1 when the producer is not idempotent."""
    EPOCH = 8
    SEQUENCE = 9
    APPEND_MS = 10
    """The broker's time that every record is still to be given, or -1."""
    PARTITION = 11
    """As the client named it, and where its topic stands in the request: for the answer."""
    TOPIC_START = 12
    TOPIC_LENGTH = 13
    CODEC = 14
    """Not 0 for compressed records."""


COLUMNS = len(BatchColumn)


class BatchRows(Struct, frozen=True):
    """Batches in the order of their requests."""

    buffers: list[Buffer]
    rows: "NDArray[np.int64]"
    size_bytes: int

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, column: BatchColumn) -> "NDArray[np.int64]":
        """One number of every batch."""
        return self.rows[:, column]

    def slice(self, start: int, end: int) -> "BatchRows":
        """Some of them, in the same buffers."""
        rows = self.rows[start:end]
        return BatchRows(self.buffers, rows, int(rows[:, BatchColumn.LENGTH].sum()))


def rows_of(streams: Sequence[int], batches: Sequence["AcceptedBatch"]) -> BatchRows:
    """Batches that were accepted one by one, each in its own buffer and stamped already."""
    numbers = [
        (
            place,
            0,
            len(batch.data),
            stream,
            batch.record_count,
            batch.min_timestamp_ms,
            batch.max_timestamp_ms,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            NO_TIMESTAMP_MS,
            0,
            0,
            0,
            0,
        )
        for place, (stream, batch) in enumerate(zip(streams, batches, strict=True))
    ]
    rows = np.array(numbers, dtype=np.int64).reshape(-1, COLUMNS)
    size_bytes = int(rows[:, BatchColumn.LENGTH].sum())
    return BatchRows([batch.data for batch in batches], rows, size_bytes)


def joined(parts: Sequence[BatchRows]) -> BatchRows:
    """The batches of all parts, one part behind the other."""
    if len(parts) == 1:
        return parts[0]
    buffers: list[Buffer] = []
    rows = np.concatenate([part.rows for part in parts])
    start = 0
    for part in parts:
        end = start + len(part)
        rows[start:end, BatchColumn.BUFFER] += len(buffers)
        buffers += part.buffers
        start = end
    return BatchRows(buffers, rows, sum(part.size_bytes for part in parts))
