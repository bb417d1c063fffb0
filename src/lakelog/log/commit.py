"""From accepted batches to acknowledged offsets, for one domain (rule 4).

Objects are put in parallel, but committed in the order they were closed: a commit enters the
domain log's FIFO only when its object is durable and every object closed before it is in that
FIFO or given up (rule 4). From then on a client hears only the outcome of `apply`, a time-out, or
nothing (rule 6, B5). A void commit is answered with a time-out and never written again (rule 7).

An object holds no more batches than its Commit can name (rule 25): what is beyond goes into the
next one, also while all puts are taken. So a request may be in several objects; it is told once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.domain.replica import Replica
from lakelog.domain.state import Committed, Outcome, Verdict
from lakelog.log.buffer import (
    InFlightRequests,
    ObjectBuffer,
    Sealed,
    SplitRequestOutcome,
    Waiter,
    seal,
)
from lakelog.log.cache import CachedObject, TailCache
from lakelog.log.options import LogOptions
from lakelog.log.values import Appended, Settle
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.model.ids import DomainId
from lakelog.objects.port import ObjectStore
from lakelog.records.batch_rows import BatchRows
from lakelog.telemetry import MetricsRegistry, event
from lakelog.wal.layout import PREFIX, TOKEN_BYTES, make_wal_id, object_key, wal_id_time_ms

_log = logging.getLogger("lakelog.log")
_SWEEP_S = 0.1
"""How often waiters whose time is over are looked for."""


@dataclass(slots=True)
class _Closed:
    """An object that takes no more batches, on its way into the log."""

    gathered: ObjectBuffer
    sealed: Sealed
    durable: bool = False
    failure: Failure | None = None
    waiters: list[Waiter] = field(default_factory=list)


class Committer:
    """Gathers batches into WAL objects and commits them."""

    def __init__(  # noqa: PLR0913 - the composition root hands over one of each
        self,
        replica: Replica,
        objects: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        *,
        zone: str,
        options: LogOptions,
        tail: TailCache,
        metrics: MetricsRegistry,
    ) -> None:
        self._replica = replica
        self._objects = objects
        self._clock = clock
        self._entropy = entropy
        self._zone = zone
        self._options = options
        self._tail = tail
        self._metrics = metrics
        self._open = ObjectBuffer()
        self._full: deque[ObjectBuffer] = deque()  # take no more batches, wait for their put
        self._closed: deque[_Closed] = deque()
        self._submitted: dict[_Submitted, None] = {}  # for its order
        self._linger: asyncio.TimerHandle | None = None
        self._in_flight = InFlightRequests()
        self._puts = 0
        self._held_bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()
        self._tasks = Tasks()
        self._stopping = False

    def start(self) -> None:
        """Begin to watch the deadlines of those who wait."""
        self._tasks.spawn(self._expire_waiters(), name="commit deadlines")

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    async def close(self) -> None:
        """Write and commit what was accepted, bounded by the caller's deadline, then stop."""
        self._stopping = True
        try:
            while self._open.parts or self._full or self._closed or self._submitted:
                self._set_aside()
                self._put_due()
                await asyncio.sleep(0.005)
        finally:
            await self._tasks.close()

    def hand_over(
        self, batches: BatchRows, *, deadline_s: float, settle: Settle, requests: int = 1
    ) -> None:
        """Take the next places in the log for these batches (B2); `settle` hears the outcome.

        They came in so many requests; what a request has in another part or domain counts there.
        """
        batches_max = self._options.object_batches_max
        if self._open.batch_count + len(batches) > batches_max:
            self._set_aside()
            self._put_due()
            if len(batches) > batches_max:
                self._hand_over_parts(
                    batches, deadline_s=deadline_s, settle=settle, requests=requests
                )
                return
        opened = self._open
        opened.add_awaited(batches, requests=requests, deadline_s=deadline_s, settle=settle)
        self._held_bytes += batches.size_bytes
        self._in_flight.accept(requests)
        if self._waits_for_nobody(opened):
            self._put_due()
        elif self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(self._options.linger_ms / 1000, self._linger_over)

    def _hand_over_parts(
        self, batches: BatchRows, *, deadline_s: float, settle: Settle, requests: int
    ) -> None:
        """One object after another: they are committed in this order, so the request's holds."""
        step = self._options.object_batches_max
        parts = [
            range(start, min(start + step, len(batches))) for start in range(0, len(batches), step)
        ]
        joined = SplitRequestOutcome(len(batches), len(parts), settle)
        for part in parts:
            self.hand_over(
                batches.slice(part.start, part.stop),
                deadline_s=deadline_s,
                settle=partial(joined.add, part),
                requests=requests if part.start == 0 else 0,
            )

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes may be accepted now; an empty buffer takes any request."""
        held_bytes = self._held_bytes
        return not held_bytes or held_bytes + size_bytes <= self._options.buffer_bytes_max

    async def room(self, size_bytes: int, *, deadline_s: float) -> None:
        """Wait until so many bytes may be accepted; `Unavailable` when the deadline passes."""
        while not self.has_room(size_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(turn)
            try:
                async with asyncio.timeout(max(0.0, deadline_s - self._clock.monotonic_s())):
                    await turn
            except TimeoutError:
                raise Unavailable("the stores take less than producers send") from None

    def _linger_over(self) -> None:
        more_ms = self._open.extend_linger_ms(self._options)
        if more_ms:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(more_ms / 1000, self._linger_over)
        else:
            self._linger = None
            self._put_due()

    def _waits_for_nobody(self, opened: ObjectBuffer) -> bool:
        """Whether the open object is to be written before its linger is over."""
        return opened.is_full(self._options) or (
            self._options.close_early and self._in_flight.are_all_in(opened)
        )

    def _set_aside(self) -> None:
        """The open object takes no more batches; it is written when a put is free."""
        if not self._open.parts:
            return
        self._full.append(self._open)
        self._open = ObjectBuffer()
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _put_due(self) -> None:
        """Write what is due, in order, unless enough is being written: then batches gather."""
        opened = self._open
        is_due = self._linger is None or self._waits_for_nobody(opened)
        if is_due and self._puts + len(self._full) < self._options.puts_max:
            self._set_aside()
        while self._full and self._puts < self._options.puts_max:
            self._close_object(self._full.popleft())

    def _close_object(self, gathered: ObjectBuffer) -> None:
        closed = _Closed(gathered, self._seal(gathered), waiters=gathered.waiters)
        self._closed.append(closed)
        self._puts += 1
        self._tasks.spawn(self._write(closed), name="put WAL object")

    def _seal(self, gathered: ObjectBuffer) -> Sealed:
        """Rule 18: ids stay ahead of the Horizon, also on a broker whose clock is slow."""
        horizon_ms = self._replica.state.horizon_ms
        earliest_ms = horizon_ms + self._options.orphan_ttl_ms if horizon_ms else 0
        now_ms = max(self._clock.now_ms(), earliest_ms)
        return seal(
            gathered,
            wal_id=make_wal_id(now_ms, self._entropy.token(TOKEN_BYTES)),
            domain=DomainId(self._replica.identity.domain),
            zone=self._zone,
            created_ms=now_ms,
        )

    async def _write(self, closed: _Closed) -> None:
        """Put the object until it is durable or given up; then commits may go on."""
        began_s = self._clock.monotonic_s()
        failures = 0
        while not closed.durable and closed.failure is None:
            sealed, domain = closed.sealed, DomainId(self._replica.identity.domain)
            key = object_key(self._zone, domain, sealed.commit.wal_id)
            try:
                await self._objects.put(key, (sealed.data,))
                closed.durable = True
            except (Unavailable, OutcomeUnknown) as error:
                self._metrics.unavailable.labels("objects").inc()
                event(_log, "put_failed", logging.WARNING, key=key, reason=error)
                waited_ms = (self._clock.monotonic_s() - began_s) * 1000
                if waited_ms > self._options.put_give_up_ms:
                    closed.failure = Unavailable(f"the object store took no object: {error}")
                    break
                failures += 1
                await asyncio.sleep(self._options.put_backoff.grown_s(failures))
                self._renew_id(closed)
        self._puts -= 1
        if closed.durable:
            self._metrics.objects_put.inc()
            self._remember(closed.sealed)
        self._submit_ready()
        self._put_due()

    def _renew_id(self, closed: _Closed) -> None:
        """Rule 18: an id that grew old before its first append is replaced (nothing names it)."""
        age_ms = self._clock.now_ms() - wal_id_time_ms(closed.sealed.commit.wal_id)
        if age_ms > self._options.orphan_ttl_ms / 2:
            closed.sealed = self._seal(closed.gathered)

    def _remember(self, sealed: Sealed) -> None:
        """Before the commit, so that whoever hears of it finds the bytes in memory."""
        commit = sealed.commit
        starts = commit.byte_start.astype(np.int64)
        cached = CachedObject(
            sealed.data,
            starts + PREFIX.size,
            starts + commit.byte_length,
            commit.offset_count.astype(np.int64),
        )
        self._tail.put(commit.wal_id, cached)

    def _submit_ready(self) -> None:
        """Hand over what is durable, in the order it was closed."""
        while self._closed and (self._closed[0].durable or self._closed[0].failure is not None):
            closed = self._closed.popleft()
            if closed.failure is None:
                try:
                    outcome = self._replica.submit(closed.sealed.commit)
                except Failure as error:  # nothing was written; whoever waits must hear why
                    closed.failure = error
                else:
                    submitted = _Submitted(closed.sealed, closed.waiters, closed.gathered.requests)
                    self._submitted[submitted] = None
                    outcome.add_done_callback(partial(self._answer, submitted))
            if closed.failure is not None:
                _fail(closed.waiters, closed.failure)
                self._release(closed.sealed, closed.gathered.requests)

    def _answer(self, submitted: "_Submitted", done: "asyncio.Future[Outcome]") -> None:
        self._submitted.pop(submitted, None)
        self._metrics.appends.inc()
        error = done.exception() if not done.cancelled() else OutcomeUnknown("stopped")
        if error is None:
            outcome = done.result()
            assert isinstance(outcome, Committed), outcome
            _tell(submitted, outcome)
        else:
            assert isinstance(error, Failure), error
            _fail(submitted.waiters, error)
        self._release(submitted.sealed, submitted.requests)

    def _release(self, sealed: Sealed, requests: int) -> None:
        self._held_bytes -= sealed.batch_bytes
        self._in_flight.answer(requests)
        while self._room:
            turn = self._room.popleft()
            if not turn.done():
                turn.set_result(None)

    async def _expire_waiters(self) -> None:
        """Whoever waited too long hears that the outcome is unknown; the batches go on."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = self._clock.monotonic_s()
            late = OutcomeUnknown("the request's time is over")
            waiting = [*self._open.waiters]
            for gathered in self._full:
                waiting += gathered.waiters
            for closed in self._closed:
                waiting += closed.waiters
            for submitted in self._submitted:
                waiting += submitted.waiters
            _fail([waiter for waiter in waiting if waiter.deadline_s < now_s], late)


@dataclass(frozen=True, slots=True, eq=False)
class _Submitted:
    """An object whose commit is in the log's FIFO."""

    sealed: Sealed
    waiters: list[Waiter]
    requests: int


def _tell(submitted: _Submitted, outcome: Committed) -> None:
    """Each waiter gets its batches' verdicts, in the order of its request."""
    count = len(outcome.verdicts)
    inverse = np.empty(count, dtype=np.intp)
    inverse[submitted.sealed.order] = np.arange(count)
    verdicts = outcome.verdicts[inverse].tolist()
    offsets = outcome.offsets[inverse].tolist()
    timestamps = outcome.timestamps[inverse].tolist()
    if verdicts[0] == Verdict.VOID:  # then all of them are: an id is older than the Horizon
        _fail(submitted.waiters, OutcomeUnknown("the commit came after its object's time"))
        return
    for waiter in submitted.waiters:
        start, end = waiter.start, waiter.end
        waiter.tell(Appended(verdicts[start:end], offsets[start:end], timestamps[start:end]))


def _fail(waiters: Sequence[Waiter], error: Failure) -> None:
    for waiter in waiters:
        waiter.tell(error)
