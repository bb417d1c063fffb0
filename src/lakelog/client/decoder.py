"""The thread that turns what brokers sent into sorted rows, in the order in which it came.

Rules:

- Answers are decoded first in, first out, by one thread: partitions never overtake themselves.
- A batch with a wrong checksum, or one that is no batch, is never given out. The rows before it
  are; of its partition nothing more until the loop has asked again, or has given up.
- With read_committed, batches of aborted transactions are left out. A broker sends, beside the
  records, the aborted transactions that touch them: producer and first offset. From that offset on,
  the producer's transactional batches are aborted, until its next abort marker; the same producer
  may have several such transactions in one answer. It is the rule of Kafka's own consumer.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from lakelog.client.events import ConsumerEvents, Event, ReadFailed, RowsArrived
from lakelog.client.fetch_scheduler import Demand
from lakelog.client.merge_buffer import SortedRun
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.failures import ClientFailure
from lakelog.records.codecs import OutputTooLargeError
from lakelog.records.fetched import DATA_BYTES_MAX, FetchedRows, decode_fetched
from lakelog.records.fetched_batches import FetchedBatches, check_crcs
from lakelog.records.header import (
    HEADER_BYTES,
    BatchError,
    MalformedBatchError,
    read_varint,
    read_varlong,
)

if TYPE_CHECKING:
    from lakelog.records.kernels import Flags

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


DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one piece of rows: an answer that becomes more is taken in pieces."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The records of one partition in one answer; what it reads lies in [position, next_offset)."""

    partition: PartitionState
    version: int
    position: int
    next_offset: int
    records: memoryview
    batches: FetchedBatches
    aborted: tuple[Aborted, ...]
    is_copied: bool
    """Whether its rows get memory of their own: they will be held for long, and the answer that
    they came in has rows of others too."""


Work: TypeAlias = list[Slice | Event]
"""Of one answer: slices to decode, and news that must not overtake them."""


class MemoryAccount:
    """How much was decoded and let go again, and what the reader needs.

    The decoder's thread alone writes `decoded_*`, the reader's alone `freed_*`. Both the reader and
    the loop write `demand`: the reader says what it needs, the loop takes it back with the fetch
    that it sends for it. A demand that so gets lost is made again by the reader's next step.
    """

    __slots__ = ("decoded_bytes", "decoded_rows", "demand", "freed_bytes", "freed_rows")

    def __init__(self) -> None:
        self.decoded_bytes = 0
        self.decoded_rows = 0
        self.freed_bytes = 0
        self.freed_rows = 0
        self.demand = Demand.NONE

    def held_bytes(self) -> int:
        """What was decoded and is not given out yet."""
        return self.decoded_bytes - self.freed_bytes

    def held_rows(self) -> int:
        """As `held_bytes`, in rows."""
        return self.decoded_rows - self.freed_rows


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How rows are made."""

    is_ordered: bool
    checks_crcs: bool


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of the work on one answer, for the loop."""

    wire_bytes: int
    memory_bytes: int
    rows: int
    corrupt: tuple[tuple[Slice, int], ...]
    """Slices with a batch that is none, and the offset to read again from."""


class Decoder:
    """The thread; made by whoever closes it."""

    def __init__(
        self,
        options: DecodeOptions,
        event_queue: ConsumerEvents,
        memory: MemoryAccount,
        report: Callable[[Decoded], None],
    ) -> None:
        self._options = options
        self._event_queue = event_queue
        self._memory = memory
        self._report = report
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._broken: dict[int, int] = {}
        self._is_closing = False
        # A daemon, so that an interpreter whose user forgot to close can exit.
        self._thread = threading.Thread(target=self._run, name="lakelog-decode", daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        """Decode this after all that was put before."""
        self._work.put(work)

    def close(self) -> None:
        """End the thread and wait for it; what was not decoded is dropped."""
        self._is_closing = True
        self._work.put(None)
        if threading.current_thread() is not self._thread:  # the collector runs on any thread
            self._thread.join()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            if work is None or self._is_closing:
                return
            self._do(work)
            del work  # its memory, while the next is awaited

    def _do(self, work: Work) -> None:
        events: list[Event] = []
        corrupt: list[tuple[Slice, int]] = []
        wire_bytes = memory_bytes = rows = 0
        for item in work:
            if not isinstance(item, Slice):
                events.append(item)
                continue
            wire_bytes += len(item.records)
            if self._broken.get(item.partition.index, -1) >= item.version:
                continue
            try:
                for arrived in self._decode(item, corrupt):
                    events.append(arrived)
                    memory_bytes += arrived.run.nbytes
                    rows += len(arrived.run)
            except Exception as bug:  # noqa: BLE001 - the reader hears of it instead of waiting on
                events.append(ReadFailed(_unexpected(bug)))
        self._memory.decoded_bytes += memory_bytes
        self._memory.decoded_rows += rows
        self._event_queue.put(events)
        self._report(Decoded(wire_bytes, memory_bytes, rows, tuple(corrupt)))

    def _decode(self, each: Slice, corrupt: list[tuple[Slice, int]]) -> Iterator[RowsArrived]:
        """The rows of a slice as runs, mostly one, up to the first batch that is none."""
        batches = each.batches
        bad = check_crcs(each.records, batches) if self._options.checks_crcs else -1
        next_offset = each.next_offset
        if bad >= 0:
            next_offset = max(each.position, int(batches.base_offsets[bad]))
            batches = batches.part(0, bad)
        position = each.position
        try:
            for rows, end in _pieces(each, batches, next_offset):
                run = self._run_of(each, rows)
                position = end
                yield RowsArrived(each.partition.index, each.version, run, end)
        except BatchError:
            bad = 0
            next_offset = position
        if bad >= 0:
            self._broken[each.partition.index] = each.version
            corrupt.append((each, next_offset))

    def _run_of(self, each: Slice, rows: FetchedRows) -> SortedRun:
        released = each.partition.released
        if released and each.position >= released[-1][1]:
            released = ()
        ordered = self._options.is_ordered
        return SortedRun(each.partition.index, rows, ordered=ordered, released=released)


def _pieces(
    each: Slice, batches: FetchedBatches, next_offset: int
) -> Iterator[tuple[FetchedRows, int]]:
    """The rows of batches and where they end; in several pieces if they become too many bytes."""
    aborted = aborted_batches(batches, each.records, each.aborted) if each.aborted else None
    waiting = [(0, len(batches))]
    while waiting:
        start, end = waiting.pop()
        try:
            rows = decode_fetched(
                each.records,
                batches.part(start, end),
                from_offset=each.position,
                skipped=None if aborted is None else aborted[start:end],
                decompressed_bytes_max=DECOMPRESSED_BYTES_MAX
                if end - start > 1
                else DATA_BYTES_MAX,
                own=not each.is_copied,
            )
        except OutputTooLargeError:
            if end - start <= 1:
                raise
            middle = (start + end) // 2
            waiting += ((middle, end), (start, middle))
        else:
            yield rows, next_offset if end == len(batches) else int(batches.next_offsets[end - 1])


def _unexpected(bug: Exception) -> ClientFailure:
    failure = ClientFailure(f"records could not be decoded: {bug!r}")
    failure.__cause__ = bug
    return failure
