"""Which batches share the next WAL object. Pure.

Batches keep the order in which their requests were accepted; in the object they stand by stream,
and within a stream in that order (B2). An object is due when it is full, or when its first batch
has waited long enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lakelog.domain.events import Commit
from lakelog.domain.state import Verdict
from lakelog.log.options import LogOptions
from lakelog.log.values import Appended, Settle, Settled
from lakelog.model.failures import Failure, OutcomeUnknown
from lakelog.model.ids import DomainId, StreamId, WalId
from lakelog.records.acceptance import AcceptedBatch
from lakelog.wal.layout import PREFIX, Chunk, EncodedObject, encode

INT32 = np.int32


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


@dataclass(slots=True)
class ObjectBuffer:
    """The batches of one object until it is laid out."""

    streams: list[int] = field(default_factory=list)
    batches: list[AcceptedBatch] = field(default_factory=list)
    waiters: list[Waiter] = field(default_factory=list)
    size_bytes: int = 0
    opened_s: float = 0.0

    def add(
        self,
        streams: Sequence[int],
        batches: Sequence[AcceptedBatch],
        *,
        now_s: float,
        deadline_s: float,
        settle: Settle,
    ) -> None:
        """Take in the batches of one request, in their order."""
        if not self.batches:
            self.opened_s = now_s
        start = len(self.batches)
        self.streams += streams
        self.batches += batches
        self.waiters.append(Waiter(start, len(self.batches), deadline_s, settle))
        for batch in batches:
            self.size_bytes += len(batch.data)

    def is_full(self, options: LogOptions) -> bool:
        """Whether the object is to be written without waiting for more."""
        return (
            self.size_bytes >= options.object_bytes_max
            or len(self.batches) >= options.object_batches_max
        )

    def linger_left_ms(self, options: LogOptions) -> int:
        """How much longer the object stays open once its first linger is over."""
        busy = self.size_bytes >= options.busy_bytes or len(self.batches) >= options.busy_batches
        return max(0, options.linger_busy_ms - options.linger_ms) if busy else 0


@dataclass(frozen=True, slots=True)
class Sealed:
    """An object as it will be stored, its Commit, and how to find a batch of the request order.

    `order[i]` is the place in the request order of the i-th batch of the object.
    """

    encoded: EncodedObject
    commit: Commit
    order: npt.NDArray[np.intp]
    batches: tuple[AcceptedBatch, ...]


def seal(
    gathered: ObjectBuffer, *, wal_id: WalId, domain: DomainId, zone: str, created_ms: int
) -> Sealed:
    """Lay out the object and say what it holds."""
    streams = np.array(gathered.streams, dtype=np.int64)
    order = np.argsort(streams, kind="stable")
    batches = tuple(gathered.batches[at] for at in order.tolist())
    streams = streams[order]
    encoded = encode(wal_id, domain, created_ms, _chunks(streams, batches))
    starts = [start for place in encoded.places for start in place.batch_starts]
    lengths = np.array([len(batch.data) for batch in batches], dtype=np.uint32)
    commit = Commit(
        wal_id=wal_id,
        zone=zone,
        size_bytes=encoded.size_bytes,
        stream=streams,
        byte_start=np.array(starts, dtype=np.uint32),
        byte_length=lengths + np.uint32(PREFIX.size),
        offset_count=np.array([batch.offset_count for batch in batches], dtype=np.uint32),
        max_timestamp=np.array([batch.max_timestamp_ms for batch in batches], dtype=np.int64),
        producer=np.array([batch.producer_id for batch in batches], dtype=np.int64),
        epoch=np.array([batch.producer_epoch for batch in batches], dtype=np.int16),
        sequence=np.array([batch.base_sequence for batch in batches], dtype=INT32),
    )
    return Sealed(encoded, commit, order, batches)


def _chunks(streams: npt.NDArray[np.int64], batches: Sequence[AcceptedBatch]) -> list[Chunk]:
    bounds = np.flatnonzero(np.append(True, streams[1:] != streams[:-1])).tolist()
    chunks = []
    for start, end in zip(bounds, [*bounds[1:], len(batches)], strict=True):
        some = batches[start:end]
        chunks.append(
            Chunk(
                stream_id=StreamId(int(streams[start])),
                batches=[batch.data for batch in some],
                record_count=sum(batch.record_count for batch in some),
                min_timestamp_ms=min(batch.min_timestamp_ms for batch in some),
                max_timestamp_ms=max(batch.max_timestamp_ms for batch in some),
            )
        )
    return chunks
