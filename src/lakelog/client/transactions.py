"""Which batches of a Fetch answer are of aborted transactions: what read_committed leaves out.

A broker sends, beside the records, the aborted transactions that touch them: producer and first
offset. From that offset on, the producer's transactional batches are aborted, until its next abort
marker; the same producer may have several such transactions in one answer. It is the rule of
Kafka's own consumer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lakelog.records.fetched_batches import FetchedBatches
from lakelog.records.header import HEADER_BYTES, MalformedBatchError
from lakelog.records.varints import read_varint, read_varlong

if TYPE_CHECKING:
    from lakelog.records.fetched_batches import Flags

Aborted: TypeAlias = tuple[int, int]
"""A producer's id, and the first offset of a transaction that it aborted."""

_ABORT: Final = 0
_MARKER_KEY_BYTES: Final = 4
"""Version and type of a marker, two bytes each; later versions may append to them."""


def aborted_batches(
    batches: FetchedBatches, records: memoryview, aborted: Sequence[Aborted]
) -> "Flags | None":
    """True for each batch of an aborted transaction; None if there is none.

    The markers themselves are not marked: whoever decodes leaves every control batch out.
    """
    if not aborted or not len(batches):
        return None
    producers = np.array(sorted({producer for producer, _ in aborted}), np.int64)
    touched = batches.are_transactional | batches.are_control
    touched &= np.isin(batches.producer_ids, producers)
    numbers = np.flatnonzero(touched)
    if not len(numbers):
        return None
    skipped = np.zeros(len(batches), np.bool_)
    waiting = sorted(aborted, key=lambda one: one[1], reverse=True)
    open_producers: set[int] = set()
    are_control = batches.are_control
    for number in numbers.tolist():
        next_offset = int(batches.next_offsets[number])
        while waiting and waiting[-1][1] < next_offset:
            open_producers.add(waiting.pop()[0])
        producer = int(batches.producer_ids[number])
        if not are_control[number]:
            skipped[number] = producer in open_producers
        elif _is_abort(records, batches, number):
            open_producers.discard(producer)
    return skipped if skipped.any() else None


def _is_abort(records: memoryview, batches: FetchedBatches, number: int) -> bool:
    """Whether this control batch ends its transaction by an abort; a cleaned one ends nothing."""
    if not batches.record_counts[number]:
        return False
    position = int(batches.starts[number]) + HEADER_BYTES
    end = int(batches.ends[number])
    _, position = read_varint(records, position, end)
    _, position = read_varlong(records, position + 1, end)
    _, position = read_varint(records, position, end)
    key_bytes, position = read_varint(records, position, end)
    if not _MARKER_KEY_BYTES <= key_bytes <= end - position:
        raise MalformedBatchError("a marker without a type")
    return int.from_bytes(records[position + 2 : position + 4], "big", signed=True) == _ABORT
