"""What a domain log means, as naively as it can be said: dicts, lists, one loop a batch.

The oracle of the differential tests. It is slow on purpose and shares no code with `apply` but the
event types, so that a clever array expression and its mistake cannot both be here.
"""

from dataclasses import dataclass, field
from typing import Any

from lakelog.domain.commit_event import Commit, ExpireWrites, Write
from lakelog.domain.envelope import DomainRecord, Stamp
from lakelog.domain.events import (
    Barrier,
    Create,
    Drop,
    Event,
    ExpireProducers,
    Genesis,
    Hello,
    Horizon,
    Swap,
    Trim,
    Upgrade,
)
from lakelog.domain.state import Verdict, WriteVerdict
from lakelog.streams.objects import FileName, ObjectName, WalName, digest

SEQUENCES = 2**31
WINDOW = 5


@dataclass
class Remembered:
    first: int
    count: int
    offset: int
    timestamp_ms: int


@dataclass
class Producer:
    epoch: int
    time_ms: int
    window: list[Remembered]

    def next(self) -> int:
        return (self.window[-1].first + self.window[-1].count) % SEQUENCES

    def duplicate(self, first: int, count: int) -> tuple[Verdict, int, int]:
        for old in self.window:
            if (old.first, old.count) == (first, count):
                return Verdict.DUPLICATE, old.offset, old.timestamp_ms
        return Verdict.OUT_OF_SEQUENCE, -1, -1


@dataclass
class Chunk:
    """An index entry."""

    start: int
    end: int
    name: ObjectName
    byte_start: int
    byte_length: int
    max_timestamp_ms: int


@dataclass
class Stream:
    topic: bytes
    partition: int
    log_start: int = 0
    head: int = 0
    gone_bytes: int = 0
    entries: list[Chunk] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)


class Model:
    """The state after some records, and what became of each event."""

    def __init__(self, *, producers_max: int = 10**9, applications_max: int = 10**9) -> None:
        self.cluster_id = ""
        self.level = 0
        self.position = 0
        self.horizon_ms = 0
        self.expired_max = -1
        self.producers_max = producers_max
        self.applications_max = applications_max
        self.writers: dict[str, Stamp] = {}
        self.supported: dict[str, int] = {}
        self.streams: dict[int, Stream] = {}
        self.writes: dict[str, tuple[int, int]] = {}

    def apply(self, record: DomainRecord) -> list[Any]:
        """Outcomes as plain values: a list of (verdict, offset, timestamp) for a Commit, etc."""
        self.position += 1
        last = self.writers.get(record.writer)
        begins = isinstance(record.events[0], Hello | Genesis)
        if last is not None and record.stamp <= last:
            return ["ignored"] * len(record.events)
        if (last is None or record.stamp.incarnation > last.incarnation) and not begins:
            return ["ignored"] * len(record.events)
        self.writers[record.writer] = record.stamp
        return [self.event(record.writer, event) for event in record.events]

    def producer_count(self) -> int:
        return sum(len(stream.producers) for stream in self.streams.values())

    def referenced(self) -> set[ObjectName]:
        return {entry.name for stream in self.streams.values() for entry in stream.entries}

    def event(self, writer: str, event: Event) -> Any:
        """Take in one event of a record that counts."""
        match event:
            case Commit():
                return self._commit(event)
            case Write():
                return self._write(event)
            case Trim():
                pairs = zip(event.streams.tolist(), event.offsets.tolist(), strict=True)
                return [self._trim(stream, offset) for stream, offset in pairs]
            case Swap():
                return self._swap(event)
            case Create() | Drop():
                self._change_streams(event)
            case ExpireProducers():
                self._expire(min(event.cutoff_ms, self.horizon_ms))
            case ExpireWrites():
                for name, (_, time_ms) in list(self.writes.items()):
                    if time_ms < event.cutoff_ms and time_ms < self.horizon_ms:
                        del self.writes[name]
            case _:
                self._note(writer, event)
        return "done"

    def _note(self, writer: str, event: Event) -> None:
        match event:
            case Horizon():
                self.horizon_ms = max(self.horizon_ms, event.time_ms)
            case Genesis():
                self.cluster_id, self.level = event.cluster_id, max(self.level, event.level)
            case Hello():
                self.supported[writer] = event.supported_level
            case Upgrade():
                self.level = max(self.level, event.level)
            case _:
                assert isinstance(event, Barrier)

    def _change_streams(self, event: Create | Drop) -> None:
        for number, stream in enumerate(event.streams.tolist()):
            if isinstance(event, Drop):
                self.streams.pop(stream, None)
            elif stream not in self.streams:
                self.streams[stream] = Stream(event.topic, event.first_partition + number)

    def _commit(self, event: Commit) -> list[tuple[int, int, int]]:
        time_ms = int.from_bytes(event.wal_id[:6], "big")
        if time_ms < self.horizon_ms:
            return [(Verdict.VOID, -1, -1)] * len(event.stream)
        answers = []
        open_entry: Chunk | None = None  # batches of one stream that adjoin share an entry
        before: int | None = None
        for at in range(len(event.stream)):
            number = int(event.stream[at])
            if number != before:
                open_entry, before = None, number
            stream = self.streams.get(number)
            if stream is None:
                answers.append((Verdict.UNKNOWN_STREAM, -1, -1))
                continue
            answer = self._judge(stream, event, at, time_ms)
            answers.append(answer)
            if answer[0] != Verdict.ACCEPTED:
                open_entry = None
                continue
            open_entry = _entered(stream, open_entry, event, at)
        return [(int(verdict), offset, timestamp) for verdict, offset, timestamp in answers]

    def _write(self, event: Write) -> tuple[int, Any]:
        """The verdict, and what became of each batch of each object or which streams miss."""
        if self.level < 2:
            return int(WriteVerdict.TOO_EARLY), []
        if event.application in self.writes:
            if event.version <= self.writes[event.application][0]:
                return int(WriteVerdict.ALREADY), []
        elif len(self.writes) >= self.applications_max:
            return int(WriteVerdict.APPLICATIONS_FULL), []
        newest_ms = 0
        for commit in event.commits:
            time_ms = int.from_bytes(commit.wal_id[:6], "big")
            newest_ms = max(newest_ms, time_ms)
            if time_ms < self.horizon_ms:
                return int(WriteVerdict.VOID), []
        named = {int(stream) for commit in event.commits for stream in commit.stream}
        missing = sorted(named - self.streams.keys())
        if missing:
            return int(WriteVerdict.UNKNOWN_STREAM), missing
        self.writes[event.application] = event.version, newest_ms
        return int(WriteVerdict.TAKEN), [self._commit(commit) for commit in event.commits]

    def _judge(
        self, stream: Stream, event: Commit, at: int, time_ms: int
    ) -> tuple[Verdict, int, int]:
        identity, epoch = int(event.producer[at]), int(event.epoch[at])
        first, count = int(event.sequence[at]), int(event.offset_count[at])
        if identity < 0:
            return Verdict.ACCEPTED, stream.head, -1
        known = stream.producers.get(identity)
        if known is None:
            more = 2 if self.level >= 3 else 0  # as the tests set it
            if self.producer_count() >= self.producers_max + more:
                return Verdict.PRODUCERS_FULL, -1, -1
            if first != 0 and identity > self.expired_max:
                return Verdict.OUT_OF_SEQUENCE, -1, -1
            known = stream.producers[identity] = Producer(epoch, 0, [])
        elif epoch != known.epoch:
            if epoch < known.epoch:
                return Verdict.STALE_EPOCH, -1, -1
            if first != 0:
                return Verdict.OUT_OF_SEQUENCE, -1, -1
            known.epoch, known.window = epoch, []
        elif first != known.next():
            return known.duplicate(first, count)
        made = Remembered(first, count, stream.head, int(event.max_timestamp[at]))
        known.window = [*known.window, made][-WINDOW:]
        known.time_ms = max(known.time_ms, time_ms)
        return Verdict.ACCEPTED, stream.head, -1

    def _trim(self, number: int, offset: int) -> int:
        stream = self.streams.get(number)
        if stream is None:
            return -1
        stream.log_start = max(stream.log_start, min(offset, stream.head))
        gone = [entry for entry in stream.entries if entry.end <= stream.log_start]
        stream.gone_bytes += sum(entry.byte_length for entry in gone)
        stream.entries = [entry for entry in stream.entries if entry.end > stream.log_start]
        return stream.log_start

    def _swap(self, event: Swap) -> bool:
        """Whether it took place: the file holds exactly what trimming left of its range."""
        stream = self.streams.get(event.stream)
        if stream is None:
            return False
        old = [one for one in stream.entries if event.start <= one.start and one.end <= event.end]
        if not old or old[-1].end != event.end:
            return False
        trimmed_in_front = old[0] is stream.entries[0]
        if old[0].start != event.start and not trimmed_in_front:
            return False
        if any(digest(entry.name) not in event.replaces for entry in old):
            return False
        name = FileName(event.file.kind, event.file.key)
        made = Chunk(old[0].start, event.end, name, 0, event.size_bytes, event.max_timestamp_ms)
        place = stream.entries.index(old[0])
        stream.entries[place : place + len(old)] = [made]
        return True

    def _expire(self, cutoff_ms: int) -> None:
        for stream in self.streams.values():
            for identity, producer in list(stream.producers.items()):
                if producer.time_ms < cutoff_ms:
                    del stream.producers[identity]
                    self.expired_max = max(self.expired_max, identity)


def _entered(stream: Stream, open_entry: Chunk | None, event: Commit, at: int) -> Chunk:
    """Give the batch its offsets and put it into the open entry or a new one."""
    count, length = int(event.offset_count[at]), int(event.byte_length[at])
    timestamp = int(event.max_timestamp[at])
    if open_entry is None:
        name = WalName(event.wal_id, event.zone)
        start = int(event.byte_start[at])
        open_entry = Chunk(stream.head, stream.head, name, start, 0, timestamp)
        stream.entries.append(open_entry)
    stream.head += count
    open_entry.end = stream.head
    open_entry.byte_length += length
    open_entry.max_timestamp_ms = max(open_entry.max_timestamp_ms, timestamp)
    return open_entry
