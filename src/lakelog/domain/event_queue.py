"""The one FIFO of a broker into a domain log: events, their records, and who awaits the outcomes.

Events take their place when they are submitted; whatever waits when an append returns shares the
next record (rule 4). Outcomes come only from the replica that applied the record (rule 6); the
waiters stand in `_pending` before the append begins, because the tail may be quicker than the
reply. The replica appends (`lakelog.domain.replica`): nothing here touches the store.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

from lakelog.domain.envelope import (
    EVENT_OVERHEAD_BYTES,
    EVENTS_MAX,
    OVERHEAD_BYTES_MAX,
    DomainRecord,
    Stamp,
    decode_record,
    pack_record,
)
from lakelog.domain.events import Event, Kind, encode_event, needed_level
from lakelog.domain.state import LEVEL_MAX, Applied, Ignored, Outcome
from lakelog.meta.port import RECORD_BYTES_MAX
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable

EVENT_BYTES_MAX: Final = RECORD_BYTES_MAX - OVERHEAD_BYTES_MAX - EVENT_OVERHEAD_BYTES
"""The greatest event that fits into a record (rule 25)."""


class EventTooLarge(Failure):
    """The event fits into no record and never will: make smaller ones of it."""


@dataclass(frozen=True, slots=True)
class OwnRecord:
    """A record of this broker on its way into the log."""

    number: int
    record: DomainRecord
    data: bytes


@dataclass(frozen=True, slots=True)
class _Queued:
    kind: Kind
    body: bytes
    outcome: "asyncio.Future[Outcome]"


class EventQueue:
    """Makes records of events under one incarnation, and hands out their outcomes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._incarnation: int | None = None
        self._number = 0
        self._queue: deque[_Queued] = deque()
        self._withdrawn: set[asyncio.Future[Outcome]] = set()
        self._pending: dict[int, list[asyncio.Future[Outcome]]] = {}
        self._work = asyncio.Event()

    def begin(self, incarnation: int) -> None:
        """Start over under a new incarnation; what was pending was ended before."""
        assert not self._pending
        self._incarnation = incarnation
        self._number = 0

    def submit(self, event: Event) -> "asyncio.Future[Outcome]":
        """Take the next place; the future ends with the outcome, or with `OutcomeUnknown`.

        Raises `Unavailable`, or `EventTooLarge`.
        """
        if self._incarnation is None:
            raise Unavailable("the domain is being loaded")
        kind, body = encode_event(event)
        if len(body) > EVENT_BYTES_MAX:
            raise EventTooLarge(f"an event of kind {kind} has {len(body)} bytes")
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Queued(kind, body, outcome))
        self._work.set()
        return outcome

    def withdraw(self, outcome: "asyncio.Future[Outcome]") -> None:
        """Nobody wants the event of this outcome any more: if it still waits, it is not written.

        One that is in flight goes on, and is applied or not.
        """
        if not outcome.done():
            self._withdrawn.add(outcome)

    def applied(self, applied: Applied) -> bool:
        """Hear of a record that was applied: if it is ours, its waiters learn the outcomes.

        Returns whether it shows that another process has taken this broker's name over.
        """
        record = applied.record
        if record.writer != self._name or record.stamp.incarnation != self._incarnation:
            return False
        waiters = self._pending.pop(record.stamp.number, None)
        if waiters is None:
            return False  # a repeat of a record whose first copy was seen
        fenced = False
        for waiter, outcome in zip(waiters, applied.outcomes, strict=True):
            fenced = fenced or isinstance(outcome, Ignored)
            if waiter.done():
                continue
            if isinstance(outcome, Ignored):
                waiter.set_exception(OutcomeUnknown("a newer incarnation has taken over"))
            else:
                waiter.set_result(outcome)
        return fenced

    def end(self, reason: str) -> None:
        """Stop appending: what has an unknown outcome keeps it, what waits was never written."""
        self._incarnation = None
        for waiters in self._pending.values():
            _fail(waiters, OutcomeUnknown(reason))
        self._pending.clear()
        _fail([queued.outcome for queued in self._queue], Unavailable(reason))
        self._queue.clear()
        self._withdrawn.clear()

    async def next_record(self) -> OwnRecord:
        """The record to be appended next, when there is one."""
        while True:
            await self._work.wait()
            self._drop_withdrawn()
            if self._queue and self._incarnation is not None:
                return self._next_record()
            self._work.clear()

    def is_pending(self, number: int) -> bool:
        """Whether the record with this number was neither applied nor given up."""
        return number in self._pending

    def _drop_withdrawn(self) -> None:
        if not self._withdrawn:
            return
        gone = [queued.outcome for queued in self._queue if queued.outcome in self._withdrawn]
        kept = [queued for queued in self._queue if queued.outcome not in self._withdrawn]
        self._queue = deque(kept)
        self._withdrawn.clear()
        _fail(gone, Unavailable("it was withdrawn before it was written"))

    def _next_record(self) -> OwnRecord:
        assert self._incarnation is not None
        room = EVENT_BYTES_MAX
        taken: list[_Queued] = []
        while self._queue and len(taken) < EVENTS_MAX and len(self._queue[0].body) <= room:
            queued = self._queue.popleft()
            room -= len(queued.body) + EVENT_OVERHEAD_BYTES
            taken.append(queued)
        self._number += 1
        self._pending[self._number] = [queued.outcome for queued in taken]
        stamp = Stamp(self._incarnation, self._number)
        bodies = [(queued.kind, queued.body) for queued in taken]
        level = needed_level(queued.kind for queued in taken)
        data = pack_record(self._name, stamp, level, bodies)
        # Rule 11: what nobody can read would stop the domain everywhere, so it is read here first.
        return OwnRecord(self._number, decode_record(data, level_max=LEVEL_MAX), data)


def _fail(waiters: list["asyncio.Future[Outcome]"], error: Exception) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
            waiter.exception()  # nobody may be listening any more; that is not an error
