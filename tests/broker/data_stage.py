"""A stage for the data APIs: a log in memory on the real `apply`, and a broker around it.

`MemoryLog` keeps the promises of `lakelog.log.log.Log` and lets a test decide what a store
decides otherwise: when appends are committed, whether a proof can be had, what other brokers have
written that this one has not applied yet.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
from tests.broker.memory_producer_ids import ProducerNumbers
from tests.broker.stage_batches import batch_of, commit_event
from tests.domain.build import Domain, create_of, trim_of

from lakelog.broker.call import Call
from lakelog.broker.fetch_sessions import FetchSessions
from lakelog.broker.loop_turn import LoopTurn
from lakelog.clock import SeededEntropy
from lakelog.domain.events import Drop
from lakelog.domain.state import Committed, Trimmed, Verdict
from lakelog.log.budgets import producer_facts
from lakelog.log.timestamps import TimestampMatch
from lakelog.log.values import Appended, Fetched, ProducerFacts, ReadStatus, Settle, StreamRead
from lakelog.log.watch import FetchWaiter, FetchWaiters
from lakelog.model.failures import Failure, Unavailable
from lakelog.model.ids import TopicId
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.batch_rows import BatchColumn, BatchRows
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.columns import decode_columns
from lakelog.records.header import patch
from lakelog.streams.table import Int64s, StreamFacts
from lakelog.telemetry import MetricsRegistry
from lakelog.topics.settings import settings
from lakelog.topics.topic import StreamSpan, Topic

if TYPE_CHECKING:
    from lakelog.broker.call import Broker


class SetClock:
    """Time that moves only when a test says so."""

    def __init__(self) -> None:
        self.monotonic = 1_000.0
        self.wall_ms = 1_794_717_942_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.monotonic


@dataclass(slots=True)
class Stored:
    """A committed batch: its offsets [start, end) and its bytes."""

    start: int
    end: int
    data: memoryview


class MemoryLog:
    """The log of one domain, in memory."""

    url = "memory:"

    def __init__(self) -> None:
        self.domain = Domain()
        self.stored: dict[int, list[Stored]] = {}
        self.board = FetchWaiters()
        self.commit_at_once = True
        self.held: list[tuple[list[int], list[AcceptedBatch], Settle]] = []
        self.deadlines_s: list[float] = []  # of every batch that was handed over
        self.foreign: list[tuple[int, AcceptedBatch]] = []
        self.stale = False
        self.provable = True
        self.proofs = 0
        self.proved_s = 0.0
        self.reads = 0
        self.no_room: Failure | None = None
        self.producers_full = False
        self.read_failure: Failure | None = None
        self.damaged: set[int] = set()

    # What a broker asks.

    def facts(self, stream: int) -> StreamFacts | None:
        return self.domain.state.streams.facts(stream)

    def marks(self, stream: int) -> tuple[int, int] | None:
        return self.domain.state.streams.marks(stream)

    def domain_of(self, stream: int) -> int:
        assert stream > 0
        return 0

    def takes_producer(self, stream: int, producer: int) -> bool:
        row = self.domain.state.streams.row_of[stream]
        return not self.producers_full or self.domain.state.producers.row(row, producer) >= 0

    def check_fresh(self, stream: int) -> None:
        if self.stale:
            raise Unavailable(f"no proof for the domain of {stream}")

    def is_proved(self, stream: int, *, arrived_s: float) -> bool:
        assert stream > 0
        return self.proved_s >= arrived_s

    async def prove(self, streams: Iterable[int], *, arrived_s: float, deadline_s: float) -> None:
        assert list(streams)
        assert arrived_s <= deadline_s
        await asyncio.sleep(0)
        if not self.provable:
            raise Unavailable("the store does not answer")
        self.proofs += 1
        self.proved_s = max(self.proved_s, arrived_s)
        self.catch_up()

    def hand_over(
        self, batches: BatchRows, *, deadline_s: float, settle: Settle, requests: int = 1
    ) -> None:
        """Hold the batches that these rows stand for."""
        assert deadline_s > 0
        assert 0 < requests <= len(batches)
        self.deadlines_s += [deadline_s] * len(batches)
        streams = batches.column(BatchColumn.STREAM).tolist()
        made = [batch_of(batches, row) for row in batches.rows.tolist()]
        self.held.append((streams, made, settle))
        if self.commit_at_once:
            self.commit_held()

    def has_room(self, size_bytes: int) -> bool:
        assert size_bytes > 0
        return self.no_room is None

    def has_producer_room(self) -> bool:
        return not self.producers_full

    def log_start(self, stream: int) -> int:
        facts = self.facts(stream)
        return -1 if facts is None else facts.log_start

    def log_starts(self, streams: Int64s) -> Int64s:
        return np.array([self.log_start(stream) for stream in streams.tolist()], dtype=np.int64)

    async def room(self, size_bytes: int, *, deadline_s: float) -> None:
        assert size_bytes > 0
        assert deadline_s > 0
        if self.no_room is not None:
            raise self.no_room

    async def read(
        self,
        wanted: Sequence[StreamRead],
        *,
        bytes_max: int,
        deadline_s: float,
        at_least_one: bool = True,
    ) -> list[Fetched]:
        assert deadline_s > 0
        self.reads += 1
        if self.read_failure is not None:
            raise self.read_failure
        left, must = bytes_max, at_least_one
        made = []
        for one in wanted:
            fetched = self._read_stream(one, min(one.bytes_max, left), must=must)
            left -= fetched.size_bytes
            must = must and not fetched.size_bytes
            made.append(fetched)
        return made

    def watch(self, streams: Sequence[int]) -> FetchWaiter:
        return FetchWaiter(self.board, streams)

    async def find_timestamp(self, stream: int, timestamp_ms: int) -> TimestampMatch | None:
        return next((one for one in self._timed(stream) if one.timestamp_ms >= timestamp_ms), None)

    async def max_timestamp(self, stream: int) -> TimestampMatch | None:
        return max(self._timed(stream), key=lambda one: one.timestamp_ms, default=None)

    def producers(self, stream: int) -> list[ProducerFacts]:
        return producer_facts(self.domain.state, stream)

    async def trim(self, offsets: Mapping[int, int]) -> dict[int, int]:
        (outcome,) = self.domain.add(trim_of(dict(offsets))).outcomes
        assert isinstance(outcome, Trimmed)
        self.board.notify(offsets)
        return dict(zip(offsets, outcome.log_starts.tolist(), strict=True))

    # What a test does to it.

    def create(self, *streams: int) -> None:
        self.domain.add(create_of(*streams))

    def drop(self, *streams: int) -> None:
        self.domain.add(Drop(np.array(streams, dtype=np.int64)))
        self.board.notify(streams)

    def commit_held(self) -> None:
        """Commit what was appended, in order."""
        held, self.held = self.held, []
        for streams, batches, settle in held:
            appended = self._commit(streams, batches)
            settle(appended)

    def catch_up(self) -> None:
        """Apply what other brokers wrote."""
        foreign, self.foreign = self.foreign, []
        for stream, batch in foreign:
            self._commit([stream], [batch])

    def _commit(self, streams: list[int], batches: list[AcceptedBatch]) -> Appended:
        order = sorted(range(len(streams)), key=streams.__getitem__)
        event = commit_event([(streams[at], batches[at]) for at in order], self.domain.number)
        (outcome,) = self.domain.add(event).outcomes
        assert isinstance(outcome, Committed)
        verdicts, offsets, times = ([0] * len(streams) for _ in range(3))
        for number, at in enumerate(order):
            verdicts[at] = int(outcome.verdicts[number])
            offsets[at] = int(outcome.offsets[number])
            times[at] = int(outcome.timestamps[number])
            if verdicts[at] == Verdict.ACCEPTED:
                start, batch = offsets[at], batches[at]
                self.stored.setdefault(streams[at], []).append(
                    Stored(start, start + batch.offset_count, batch.data)
                )
        self.board.notify(streams)
        return Appended(verdicts, offsets, times)

    def _read_stream(self, one: StreamRead, bytes_max: int, *, must: bool) -> Fetched:
        facts = self.facts(one.stream)
        if facts is None:
            return Fetched(ReadStatus.UNKNOWN_STREAM, (), 0, -1, -1)
        if one.stream in self.damaged:
            return Fetched(ReadStatus.DAMAGED, (), 0, -1, -1)
        if not facts.log_start <= one.offset <= facts.head:
            return Fetched(ReadStatus.OUT_OF_RANGE, (), 0, -1, -1)
        parts: list[bytes | memoryview] = []
        size = 0
        for stored in self.stored.get(one.stream, ()):
            if stored.end <= one.offset:
                continue
            if size + len(stored.data) > bytes_max and not (must and not size):
                break
            parts.extend(patch(stored.data, base_offset=stored.start))
            size += len(stored.data)
        return Fetched(ReadStatus.OK, parts, size, facts.log_start, facts.head)

    def _timed(self, stream: int) -> Iterator[TimestampMatch]:
        facts = self.facts(stream)
        assert facts is not None
        for stored in self.stored.get(stream, ()):
            for delta, timestamp_ms in enumerate(
                decode_columns(stored.data, decompressed_bytes_max=1 << 20).timestamps_ms.tolist()
            ):
                if stored.start + delta >= facts.log_start:
                    yield TimestampMatch(stored.start + delta, timestamp_ms)


class KnownTopics:
    """The topics a broker knows, and whether the store answers when it asks for others."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.unseen: dict[str, Topic] = {}
        self.failure: Failure | None = None
        self.asked = 0
        self.listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        self.listeners.append(listener)

    def cached(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def cached_id(self, topic_id: TopicId) -> Topic | None:
        return next((topic for topic in self.by_name.values() if topic.id == topic_id), None)

    async def current(self) -> None:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        self.by_name.update(self.unseen)

    async def create(self, name: str, **_: object) -> Topic:
        raise Unavailable(f"{name} cannot be made here")


class NoConfigs:
    """Configs that nobody changes."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Nothing will."""


@dataclass
class Options:
    """The options that the data APIs read."""

    idempotence: bool = True


@dataclass
class DataStage:
    """All that a handler needs, in memory; `broker` is what handlers get."""

    log: MemoryLog = field(default_factory=MemoryLog)
    topics: KnownTopics = field(default_factory=KnownTopics)
    clock: SetClock = field(default_factory=SetClock)
    cluster: ProducerNumbers = field(default_factory=ProducerNumbers)
    options: Options = field(default_factory=Options)
    metrics: MetricsRegistry = field(default_factory=MetricsRegistry)
    fetch_sessions: FetchSessions = field(
        default_factory=lambda: FetchSessions(SeededEntropy("sessions"))
    )
    streams: int = 0
    broker_configs: NoConfigs = field(default_factory=NoConfigs)
    loop_turn: LoopTurn = field(init=False)

    def __post_init__(self) -> None:
        self.loop_turn = LoopTurn(self.clock)

    @property
    def broker(self) -> "Broker":
        return cast("Broker", self)

    def topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Make a topic and its streams."""
        first = self.streams + 1
        self.streams += partitions
        self.log.create(*range(first, first + partitions))
        chosen = dict(configs or {})
        made = Topic(
            name,
            topic_id(name),
            (StreamSpan(0, first, partitions),),
            1,
            chosen,
            settings(chosen),
        )
        self.topics.by_name[name] = made
        for listener in self.topics.listeners:
            listener()
        return made

    def call(self, version: int) -> Call:
        """A request of that version that came just now, after all that was proved before."""
        self.clock.monotonic += 1e-6
        return Call(
            version=version,
            client_id="test",
            client_host="127.0.0.1",
            server_host="127.0.0.1",
            server_port=9092,
            connection=1,
            arrived_s=self.clock.monotonic,
            request_bytes=100,
        )


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().ljust(16, b"\1")[:16])


def batch(
    *values: bytes,
    timestamp_ms: int = 1_794_717_942_000,
    options: BatchOptions | None = None,
    key: bytes | None = b"k",
) -> memoryview:
    """A record batch as a producer sends it; timestamps rise by one."""
    records = [
        Record(key, value, timestamp_ms + number) for number, value in enumerate(values or (b"v",))
    ]
    return memoryview(build_batch(records, options or BatchOptions()))


def idempotent(producer: int, epoch: int, sequence: int, *values: bytes) -> memoryview:
    """A batch of an idempotent producer."""
    options = BatchOptions(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return batch(*values, options=options)
