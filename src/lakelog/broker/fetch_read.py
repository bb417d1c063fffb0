"""The partitions of a fetch: what can be read now, and what has to be said of the rest.

`look` compares the marks of partitions with what is asked, which costs little; `read` reads where
there is something to read. Both may be repeated: `look` for the streams that changed, or whose
emptiness was proved meanwhile. `FetchRead` does not wait for data and proves nothing: it says which
partitions an answer would call empty, out of range or unknown without a proof (rule 16).

Aborted transactions are null for read_uncommitted and empty for read_committed (row 7); a
partition that was never read, because its topic is unknown, says an empty list, as Kafka's does.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lakelog.broker.errors import Attempt, failure_code, read_code
from lakelog.broker.fetch_sessions import Key, Results, Slot
from lakelog.broker.loop_turn import ITEMS_PER_LOOK
from lakelog.log.values import Fetched, ReadStatus, StreamRead
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.wire.messages.fetch import AbortedTransaction, FetchPartition, FetchPartitionData
from lakelog.wire.schema import RecordParts

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

STORAGE_ERROR_VERSION: Final = 6
"""Before it clients do not know KAFKA_STORAGE_ERROR and give up; they are told to look again."""


STREAMS_PER_READ: Final = 500
"""So many partitions are read before others get their turn: planning and cutting takes about 40 us
for each, and the loop waits meanwhile (R2)."""


class FetchedPartition:
    """A partition of a fetch: its stream, or why it is not read."""

    __slots__ = ("asked", "fixed", "key", "stream")

    def __init__(
        self,
        key: Key,
        asked: FetchPartition,
        stream: int,
        fixed: FetchPartitionData | None = None,
    ) -> None:
        self.key = key
        self.asked = asked
        self.stream = stream
        self.fixed = fixed


def never_read(partition: int, code: ErrorCode) -> FetchPartitionData:
    """The answer for a partition that is unknown or may not be read: it waits with the others."""
    return FetchPartitionData(partition, code, -1)


class FetchRead:
    """The partitions of one fetch, and what was last seen of each."""

    __slots__ = (
        "_aborted",
        "_arrived_s",
        "_bytes_max",
        "_empty",
        "_entries",
        "_failed",
        "_live",
        "_log",
        "_place_of",
        "_ready",
        "_refused",
        "_results",
        "_turn",
        "_unproven_empty",
        "_unproven_errors",
        "_version",
        "size_bytes",
    )

    def __init__(
        self,
        broker: "Broker",
        entries: list[FetchedPartition],
        *,
        arrived_s: float,
        bytes_max: int,
        committed: bool,
        version: int,
    ) -> None:
        self._log = broker.log
        self._turn = broker.loop_turn
        self._entries = entries
        self._arrived_s = arrived_s
        self._bytes_max = bytes_max
        self._version = version
        self._aborted: tuple[AbortedTransaction, ...] | None = () if committed else None
        self._results: list[FetchPartitionData | None] = [entry.fixed for entry in entries]
        # Log start and head where nothing was seen; an answer is made of them if it is wanted.
        self._empty: list[tuple[int, int] | None] = [None] * len(entries)
        self._live = [at for at, entry in enumerate(entries) if entry.stream >= 0]
        self._place_of: dict[int, int] = {}
        # Places among the entries, by what was last seen there.
        self._ready: set[int] = set()
        self._failed: set[int] = set()
        self._refused = False
        self._unproven_empty: set[int] = set()
        self._unproven_errors: set[int] = set()
        self.size_bytes = 0

    @property
    def streams(self) -> list[int]:
        """The streams that are read, in order."""
        return [self._entries[at].stream for at in self._live]

    @property
    def is_large(self) -> bool:
        """Whether there is enough of it to make others wait (R2)."""
        return len(self._entries) > ITEMS_PER_LOOK

    @property
    def failed(self) -> bool:
        """Whether a partition has an error that its client hears at once."""
        return self._refused or bool(self._failed)

    @property
    def has_data(self) -> bool:
        """Whether some partition has something to read."""
        return bool(self._ready)

    @property
    def unproven(self) -> list[int]:
        """The streams of which an answer would say that something is not there, unproved (E1)."""
        places = sorted(self._unproven_empty | self._unproven_errors)
        return [self._entries[at].stream for at in places]

    def needs_proof(self, *, in_full: bool) -> bool:
        """Whether an answer would claim what an older state may be wrong about (E1).

        An answer that need not name every partition leaves out those whose emptiness is not
        proved; but one that holds no records at all says that nothing came.
        """
        if self._unproven_errors:
            return True
        return bool(self._unproven_empty) and (in_full or not self._ready)

    def results(self, *, in_full: bool, told: Mapping[Key, Slot]) -> Results:
        """What was found, per partition and in order.

        An empty partition may be left out if its marks are what the client was told before.
        """
        made: Results = []
        for at, (entry, data) in enumerate(zip(self._entries, self._results, strict=True)):
            if not in_full and at in self._unproven_empty:
                continue
            if data is not None:
                made.append((entry.key, data))
                continue
            marks = self._empty[at]
            assert marks is not None, "results are asked for after a look"
            slot = told.get(entry.key)
            if slot is None or marks != (slot.log_start, slot.high_watermark):
                made.append((entry.key, self._found(entry, marks[1], marks[0], b"")))
        return made

    def refuse(self, at: int, code: ErrorCode) -> None:
        """Answer one partition with the code of a failed read: such an answer does not wait."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self._entries[at].asked.partition
        self._results[at] = FetchPartitionData(
            partition, code, -1, aborted_transactions=self._aborted
        )
        self._failed.add(at)

    def refuse_for_good(self, codes: dict[int, ErrorCode]) -> None:
        """Refuse partitions whatever is seen later: they are not looked at again."""
        self._live = [at for at in self._live if at not in codes]
        self._refused = bool(codes)
        for at, code in codes.items():
            self.refuse(at, code)

    def refuse_unproven(self, code: ErrorCode) -> None:
        """Take back what needs a proof that could not be had; what can be read stays."""
        for at in sorted(self._unproven_empty | self._unproven_errors):
            self.refuse(at, code)
        self._unproven_empty.clear()
        self._unproven_errors.clear()

    async def prove(self, changed: Iterable[int]) -> None:
        """Take in a proof of all that is unproved, and that only these streams changed meanwhile.

        What was seen to be empty and has not changed is empty in the state that was proved. That a
        stream was made is not told as a change, so errors are looked at again.
        """
        again = [self._entries[at].stream for at in sorted(self._unproven_errors)]
        self._unproven_empty.clear()
        await self.look([*again, *changed])

    async def look(self, streams: Iterable[int] | None = None) -> None:
        """See what is there: of these streams, or of all."""
        if streams is None:
            places = self._live
        else:
            if not self._place_of:
                self._place_of = {self._entries[at].stream: at for at in self._live}
            places = [self._place_of[stream] for stream in streams if stream in self._place_of]
        async for part in self._turn.parts(places):
            self._look_at(part)

    def _look_at(self, places: Sequence[int]) -> None:
        """Compare marks with what is asked. Most are empty: nothing is made for those yet."""
        for seen in (self._ready, self._failed, self._unproven_empty, self._unproven_errors):
            if seen:
                seen.difference_update(places)
        log, entries = self._log, self._entries
        proved: dict[int, bool] = {}  # by domain: there are far fewer than partitions
        for at in places:
            entry = entries[at]
            stream, offset = entry.stream, entry.asked.fetch_offset
            marks = log.marks(stream)
            self._results[at] = self._empty[at] = None
            if marks is None:
                self._fail(at, ReadStatus.UNKNOWN_STREAM)
            elif offset == marks[1]:
                self._empty[at] = marks
                domain = log.domain_of(stream)
                if domain not in proved:
                    proved[domain] = log.is_proved(stream, arrived_s=self._arrived_s)
                if not proved[domain]:
                    self._unproven_empty.add(at)
            elif marks[0] <= offset < marks[1]:
                self._ready.add(at)
            else:
                self._fail(at, ReadStatus.OUT_OF_RANGE)

    async def read(self, *, deadline_s: float) -> None:
        """Read where something was seen."""
        self.size_bytes = 0
        if not self._ready:
            return
        places = sorted(self._ready)
        for start in range(0, len(places), STREAMS_PER_READ):
            if start:
                await self._turn.take()
            began_s = self._turn.now_s()
            await self._read_some(places[start : start + STREAMS_PER_READ], deadline_s)
            if len(places) > STREAMS_PER_READ:
                self._turn.spent(began_s)

    async def _read_some(self, places: list[int], deadline_s: float) -> None:
        """Read some of the partitions with what is left of the bytes."""
        left_bytes = self._bytes_max - self.size_bytes
        if self.size_bytes and left_bytes <= 0:
            for at in places:
                self._defer(at)
            return
        wanted = [self._wanted(self._entries[at]) for at in places]
        try:
            fetched = await self._log.read(
                wanted,
                bytes_max=left_bytes,
                deadline_s=deadline_s,
                at_least_one=not self.size_bytes,
            )
        except Failure as failure:  # the store did not answer: the client asks again
            code = failure_code(failure, Attempt.READING)
            for at in places:
                self.refuse(at, code)
            return
        for at, data in zip(places, fetched, strict=True):
            self._keep(at, data)

    def _wanted(self, entry: FetchedPartition) -> StreamRead:
        bytes_max = max(entry.asked.partition_max_bytes, 0)
        return StreamRead(entry.stream, entry.asked.fetch_offset, bytes_max)

    def _defer(self, at: int) -> None:
        """Say that there is data and send none, as when the bytes of an answer are used up."""
        entry = self._entries[at]
        marks = self._log.marks(entry.stream)
        if marks is None:  # dropped since it was looked at
            self._fail(at, ReadStatus.UNKNOWN_STREAM)
        else:
            self._results[at] = self._found(entry, marks[1], marks[0], b"")

    def _keep(self, at: int, data: Fetched) -> None:
        if data.status is not ReadStatus.OK:
            self._ready.discard(at)
            self._fail(at, data.status)
            return
        records = RecordParts(list(data.parts), data.size_bytes) if data.size_bytes else b""
        self.size_bytes += data.size_bytes
        self._results[at] = self._found(self._entries[at], data.head, data.log_start, records)

    def _found(
        self, entry: FetchedPartition, head: int, log_start: int, records: RecordParts | bytes
    ) -> FetchPartitionData:
        # Without transactions the last stable offset is the head (row 7).
        return FetchPartitionData(
            entry.asked.partition,
            0,
            head,
            head,
            log_start,
            aborted_transactions=self._aborted,
            records=records,
        )

    def _fail(self, at: int, status: ReadStatus) -> None:
        entry = self._entries[at]
        by_id = isinstance(entry.key[0], bytes)
        self.refuse(at, read_code(status, by_id=by_id))
        # A stream that was made elsewhere a moment ago may not be known here, though its topic is.
        if status in (
            ReadStatus.OUT_OF_RANGE,
            ReadStatus.UNKNOWN_STREAM,
        ) and not self._log.is_proved(entry.stream, arrived_s=self._arrived_s):
            self._unproven_errors.add(at)
