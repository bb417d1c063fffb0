"""The partitions that may be asked, by leader and in their order. Pure.

A lane is what the flow knows of one partition. Those with records to read stand in a heap, the one
to ask first at its top; those at their end stand aside. A lane that was moved or stopped leaves an
entry in the heap that counts for nothing, because its ticket is old.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Key: TypeAlias = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class FetchSlot:
    """One partition."""

    index: int
    leader: int | None = None
    frontier_ms: int | None = None
    """The newest time that was read; None before the first record."""
    span_ms: int = 0
    """How much newer the last answer was than the one before."""
    rate: int = 0
    """How many bytes of it are a second of its history; 0 if that is not known."""
    batch_bytes: int = 0
    """The largest batch of the last answer: less is not worth to ask for."""
    empty_answers: int = 0
    """In a row, though there are records."""
    is_behind: bool = False
    is_waited_for: bool = True
    is_asked: bool = False
    is_stopped: bool = False
    is_paused: bool = False
    ticket: int = 0

    @property
    def key(self) -> Key:
        """Least time first; before all those that have shown none."""
        if self.frontier_ms is None:
            return (0, 0, self.index)
        return (1, self.frontier_ms, self.index)

    def is_near(self, least: "FetchSlot") -> bool:
        """Whether it is hardly further than the least of all, whose next answer may pass it."""
        if self.frontier_ms is None or least.frontier_ms is None:
            return self.frontier_ms is None
        return self.frontier_ms - least.frontier_ms <= least.span_ms


@dataclass(slots=True)
class LeaderSlots:
    """The lanes of one leader that may be asked, and what is under way there."""

    ready: list[tuple[Key, int, int]] = field(default_factory=list)
    """A heap of keys, tickets and indexes."""
    tail: dict[int, None] = field(default_factory=dict)
    requests: int = 0
    tail_is_asked: bool = False
    tail_due_s: float = 0.0


class FetchSlots:
    """All lanes, and those of each leader that may be asked."""

    def __init__(self) -> None:
        self.leaders: dict[int, LeaderSlots] = {}
        self.behind_count = 0
        self.rate_sum = 0
        """Of those with records to read."""
        self._lanes: dict[int, FetchSlot] = {}
        self._tickets = 0
        self._by_time: list[tuple[Key, int]] = []

    def __iter__(self) -> Iterator[FetchSlot]:
        # A copy, because other threads look on.
        return iter(tuple(self._lanes.values()))

    def __getitem__(self, index: int) -> FetchSlot:
        return self._lanes[index]

    def get(self, index: int) -> FetchSlot | None:
        """The lane of a partition, if it is still there."""
        return self._lanes.get(index)

    def add(self, lane: FetchSlot) -> None:
        """A lane more."""
        self._lanes[lane.index] = lane
        self.set_behind(lane, is_behind=True)
        self._put(lane)

    def remove(self, index: int) -> None:
        """A lane less."""
        lane = self._lanes.pop(index)
        self.set_behind(lane, is_behind=False)
        self.withdraw(lane)

    def set_behind(self, lane: FetchSlot, *, is_behind: bool) -> None:
        """Whether there are records to read."""
        self.behind_count += is_behind - lane.is_behind
        self.rate_sum += (is_behind - lane.is_behind) * lane.rate
        lane.is_behind = is_behind

    # The order of time.

    def advance(self, lane: FetchSlot, frontier_ms: int, wire_bytes: int) -> None:
        """So many bytes of a partition were read, up to this time."""
        if lane.frontier_ms is not None:
            if frontier_ms <= lane.frontier_ms:
                return
            lane.span_ms = frontier_ms - lane.frontier_ms
            before, lane.rate = lane.rate, wire_bytes * 1000 // lane.span_ms + 1
            self.rate_sum += (lane.rate - before) * lane.is_behind
        lane.frontier_ms = frontier_ms
        self._put(lane)

    def forget_time(self, lane: FetchSlot) -> None:
        """Nothing is known of a partition any more."""
        lane.frontier_ms = None
        self._put(lane)

    def wait_for(self, lane: FetchSlot, *, is_waited_for: bool) -> None:
        """Whether others wait for a partition."""
        lane.is_waited_for = is_waited_for
        self._put(lane)

    def least(self) -> FetchSlot | None:
        """The one that all others wait for, if any is waited for."""
        while self._by_time:
            key, index = self._by_time[0]
            lane = self._lanes.get(index)
            if lane is not None and lane.is_waited_for and lane.key == key:
                return lane
            heapq.heappop(self._by_time)
        return None

    def _put(self, lane: FetchSlot) -> None:
        if lane.is_waited_for:
            heapq.heappush(self._by_time, (lane.key, lane.index))

    # The order of asking.

    def enter(self, lane: FetchSlot, *, by_time: bool) -> None:
        """Let a lane be asked, if it may be: in the order of time, or after all that wait."""
        if lane.leader is None or lane.is_asked or lane.is_stopped:
            return
        leader = self.leaders.setdefault(lane.leader, LeaderSlots())
        self._tickets += 1
        lane.ticket = self._tickets
        if lane.is_behind:
            key = lane.key if by_time else (0, self._tickets, 0)
            heapq.heappush(leader.ready, (key, lane.ticket, lane.index))
        else:
            leader.tail[lane.index] = None

    def withdraw(self, lane: FetchSlot) -> None:
        """Take a lane out of those that may be asked."""
        lane.ticket = 0
        if lane.leader is not None and lane.leader in self.leaders:
            self.leaders[lane.leader].tail.pop(lane.index, None)

    def ready(self, leader: LeaderSlots) -> Iterator[FetchSlot]:
        """The lanes with records of a leader, the first to ask first, each taken out."""
        while leader.ready:
            _, ticket, index = heapq.heappop(leader.ready)
            lane = self._lanes.get(index)
            if lane is not None and lane.ticket == ticket:
                yield lane
