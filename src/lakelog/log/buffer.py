"""Which batches share the next WAL object, and its layout. Pure.

Batches keep the order in which their requests were accepted; in the object they stand by stream,
and within a stream in that order (B2). An object is due when it is full, or when its first batch
has waited long enough. It is laid out by one copy of all batches into one buffer, which is what is
written and what consumers at the end of the log are served from; what was received is free then.

Clients have a limited number of requests under way (Kafka's `max.in.flight.requests`). When as many
as there were lately are in the open object, nobody can send more before it is answered, and it is
written at once: `InFlightRequests` counts them. So a client that is alone never waits for company,
and five requests that a client sends one after another share an object.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lakelog.domain.commit_event import Commit
from lakelog.domain.state import Verdict
from lakelog.log.options import LogOptions
from lakelog.log.values import Appended, Settle, Settled
from lakelog.model.failures import Failure, OutcomeUnknown
from lakelog.model.ids import DomainId, WalId
from lakelog.records import kernels
from lakelog.records.batch_rows import BatchColumn, BatchRows, Buffer, joined
from lakelog.records.header import LOG_APPEND_TIME_BIT, parse_header, restamp
from lakelog.records.kernels import crc32c
from lakelog.wal.layout import (
    FOOTER,
    HEADER,
    INDEX_ENTRY,
    MAGIC,
    PREFIX,
    VERSION,
)

Int64s: TypeAlias = npt.NDArray[np.int64]

# Members of an enum are looked up by name at every use, which takes longer than a number.
_BUFFER: Final = int(BatchColumn.BUFFER)
_START: Final = int(BatchColumn.START)
_LENGTH: Final = int(BatchColumn.LENGTH)
_STREAM: Final = int(BatchColumn.STREAM)
_RECORDS: Final = int(BatchColumn.RECORDS)
_LEAST_MS: Final = int(BatchColumn.LEAST_MS)
_GREATEST_MS: Final = int(BatchColumn.GREATEST_MS)
_APPEND_MS: Final = int(BatchColumn.APPEND_MS)


class Waiter:
    """Who waits for the batches [start, end) of an object, and until when; told exactly once."""

    __slots__ = ("_settle", "deadline_s", "end", "start")

    def __init__(self, start: int, end: int, deadline_s: float, settle: Settle) -> None:
        self.start = start
        self.end = end
        self.deadline_s = deadline_s
        self._settle: Settle | None = settle

    @property
    def waits(self) -> bool:
        """Whether nobody has told it yet."""
        return self._settle is not None

    def tell(self, outcome: Settled) -> None:
        """Say how it ended; whatever comes later is no news."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(outcome)


class SplitRequestOutcome:
    """The outcomes of the parts of one request, told as one when all of them are there.

    Parts are objects, or domains. One that failed says nothing of the others (L2): its batches
    carry its failure, which is definite only where certainly nothing of that part was written.
    """

    __slots__ = ("_appended", "_missing", "_settle")

    def __init__(self, batches: int, parts: int, settle: Settle) -> None:
        nothing = [-1] * batches
        self._appended = Appended([int(Verdict.VOID)] * batches, nothing, list(nothing))
        self._missing = parts
        self._settle = settle

    def add(self, places: Sequence[int], settled: Settled) -> None:
        """Take in the outcome of the batches in these places; the last part tells."""
        joined = self._appended
        if isinstance(settled, Failure):
            joined.failures.update(dict.fromkeys(places, settled))
        else:
            for number, place in enumerate(places):
                joined.verdicts[place] = settled.verdicts[number]
                joined.offsets[place] = settled.offsets[number]
                joined.timestamps[place] = settled.timestamps[number]
            for number, failure in settled.failures.items():
                joined.failures[places[number]] = failure
        self._missing -= 1
        if not self._missing:
            self._settle(_whole(joined))


def _whole(joined: Appended) -> Settled:
    """The one failure of all batches, if they failed alike; else what became of each."""
    failures = list(joined.failures.values())
    unknown = [failure for failure in failures if isinstance(failure, OutcomeUnknown)]
    alike = len(unknown) in (0, len(failures))
    return failures[0] if alike and len(failures) == len(joined.verdicts) else joined


OBJECTS_REMEMBERED: Final = 8
"""For so many objects, and up to twice as many, it is remembered how many requests there were."""


@dataclass(slots=True)
class InFlightRequests:
    """How many requests wait for their answer, and how many did lately at the most."""

    unanswered: int = 0
    _greatest: int = 0
    _greatest_before: int = 1
    _objects: int = 0

    def accept(self, count: int) -> None:
        """Count requests that were taken into an object."""
        self.unanswered += count
        self._greatest = max(self._greatest, self.unanswered)

    def answer(self, count: int) -> None:
        """Count requests of an object whose outcome is known."""
        self.unanswered -= count
        self._objects += 1
        if self._objects == OBJECTS_REMEMBERED:
            self._greatest_before, self._greatest = self._greatest, self.unanswered
            self._objects = 0

    def are_all_in(self, gathered: "ObjectBuffer") -> bool:
        """Whether nobody is likely to send more before this object is answered."""
        return gathered.requests >= max(self._greatest, self._greatest_before)


QUIET_MS: Final = 8
"""While an object is kept open because much comes, it is seen so often whether more came. With
4 ms librdkafka's 16 KiB batches cost a third more CPU, and franz-go was a quarter faster."""


@dataclass(slots=True)
class ObjectBuffer:
    """The batches of one object until it is laid out."""

    parts: list[BatchRows] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    requests: int = 0
    batch_count: int = 0
    size_bytes: int = 0
    seen_batches: int = 0
    """How many there were when somebody last asked whether more come."""
    extended_ms: int = 0
    """For how long it was kept open after its first linger."""

    def add(self, batches: BatchRows) -> None:
        """Take in these batches, in their order."""
        self.batch_count += len(batches)
        self.size_bytes += batches.size_bytes
        self.parts.append(batches)

    def add_awaited(
        self, batches: BatchRows, *, requests: int, deadline_s: float, settle: Settle
    ) -> None:
        """The same for a request, or several that are told together."""
        start = self.batch_count
        self.add(batches)
        self.requests += requests
        self.waiters.append(Waiter(start, self.batch_count, deadline_s, settle))

    def is_full(self, options: LogOptions) -> bool:
        """Whether the object is to be written without waiting for more."""
        return (
            self.size_bytes >= options.object_bytes_max
            or self.batch_count >= options.object_batches_max
        )

    def extend_linger_ms(self, options: LogOptions) -> int:
        """How much longer the object stays open now that a linger is over, 0 if it is closed.

        Clients that wait for their answers before they send more are not kept waiting: without a
        batch since the last time it is closed.
        """
        is_busy = self.size_bytes >= options.busy_bytes or self.batch_count >= options.busy_batches
        more_came = self.batch_count > self.seen_batches
        self.seen_batches = self.batch_count
        left_ms = options.linger_busy_ms - options.linger_ms - self.extended_ms
        more_ms = min(left_ms, QUIET_MS) if is_busy and more_came else 0
        self.extended_ms += max(0, more_ms)
        return max(0, more_ms)


@dataclass(frozen=True, slots=True)
class Sealed:
    """An object as it will be stored, its Commit, and how to find a batch of the request order.

    `order[i]` is the place in the request order of the i-th batch of the object.
    """

    data: memoryview
    commit: Commit
    order: npt.NDArray[np.intp]
    batch_bytes: int


def seal(
    gathered: ObjectBuffer, *, wal_id: WalId, domain: DomainId, zone: str, created_ms: int
) -> Sealed:
    """Lay out the object and say what it holds."""
    batches = joined(gathered.parts)
    order = np.argsort(batches.column(BatchColumn.STREAM), kind="stable")
    streams = batches.column(BatchColumn.STREAM)[order]
    chunks = 1 + int(np.count_nonzero(streams[1:] != streams[:-1]))
    header = HEADER.pack(MAGIC, VERSION, bytes(wal_id), domain, created_ms, chunks, HEADER.size)
    data, starts = _laid_out(header, batches, order, chunks)
    native = kernels.native
    if native is None:
        commit = commit_in_python(batches.rows[order], starts, wal_id, zone, len(data))
    else:
        packed = native.pack_commit(batches.rows, order, starts)
        commit = Commit.unpacked(wal_id, zone, len(data), len(batches), packed)
    return Sealed(data, commit, order, batches.size_bytes)


def commit_in_python(
    placed: Int64s, starts: Int64s, wal_id: WalId, zone: str, size_bytes: int
) -> Commit:
    """The Commit of these rows, which stand in the object's order: what the kernel packs."""
    return Commit(
        wal_id=wal_id,
        zone=zone,
        size_bytes=size_bytes,
        stream=placed[:, BatchColumn.STREAM].copy(),
        byte_start=starts.astype(np.uint32),
        byte_length=(placed[:, BatchColumn.LENGTH] + PREFIX.size).astype(np.uint32),
        offset_count=placed[:, BatchColumn.RECORDS].astype(np.uint32),
        max_timestamp=placed[:, BatchColumn.GREATEST_MS].copy(),
        producer=placed[:, BatchColumn.PRODUCER].copy(),
        epoch=placed[:, BatchColumn.EPOCH].astype(np.int16),
        sequence=placed[:, BatchColumn.SEQUENCE].astype(np.int32),
    )


def _laid_out(
    header: bytes, batches: BatchRows, order: npt.NDArray[np.intp], chunks: int
) -> tuple[memoryview, Int64s]:
    """The object, and where each batch begins with its length."""
    body_start = len(header) + INDEX_ENTRY.size * chunks
    body_bytes = batches.size_bytes + PREFIX.size * len(batches)
    data = np.empty(body_start + body_bytes + FOOTER.size, dtype=np.uint8)
    data.data[: len(header)] = header
    starts = np.empty(len(batches), dtype=np.int64)
    if kernels.native is None:
        end, crc = lay_out_in_python(batches, order, data.data, starts, body_start)
    else:
        end, crc = kernels.native.lay_out(
            batches.buffers, batches.rows, order, data, starts, len(header), body_start
        )
    FOOTER.pack_into(data.data, end, crc)
    return data.data, starts


def lay_out_in_python(
    batches: BatchRows,
    order: npt.NDArray[np.intp],
    data: memoryview,
    starts: Int64s,
    body_start: int,
) -> tuple[int, int]:
    """The kernel's twin: fill in index and batches; the end of the last one, and the checksum."""
    position, entry = body_start, HEADER.size - INDEX_ENTRY.size
    chunk: list[int] = []
    for number, row in enumerate(batches.rows[order].tolist()):
        stream, least_ms, greatest_ms = row[_STREAM], row[_LEAST_MS], row[_GREATEST_MS]
        if not chunk or stream != chunk[0]:
            entry += INDEX_ENTRY.size
            chunk = [stream, position, 0, 0, 0, least_ms, greatest_ms]
        batch = _stamped(batches.buffers[row[_BUFFER]], row)
        PREFIX.pack_into(data, position, len(batch))
        starts[number] = position
        position += PREFIX.size + len(batch)
        data[position - len(batch) : position] = batch
        chunk[2] = position - chunk[1]
        chunk[3] += row[_RECORDS]
        chunk[4] += 1
        chunk[5:] = min(chunk[5], least_ms), max(chunk[6], greatest_ms)
        INDEX_ENTRY.pack_into(data, entry, *chunk)
    return position, crc32c(data[:position])


def _stamped(buffer: Buffer, row: list[int]) -> memoryview:
    """The batch of a row, with the broker's time if its records are to have it."""
    batch = memoryview(buffer)[row[_START] : row[_START] + row[_LENGTH]]
    if row[_APPEND_MS] < 0:
        return batch
    attributes = parse_header(batch).attributes | LOG_APPEND_TIME_BIT
    return restamp(batch, attributes=attributes, max_timestamp_ms=row[_APPEND_MS])
