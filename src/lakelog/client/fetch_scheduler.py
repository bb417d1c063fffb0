"""Which partitions to ask next, for how much, and which have to wait: memory and order decide.

Rules:

- What is held, under way and being decoded stays below the limits. Bytes on the wire are converted
  by what earlier answers became in memory, so compression is accounted for.
- While history is read in order, the partition whose time is least comes first, those that have
  shown no record yet before all: what is held waits for them. Only two thirds of the limits are
  used so, for prefetch. When they are, all pause. The last third is for a reader with nothing to
  give out (`Demand.ROWS`), while nothing is in flight that could help: the least partition is asked
  then, and those that are hardly further. When it is used up too, the scheduler `is_blocked`: the
  reader gives out what it can, and if it can nothing (`Demand.MUST_PROGRESS`) the least is asked
  alone, beyond the limits. So nothing waits for ever, and nothing is fetched for a reader that does
  not read.
- A partition takes part in one request at a time. Those at their end ride along with the others,
  or, if all of a leader's are there, share one request that the broker keeps until records come.
- No clock and no I/O: the caller says what time it is and sends what is planned.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from lakelog.client.fetch_plan import (
    FetchSlot,
    FetchSlots,
    LeaderSlots,
    PlannedFetch,
    PlannedPartition,
)

KIB: Final = 1024
MIB: Final = 1024 * KIB

CHUNK_BYTES_MIN: Final = 64 * KIB
BATCH_BYTES_MAX: Final = 128 * MIB
"""Nobody writes larger batches; a partition is asked for no more at a time."""

RESERVED_PART: Final = 3
"""A third of the limits is kept for a reader with nothing to give out."""

CHUNKS: Final = 2
"""Two chunks of every partition would fill the limits: smaller ones cost more than they help.

A partition's chunk is as large as its part of the bytes, so that chunks hold about the same time:
one with few records would else be read far ahead, and its rows fill the memory.
"""

ENOUGH_PART: Final = 6
"""A request is sent when a sixth of the limits is free, or the bytes of a whole request."""

REQUESTS_MAX: Final = 3
"""Requests at one leader at a time: one is sent, one received, one decoded."""

TAIL_PAUSE_S: Final = 0.02
"""Partitions at their end are asked again after this long, while others still catch up."""

MEMORY_PER_WIRE: Final = 2.0
ROWS_PER_WIRE: Final = 0.02
"""What a byte becomes, until answers tell: nothing is known of compression then."""

_WEIGHT_OF_THE_PAST: Final = 0.9
_FIRST_WIRE_BYTES: Final = 64 * KIB


class Demand(IntEnum):
    """What the reader needs: the backpressure of one that gives out, seen from the other side."""

    NONE = 0
    ROWS = 1
    """It has nothing to give out."""
    MUST_PROGRESS = 2
    """It has nothing to give out, not even out of order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much may be held, and how large requests are."""

    bytes_max: int
    rows_max: int
    request_bytes: int
    partition_bytes: int
    is_ordered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferUsage:
    """What the reader holds now, decoded, and what it needs."""

    held_bytes: int
    held_rows: int
    demand: Demand


class FetchScheduler:
    """The state of all partitions, and the next request of each leader."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self.is_priming = limits.is_ordered
        self.is_blocked = False
        """Whether memory is full and nothing is under way, as of the last plan."""
        self.is_full = False
        """Whether partitions wait for memory, as of the last plan."""
        self.pauses = 0
        self.resumes = 0
        self._slots = FetchSlots()
        self._asked_wire = 0
        self._decoding_wire = 0
        self._fetches = 0
        self._wire = float(_FIRST_WIRE_BYTES)
        self._memory = MEMORY_PER_WIRE * _FIRST_WIRE_BYTES
        self._rows = ROWS_PER_WIRE * _FIRST_WIRE_BYTES

    # What happens to partitions.

    def add(self, index: int, *, is_waited_for: bool) -> None:
        """A partition that nobody has asked for yet; it is nowhere."""
        self._slots.add(FetchSlot(index, is_waited_for=is_waited_for))

    def remove(self, index: int) -> None:
        """A partition that is read no more."""
        self._slots.remove(index)

    def place(self, index: int, leader: int | None) -> None:
        """Who serves a partition; None if nobody does."""
        slot = self._slots[index]
        if slot.leader != leader:
            self._slots.withdraw(slot)
            slot.leader = leader
            self._enter(slot)

    def stop(self, index: int) -> None:
        """Ask no more for a partition, until `resume`."""
        slot = self._slots[index]
        slot.is_stopped = True
        self._slots.withdraw(slot)
        self._note_paused(slot)

    def resume(self, index: int, *, forget: bool = False) -> None:
        """Ask for a partition again; after a seek nothing is known of it (`forget`)."""
        slot = self._slots[index]
        slot.is_stopped = False
        if forget:
            self._slots.forget_time(slot)
            self._slots.set_behind(slot, is_behind=True)
        self._slots.withdraw(slot)
        self._enter(slot)

    def wait_for(self, index: int, *, is_waited_for: bool) -> None:
        """Whether what is held waits for this partition: not once it is live, or while idle."""
        self._slots.wait_for(self._slots[index], is_waited_for=is_waited_for)

    def end_priming(self) -> None:
        """All history is read: from now on everybody takes turns."""
        if self.is_priming:
            self.is_priming = False
            for slot in self._slots:
                self._slots.withdraw(slot)
                self._enter(slot)

    def leader(self, index: int) -> int | None:
        """Who serves a partition."""
        return self._slots[index].leader

    def paused(self) -> frozenset[int]:
        """The partitions that wait for memory; any thread may ask."""
        return frozenset(slot.index for slot in self._slots if slot.is_paused)

    def is_ahead(self, index: int) -> bool:
        """Whether rows of a partition will be held until others catch up."""
        if not self.is_priming:
            return False
        slot, least = self._slots.get(index), self._slots.least()
        return slot is not None and least is not None and not slot.is_near(least)

    def serves(self, leader: int) -> bool:
        """Whether a leader has partitions that are to be asked."""
        return any(slot.leader == leader and not slot.is_stopped for slot in self._slots)

    # What happens to requests.

    def answered(
        self, index: int, *, frontier_ms: int, wire_bytes: int, batch_bytes: int, is_behind: bool
    ) -> None:
        """Records of a partition came: their newest time, their bytes, and their largest batch."""
        slot = self._slots.get(index)
        if slot is not None:
            slot.is_asked = False
            slot.batch_bytes = batch_bytes
            slot.empty_answers = 0
            self._slots.advance(slot, frontier_ms, wire_bytes)
            self._slots.set_behind(slot, is_behind=is_behind)
            self._enter(slot)

    def answered_empty(self, index: int, *, is_behind: bool) -> None:
        """No record of a partition came."""
        slot = self._slots.get(index)
        if slot is not None:
            slot.is_asked = False
            self._slots.set_behind(slot, is_behind=is_behind)
            self._enter(slot)

    def too_small(self, index: int, bytes_max: int, *, is_certain: bool) -> None:
        """There are records, but no whole batch came: ask for more, if that is why.

        A broker also leaves out partitions when others have filled the answer; the next time it may
        be another one. So the second time in a row counts, unless a part of a batch came.
        """
        slot = self._slots.get(index)
        if slot is not None:
            slot.empty_answers += 1
            if is_certain or slot.empty_answers > 1:
                slot.batch_bytes = min(BATCH_BYTES_MAX, max(slot.batch_bytes, 2 * bytes_max))

    def unanswered(self, index: int) -> None:
        """Nothing was learned of a partition, but it may be asked again."""
        slot = self._slots.get(index)
        if slot is not None:
            slot.is_asked = False
            self._enter(slot)

    def closed(self, leader: int, fetch: PlannedFetch, wire_bytes: int) -> None:
        """A request is over; so many bytes of records came and are being decoded."""
        self._asked_wire -= fetch.bytes_max
        self._decoding_wire += wire_bytes
        self._fetches -= not fetch.is_waiting
        found = self._slots.leaders[leader]
        found.requests -= 1
        if fetch.has_tail:
            found.tail_is_asked = False

    def decoded(self, wire_bytes: int, *, memory_bytes: int, rows: int) -> None:
        """Bytes of an answer became rows: they count as held from now on."""
        self._decoding_wire -= wire_bytes
        if rows:
            self._wire = _WEIGHT_OF_THE_PAST * self._wire + wire_bytes
            self._memory = _WEIGHT_OF_THE_PAST * self._memory + memory_bytes
            self._rows = _WEIGHT_OF_THE_PAST * self._rows + rows

    # What to do next.

    def plan(self, leader: int, usage: BufferUsage, now_s: float) -> PlannedFetch | None:
        """The next request to a leader, which counts as sent; None if it has to wait."""
        found = self._slots.leaders.get(leader)
        self.is_blocked = False
        if found is None or found.requests >= REQUESTS_MAX:
            return None
        whole = self._capacity(0, 0)
        reserve = whole / RESERVED_PART if self.is_priming else 0.0
        left = self._capacity(usage.held_bytes, usage.held_rows)
        room = left - reserve - self._asked_wire - self._decoding_wire
        if room < min(self.limits.request_bytes, whole / ENOUGH_PART):
            self._note_full(is_full=True)
            fetch = self._plan_on_demand(leader, usage.demand, left)
        else:
            self._note_full(is_full=False)
            fetch = self._plan_ahead(leader, found, room, now_s)
        if fetch is not None:
            self._send(found, fetch)
        return fetch

    def tail_due_s(self, leader: int) -> float | None:
        """When partitions at their end are to be asked again beside others; None if none wait."""
        found = self._slots.leaders.get(leader)
        if found is None or not found.tail or found.tail_is_asked or self.is_full:
            return None
        return found.tail_due_s

    def chunk_bytes(self, index: int) -> int:
        """How much of a partition is asked for at a time: of all about the same time."""
        slot = self._slots[index]
        if not self.is_priming:
            return max(self.limits.partition_bytes, slot.batch_bytes)
        part = 1 / max(self._slots.behind_count, 1)
        if slot.rate:
            part = slot.rate / max(self._slots.rate_sum, slot.rate)
        fair = max(CHUNK_BYTES_MIN, int(part * self._capacity(0, 0) / CHUNKS))
        return max(min(self.limits.partition_bytes, fair), slot.batch_bytes)

    def _capacity(self, held_bytes: int, held_rows: int) -> float:
        """How many bytes on the wire fill what the limits leave."""
        by_bytes = (self.limits.bytes_max - held_bytes) * self._wire / self._memory
        by_rows = (self.limits.rows_max - held_rows) * self._wire / self._rows
        return min(by_bytes, by_rows)

    def _plan_ahead(
        self, number: int, leader: LeaderSlots, room: float, now_s: float
    ) -> PlannedFetch | None:
        """A request while there is room."""
        partitions: list[PlannedPartition] = []
        asked = 0
        for slot in self._slots.ready(leader):
            wanted = self.chunk_bytes(slot.index)
            partitions.append(PlannedPartition(slot.index, wanted))
            asked += wanted
            if asked >= self.limits.request_bytes or asked >= room:
                break
        is_waiting = not partitions and not self._any_behind(number)
        tail = self._tail(leader, now_s, is_due=is_waiting)
        if tail:
            # They get what is left: the broker serves partitions as they stand here.
            asked += self.limits.partition_bytes
            partitions += [PlannedPartition(index, self.limits.partition_bytes) for index in tail]
        if not partitions:
            return None
        return PlannedFetch(
            partitions=tuple(partitions),
            bytes_max=asked,
            is_waiting=is_waiting,
            has_tail=bool(tail),
        )

    def _plan_on_demand(self, leader: int, demand: Demand, left: float) -> PlannedFetch | None:
        """The partitions that all others wait for, if nothing under way brings them."""
        is_idle = not self._fetches and not self._decoding_wire
        least = self._slots.least()
        # What is in flight or being decoded may be what the reader waits for.
        if demand is Demand.NONE or not is_idle or not self.is_priming or least is None:
            return None
        near = [slot for slot in self._slots if slot.is_waited_for and slot.is_near(least)]
        if self.chunk_bytes(least.index) > left:
            # The last third is used up: the reader gives out what it can, and only if that is
            # nothing the least is asked alone, beyond the limits. So nothing waits for ever.
            self.is_blocked = demand is Demand.ROWS
            if self.is_blocked:
                return None
            near = [least]
        partitions: list[PlannedPartition] = []
        asked = 0
        for slot in sorted(near, key=lambda slot: slot.key):
            if slot.leader == leader and not slot.is_asked and not slot.is_stopped:
                wanted = self.chunk_bytes(slot.index)
                if partitions and (asked + wanted > left or asked >= self.limits.request_bytes):
                    break
                partitions.append(PlannedPartition(slot.index, wanted))
                asked += wanted
        if not partitions:
            return None
        return PlannedFetch(partitions=tuple(partitions), bytes_max=asked, is_on_demand=True)

    def _tail(self, leader: LeaderSlots, now_s: float, *, is_due: bool) -> tuple[int, ...]:
        """The partitions at their end that are asked now."""
        if not leader.tail or leader.tail_is_asked or not (is_due or now_s >= leader.tail_due_s):
            return ()
        leader.tail_due_s = now_s + TAIL_PAUSE_S
        return tuple(leader.tail)

    def _any_behind(self, leader: int) -> bool:
        return any(slot.is_behind and slot.leader == leader for slot in self._slots)

    def _send(self, leader: LeaderSlots, fetch: PlannedFetch) -> None:
        leader.requests += 1
        leader.tail_is_asked |= fetch.has_tail
        self._asked_wire += fetch.bytes_max
        self._fetches += not fetch.is_waiting
        for planned in fetch.partitions:
            slot = self._slots[planned.index]
            slot.is_asked = True
            self._slots.withdraw(slot)
            self._note_paused(slot)

    def _enter(self, slot: FetchSlot) -> None:
        self._slots.enter(slot, by_time=self.is_priming)
        self._note_paused(slot)

    def _note_full(self, *, is_full: bool) -> None:
        if is_full != self.is_full:
            self.is_full = is_full
            for slot in self._slots:
                self._note_paused(slot)

    def _note_paused(self, slot: FetchSlot) -> None:
        is_paused = self.is_full and not slot.is_asked and not slot.is_stopped
        self.pauses += is_paused > slot.is_paused
        self.resumes += is_paused < slot.is_paused
        slot.is_paused = is_paused
