"""All domains of a cluster as one log: everything the broker knows of storage."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.domain.events import Create, Drop, Event, Swap, Trim
from lakelog.domain.replica import Replica
from lakelog.domain.state import Applied, DomainState, Outcome, Swapped, Trimmed
from lakelog.log.budgets import IndexBudget, ProducerBudget, producer_facts
from lakelog.log.buffer import SplitRequestOutcome
from lakelog.log.cache import TailCache
from lakelog.log.commit import Committer
from lakelog.log.options import LogOptions
from lakelog.log.plan import Piece, piece_of
from lakelog.log.read import Reader
from lakelog.log.retention import Policies, Retention, Sweeper
from lakelog.log.timestamps import TimestampMatch, find_max_timestamp, find_timestamp
from lakelog.log.values import (
    Appended,
    Fetched,
    ProducerFacts,
    Settle,
    Settled,
    StreamRead,
)
from lakelog.log.watch import FetchWaiter, FetchWaiters, changed_streams
from lakelog.log.writes import IdempotentWrite, Writes, WrittenDomain
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import TopicId
from lakelog.objects.port import ObjectStore
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.batch_rows import BatchColumn, BatchRows, rows_of
from lakelog.streams.table import Int64s, StreamFacts
from lakelog.telemetry import MetricsRegistry

ResultT = TypeVar("ResultT")

STREAMS_PER_RECORD = 50_000
"""Streams that one Create or Drop names: eight bytes each, below a record's limit."""


def domain_of(stream: int, domains: int) -> int:
    """The domain of a stream, for ever: a fixed hash over a number fixed at creation (T2)."""
    return ((stream * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 32) % domains


class Log:
    """Appends, reads and administers streams, whichever domain they belong to."""

    def __init__(  # noqa: PLR0913 - the composition root hands over one of each
        self,
        replicas: Sequence[Replica],
        objects: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        *,
        zone: str,
        options: LogOptions,
        metrics: MetricsRegistry,
    ) -> None:
        self.url = objects.url
        self.zone = zone
        self.replicas = tuple(replicas)
        self._clock = clock
        self._options = options
        self._objects = objects
        self._board = FetchWaiters()
        self._tasks = Tasks()
        self._committers: list[Committer] = []
        self._readers: list[Reader] = []
        self._index_budget = IndexBudget(self.replicas, clock, options, metrics)
        self.writes = Writes(self.replicas, objects, clock, options)
        self.writes.admit = self._index_budget.check
        self._producers = ProducerBudget(self.replicas, clock, options, metrics)
        for replica in replicas:
            tail = TailCache(options.tail_cache_bytes // len(replicas))
            shared: dict[str, Any] = {"options": options, "tail": tail, "metrics": metrics}
            self._committers.append(
                Committer(replica, objects, clock, entropy, zone=zone, **shared)
            )
            self._readers.append(Reader(replica, objects, clock, **shared))
            replica.listeners.append(self._tell)
            replica.on_reload.append(self._board.notify_all)

    def start(self) -> None:
        """Begin to commit, and to sweep garbage."""
        for committer in self._committers:
            committer.start()
            self._tasks.spawn(committer.failed(), name="watch commits")
        for replica in self.replicas:
            sweeper = Sweeper(replica, self._objects, self._clock, self._options)
            self._tasks.spawn(sweeper.run(), name="sweep garbage")
        relieving = self._producers.run(self._registered)
        self._tasks.spawn(relieving, name="relieve producers")

    def start_retention(self, policies: Policies) -> None:
        """Begin to apply retention by these policies."""
        for replica in self.replicas:
            retention = Retention(replica, self._objects, self._clock, policies, self._options)
            self._tasks.spawn(retention.run(), name="apply retention")

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    def wake_all(self) -> None:
        """Let everyone who watches look again: the broker is about to stop."""
        self._board.notify_all()

    async def close(self, *, timeout_s: float) -> None:
        """Commit what was accepted, wake who waits, stop."""
        self.wake_all()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(committer.close() for committer in self._committers))
        except TimeoutError:
            pass  # what is left is not acknowledged, so nothing is owed
        await self._tasks.close()

    def domain_of(self, stream: int) -> int:
        """The domain of a stream."""
        return domain_of(stream, len(self.replicas)) if len(self.replicas) > 1 else 0

    def facts(self, stream: int) -> StreamFacts | None:
        """What the applied state knows of a stream."""
        return self.replicas[self.domain_of(stream)].state.streams.facts(stream)

    def marks(self, stream: int) -> tuple[int, int] | None:
        """Log start and head of a stream by the applied state."""
        return self.replicas[self.domain_of(stream)].state.streams.marks(stream)

    def log_starts(self, streams: Int64s) -> Int64s:
        """Where the streams start by the applied state, -1 for those unknown."""
        if len(self.replicas) == 1:
            return self.replicas[0].state.streams.log_starts(streams)
        starts = np.empty(len(streams), dtype=np.int64)
        for domain, places in self._by_domain(streams.tolist()).items():
            table = self.replicas[domain].state.streams
            starts[places] = table.log_starts(streams[places])
        return starts

    def check_fresh(self, stream: int) -> None:
        """Raise `Unavailable` when the stream's domain cannot be vouched for (rule 17)."""
        self.replicas[self.domain_of(stream)].check_fresh()

    def state(self, domain: int) -> DomainState:
        """The applied state of a domain; `Unavailable` when it cannot be vouched for (rule 17)."""
        self.replicas[domain].check_fresh()
        return self.replicas[domain].state

    def is_proved(self, stream: int, *, arrived_s: float) -> bool:
        """Whether the stream's `facts` hold everything acknowledged before, without asking."""
        return self.replicas[self.domain_of(stream)].is_proved(arrived_s=arrived_s)

    async def prove(self, streams: Iterable[int], *, arrived_s: float, deadline_s: float) -> None:
        """Return when `facts` hold everything acknowledged before `arrived_s` (rule 16)."""
        domains = sorted({self.domain_of(stream) for stream in streams})
        await self.prove_domains(domains, arrived_s=arrived_s, deadline_s=deadline_s)

    async def prove_domains(
        self, domains: Iterable[int], *, arrived_s: float, deadline_s: float
    ) -> None:
        """The same for whole domains."""
        proofs = [self.replicas[domain].prove(arrived_s=arrived_s) for domain in domains]
        await self._within(deadline_s, _together(proofs))

    def append(
        self, streams: Sequence[int], batches: Sequence[AcceptedBatch], *, deadline_s: float
    ) -> "asyncio.Future[Appended]":
        """Take places in the log for these batches, in their order, now.

        The future fails with `OutcomeUnknown`, or with `Unavailable` when nothing was written.
        Where only some of the batches failed, its result says which.
        """
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        rows = rows_of(streams, batches)
        self.hand_over(rows, deadline_s=deadline_s, settle=partial(_settle, outcome))
        return outcome

    def hand_over(
        self, batches: BatchRows, *, deadline_s: float, settle: Settle, requests: int = 1
    ) -> None:
        """The same for so many requests: `settle` is called with their outcome, once."""
        if len(self._committers) == 1:
            self._committers[0].hand_over(
                batches, deadline_s=deadline_s, settle=settle, requests=requests
            )
            return
        places = self._by_domain(batches.column(BatchColumn.STREAM).tolist())
        joined = SplitRequestOutcome(len(batches), len(places), settle)
        for domain, some in places.items():
            rows = batches.rows[some]
            size_bytes = int(rows[:, BatchColumn.LENGTH].sum())
            self._committers[domain].hand_over(
                BatchRows(batches.buffers, rows, size_bytes),
                deadline_s=deadline_s,
                settle=partial(joined.add, some),
                requests=requests,
            )

    def has_room(self, size_bytes: int) -> bool:
        """Whether producers need not wait, and the buffers take so many more bytes now."""
        return not self._index_budget.throttle_ms and all(
            committer.has_room(size_bytes) for committer in self._committers
        )

    def takes_producer(self, stream: int, producer: int) -> bool:
        """Whether there is room for this producer on this stream, or it is known there (B9)."""
        return self._producers.takes(self.domain_of(stream), stream, producer)

    def has_producer_room(self) -> bool:
        """Whether any producer is taken on any stream (B9)."""
        return self._producers.has_room()

    async def room(self, size_bytes: int, *, deadline_s: float) -> None:
        """Wait until so many more bytes may come; `Unavailable` past the deadline, or if full."""
        await self._index_budget.admit(deadline_s=deadline_s)
        for committer in self._committers:
            await committer.room(size_bytes, deadline_s=deadline_s)

    async def read(
        self,
        wanted: Sequence[StreamRead],
        *,
        bytes_max: int,
        deadline_s: float,
        at_least_one: bool = True,
    ) -> list[Fetched]:
        """What the streams hold from the offsets on, in order, within one budget.

        The first batch is read however large it is, if there has to be at least one.
        """
        if len(self._readers) == 1:
            reading = self._readers[0].read(wanted, bytes_max=bytes_max, at_least_one=at_least_one)
        else:
            reading = self._read_domains(wanted, bytes_max, at_least_one)
        return await self._within(deadline_s, reading)

    async def _read_domains(
        self, wanted: Sequence[StreamRead], bytes_max: int, at_least_one: bool
    ) -> list[Fetched]:
        """One domain after another, with the budget that those before left."""
        fetched: list[Fetched] = []
        for request in wanted:
            reader = self._readers[self.domain_of(request.stream)]
            fetched += await reader.read([request], bytes_max=bytes_max, at_least_one=at_least_one)
            at_least_one = at_least_one and not fetched[-1].size_bytes
            bytes_max = max(0, bytes_max - fetched[-1].size_bytes)
        return fetched

    def watch(self, streams: Sequence[int]) -> FetchWaiter:
        """A watch that hears of every change of these streams while it is entered."""
        return FetchWaiter(self._board, streams)

    async def find_timestamp(self, stream: int, timestamp_ms: int) -> TimestampMatch | None:
        """The first record whose timestamp is not before this one."""
        domain = self.domain_of(stream)
        state = self.replicas[domain].state
        return await find_timestamp(self._readers[domain], state, stream, timestamp_ms)

    async def max_timestamp(self, stream: int) -> TimestampMatch | None:
        """The first record of those with the greatest timestamp."""
        domain = self.domain_of(stream)
        state = self.replicas[domain].state
        return await find_max_timestamp(self._readers[domain], state, stream)

    def producers(self, stream: int) -> list[ProducerFacts]:
        """The idempotent producers that are known on a stream."""
        return producer_facts(self.replicas[self.domain_of(stream)].state, stream)

    def pieces(self, stream: int) -> list[Piece]:
        """The offset index of a stream, entry by entry."""
        state = self.replicas[self.domain_of(stream)].state
        row = state.streams.row_of.get(stream)
        if row is None:
            return []
        return [piece_of(state, int(entry)) for entry in state.index.rows(state.streams, row)]

    async def create_streams(
        self, topic: TopicId, *, first_partition: int, streams: Sequence[int]
    ) -> None:
        """Make these streams, which are the topic's partitions from the first one given on."""
        events: list[tuple[int, Event]] = []
        for domain, numbers in self._by_domain(streams).items():
            # A record names partitions as a run; in several domains they do not adjoin.
            for run in _runs(numbers):
                ids = np.array([streams[at] for at in run], dtype=np.int64)
                events.append((domain, Create(topic, first_partition + run[0], ids)))
        await self._submit_all(events)

    async def drop_streams(self, streams: Sequence[int]) -> None:
        """Forget these streams and everything in them."""
        events: list[tuple[int, Event]] = []
        for domain, numbers in self._by_domain(streams).items():
            for start in range(0, len(numbers), STREAMS_PER_RECORD):
                some = numbers[start : start + STREAMS_PER_RECORD]
                ids = np.array([streams[at] for at in some], dtype=np.int64)
                events.append((domain, Drop(ids)))
        await self._submit_all(events)

    async def trim(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Move log starts forward; returns where they are then, -1 for unknown streams."""
        streams = list(offsets)
        after: dict[int, int] = {}
        for domain, numbers in self._by_domain(streams).items():
            ids = [streams[at] for at in numbers]
            values = np.array([offsets[stream] for stream in ids], dtype=np.int64)
            event = Trim(np.array(ids, dtype=np.int64), values)
            outcome = await self.replicas[domain].submit(event)
            assert isinstance(outcome, Trimmed), outcome
            after |= zip(ids, outcome.log_starts.tolist(), strict=True)
        return after

    async def swap(self, event: Swap, *, deadline_s: float) -> Swapped:
        """Put a file in the place of entries; past the deadline that is `OutcomeUnknown`."""
        replica = self.replicas[self.domain_of(event.stream)]
        outcome = replica.submit(event)
        left_s = deadline_s - self._clock.monotonic_s()
        await asyncio.wait([outcome], timeout=max(0.0, left_s))
        if not outcome.done():
            replica.withdraw(outcome)
            raise OutcomeUnknown("the swap was not applied in time")
        swapped = outcome.result()
        assert isinstance(swapped, Swapped), swapped
        return swapped

    async def write(
        self, request: IdempotentWrite, *, deadline_s: float
    ) -> tuple[WrittenDomain, ...]:
        """Make objects that others put visible, each domain's at once, and once (X1, X2)."""
        return await self.writes.write(request, deadline_s=deadline_s)

    async def _registered(self) -> Sequence[str]:
        return await self.writes.registered()

    def _by_domain(self, streams: Sequence[int]) -> dict[int, list[int]]:
        places: dict[int, list[int]] = {}
        for place, stream in enumerate(streams):
            places.setdefault(self.domain_of(stream), []).append(place)
        return places

    async def _submit_all(self, events: Sequence[tuple[int, Event]]) -> None:
        waiting: list[asyncio.Future[Outcome]] = [
            self.replicas[domain].submit(event) for domain, event in events
        ]
        await asyncio.gather(*waiting)

    def _tell(self, applied: Applied) -> None:
        """Wake those who watch the streams that a record changed."""
        for event in applied.record.events if self._board else ():
            self._board.notify(changed_streams(event))

    async def _within(self, deadline_s: float, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        try:
            async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())):
                return await work
        except TimeoutError:
            raise Unavailable("the stores did not answer in time") from None


async def _together(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    for coroutine in work:
        await coroutine


def _settle(outcome: "asyncio.Future[Appended]", settled: Settled) -> None:
    if outcome.done():
        return  # whoever waited has gone; the append went on
    if isinstance(settled, Failure):
        outcome.set_exception(settled)
        outcome.exception()  # nobody may be listening any more; that is not an error
    else:
        outcome.set_result(settled)


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    """Adjoining numbers together, each run small enough for one record."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1 and len(runs[-1]) < STREAMS_PER_RECORD:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
