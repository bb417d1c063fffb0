"""One pass over the partitions of a fetch: what can be read now, and what has to be said of the
rest.

A pass looks at the marks of every partition, which costs little, and reads only where there is
something to read. It may be repeated; each pass makes all results anew. `Reading` does not wait
for data and proves nothing: it says what an answer made of it would claim.

Aborted transactions are null for read_uncommitted and empty for read_committed (row 7); a
partition that was never read, because its topic is unknown, says an empty list, as Kafka's does.
"""

from typing import TYPE_CHECKING, Final

from lakelog.broker.errors import Attempt, failure_code, read_code
from lakelog.broker.fetch_sessions import Key, Results
from lakelog.log.values import Fetched, ReadStatus, Wanted
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.wire.messages.fetch import AbortedTransaction, FetchPartition, FetchPartitionData
from lakelog.wire.schema import RecordParts

if TYPE_CHECKING:
    from lakelog.log.log import Log

CLAIMS: Final = (
    ErrorCode.NONE,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""What a partition without records says, and an older state may be wrong about. A stream that was
made elsewhere a moment ago may not be known here yet, though its topic is."""

STORAGE_ERROR_VERSION: Final = 6
"""Before it clients do not know KAFKA_STORAGE_ERROR and give up; they are told to look again."""


class Entry:
    """A partition of a fetch: its stream, or why it is not read."""

    __slots__ = ("asked", "fixed", "key", "stream")

    def __init__(
        self,
        key: Key,
        asked: FetchPartition,
        *,
        stream: int = -1,
        fixed: FetchPartitionData | None = None,
    ) -> None:
        self.key = key
        self.asked = asked
        self.stream = stream
        self.fixed = fixed


def never_read(partition: int, code: ErrorCode) -> FetchPartitionData:
    """The answer for a partition that is unknown or may not be read: it waits with the others."""
    return FetchPartitionData(partition, code, -1)


class Reading:
    """The partitions of one fetch, and what the last pass found."""

    __slots__ = (
        "_aborted",
        "_bytes_max",
        "_entries",
        "_fixed_failed",
        "_live",
        "_log",
        "_results",
        "_version",
        "claims_absence",
        "failed",
        "size_bytes",
    )

    def __init__(
        self, log: "Log", entries: list[Entry], *, bytes_max: int, committed: bool, version: int
    ) -> None:
        self._log = log
        self._entries = entries
        self._bytes_max = bytes_max
        self._version = version
        self._aborted: tuple[AbortedTransaction, ...] | None = () if committed else None
        self._results: list[FetchPartitionData | None] = [entry.fixed for entry in entries]
        self._live = [at for at, entry in enumerate(entries) if entry.stream >= 0]
        self._fixed_failed = False
        self.size_bytes = 0
        self.failed = False
        self.claims_absence = False

    @property
    def streams(self) -> list[int]:
        """The streams that are read, in order."""
        return [self._entries[at].stream for at in self._live]

    @property
    def needs_proof(self) -> bool:
        """Whether an answer would say that something is not there, or not any more (E1)."""
        return bool(self._live) and (self.claims_absence or self.size_bytes == 0)

    def results(self) -> Results:
        """What was found, per partition and in order."""
        made: Results = []
        for entry, data in zip(self._entries, self._results, strict=True):
            assert data is not None, "results are asked for after a pass"
            made.append((entry.key, data))
        return made

    def refuse(self, at: int, code: ErrorCode) -> None:
        """Answer one partition with the code of a failed read: such an answer does not wait."""
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._version < STORAGE_ERROR_VERSION:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition = self._entries[at].asked.partition
        self._results[at] = FetchPartitionData(
            partition, code, -1, aborted_transactions=self._aborted
        )
        self.failed = True

    def refuse_for_good(self, codes: dict[int, ErrorCode]) -> None:
        """Refuse partitions for all passes: they are not looked at again."""
        self._live = [at for at in self._live if at not in codes]
        self._fixed_failed = bool(codes)
        for at, code in codes.items():
            self.refuse(at, code)

    def refuse_claims(self, code: ErrorCode) -> None:
        """Take back what needs a proof that could not be had; what was read stays."""
        for at in self._live:
            data = self._results[at]
            assert data is not None, "claims are taken back after a pass"
            if data.records == b"" and data.error_code in CLAIMS:
                self.refuse(at, code)
        self.claims_absence = False

    async def read(self, *, deadline_s: float) -> None:
        """Look at every partition once and read what is there."""
        self.size_bytes = 0
        self.failed = self._fixed_failed
        self.claims_absence = False
        wanted: list[Wanted] = []
        places: list[int] = []
        facts_of, entries, results = self._log.facts, self._entries, self._results
        for at in self._live:
            entry = entries[at]
            facts = facts_of(entry.stream)
            offset = entry.asked.fetch_offset
            if facts is None:
                self._fail(at, ReadStatus.UNKNOWN_STREAM)
            elif offset == facts.head:
                results[at] = self._found(entry, facts.head, facts.log_start, b"")
            elif facts.log_start <= offset < facts.head:
                wanted.append(Wanted(entry.stream, offset, max(entry.asked.partition_max_bytes, 0)))
                places.append(at)
            else:
                self._fail(at, ReadStatus.OUT_OF_RANGE)
        if wanted:
            await self._read_wanted(wanted, places, deadline_s)

    async def _read_wanted(
        self, wanted: list[Wanted], places: list[int], deadline_s: float
    ) -> None:
        try:
            fetched = await self._log.read(wanted, bytes_max=self._bytes_max, deadline_s=deadline_s)
        except Failure as failure:  # the store did not answer: the client asks again
            code = failure_code(failure, Attempt.READING)
            for at in places:
                self.refuse(at, code)
            return
        for at, one in zip(places, fetched, strict=True):
            self._keep(at, one)

    def _keep(self, at: int, one: Fetched) -> None:
        if one.status is not ReadStatus.OK:
            self._fail(at, one.status)
            return
        records = RecordParts(list(one.parts), one.size_bytes) if one.size_bytes else b""
        self.size_bytes += one.size_bytes
        self._results[at] = self._found(self._entries[at], one.head, one.log_start, records)

    def _found(
        self, entry: Entry, head: int, log_start: int, records: RecordParts | bytes
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
        by_id = isinstance(self._entries[at].key[0], bytes)
        self.refuse(at, read_code(status, by_id=by_id))
        if status in (ReadStatus.OUT_OF_RANGE, ReadStatus.UNKNOWN_STREAM):
            self.claims_absence = True
