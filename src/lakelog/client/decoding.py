"""The thread that turns what brokers sent into sorted rows, in the order in which it came.

Rules:

- Answers are decoded first in, first out, by one thread: partitions never overtake themselves.
- A batch with a wrong checksum, or one that is no batch, is never given out. The rows before it
  are; of its partition nothing more until the loop has asked again, or has given up.
- A few rows are decoded without compiled kernels; the first real load brings them in.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final, TypeAlias

from lakelog.client import kernels
from lakelog.client.arrivals import Arrivals, Arrived, Event, Failed
from lakelog.client.flow import Hunger
from lakelog.client.partitions import Partition
from lakelog.client.runs import Run
from lakelog.client.transactions import Aborted, aborted_batches
from lakelog.kafka_client.failures import ClientFailure
from lakelog.records.codecs import OutputTooLargeError
from lakelog.records.fetched import DATA_BYTES_MAX, FetchedRows, decode_fetched
from lakelog.records.fetched_batches import FetchedBatches, check_crcs
from lakelog.records.header import BatchError

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one piece of rows: an answer that becomes more is taken in pieces."""

FEW_BYTES: Final = 256 * 1024
"""So much is decoded before it is worth to load the kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """The records of one partition in one answer; what it reads lies in [position, next_offset)."""

    partition: Partition
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


class Tally:
    """How much was decoded and given out; each number has one thread that writes it."""

    __slots__ = ("arrived_bytes", "arrived_rows", "freed_bytes", "freed_rows", "hunger")

    def __init__(self) -> None:
        self.arrived_bytes = 0
        self.arrived_rows = 0
        self.freed_bytes = 0
        self.freed_rows = 0
        self.hunger = Hunger.FED

    def held_bytes(self) -> int:
        """What was decoded and is not given out yet."""
        return self.arrived_bytes - self.freed_bytes

    def held_rows(self) -> int:
        """As `held_bytes`, in rows."""
        return self.arrived_rows - self.freed_rows


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
        arrivals: Arrivals,
        tally: Tally,
        report: Callable[[Decoded], None],
    ) -> None:
        self._options = options
        self._arrivals = arrivals
        self._tally = tally
        self._report = report
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._broken: dict[int, int] = {}
        self._small_bytes = 0
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
        for each in work:
            if not isinstance(each, Slice):
                events.append(each)
                continue
            wire_bytes += len(each.records)
            if self._broken.get(each.partition.index, -1) >= each.version:
                continue
            self._consider_loading(len(each.records))
            try:
                for arrived in self._decode(each, corrupt):
                    events.append(arrived)
                    memory_bytes += arrived.run.nbytes
                    rows += len(arrived.run)
            except Exception as bug:  # noqa: BLE001 - the reader hears of it instead of waiting on
                events.append(Failed(_unexpected(bug)))
        self._tally.arrived_bytes += memory_bytes
        self._tally.arrived_rows += rows
        self._arrivals.put(events)
        self._report(Decoded(wire_bytes, memory_bytes, rows, tuple(corrupt)))

    def _consider_loading(self, size: int) -> None:
        if self._small_bytes <= FEW_BYTES:
            self._small_bytes += size
            if self._small_bytes > FEW_BYTES:
                kernels.load_aside()

    def _decode(self, each: Slice, corrupt: list[tuple[Slice, int]]) -> Iterator[Arrived]:
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
                yield Arrived(each.partition.index, each.version, run, end)
        except BatchError:
            bad = 0
            next_offset = position
        if bad >= 0:
            self._broken[each.partition.index] = each.version
            corrupt.append((each, next_offset))

    def _run_of(self, each: Slice, rows: FetchedRows) -> Run:
        released = each.partition.released
        if released and each.position >= released[-1][1]:
            released = ()
        ordered = self._options.is_ordered
        return Run(each.partition.index, rows, ordered=ordered, released=released)


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
