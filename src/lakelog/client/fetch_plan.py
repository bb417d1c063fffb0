"""Which partitions may be asked of which leader, and the fetch request that is made of them. Pure.

A slot is what the fetch scheduler knows of one partition. Those with records to read stand in a
heap, the one to ask first at its top; those at their end stand aside. A slot that was moved or
stopped leaves an entry in the heap that counts for nothing, because its ticket is old.

Versions 4 to the newest, without a session: a consumer whose partitions change with every request
would pay for one. From version 13 on topics are known by their ids alone; a cluster that gives
them none is asked in version 12.
"""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.settings import ClientSettings
from lakelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition's part of a request."""

    index: int
    bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFetch:
    """One request to one leader."""

    partitions: tuple[PlannedPartition, ...]
    bytes_max: int
    is_waiting: bool = False
    """Whether the broker may keep it until records come."""
    has_tail: bool = False
    is_on_demand: bool = False
    """Whether it is sent only because the reader has nothing to give out."""


TOPIC_ID_VERSION: Final = 13


@dataclass(frozen=True, slots=True, eq=False)
class SentPartition:
    """One partition's part of a request that is under way."""

    partition: PartitionState
    version: int
    position: int
    bytes_max: int


InFlight: TypeAlias = dict[tuple[bytes | str, int], SentPartition]
"""The parts of one request, by topic id or name, and partition."""


def has_ids(fetch: PlannedFetch, partitions: Mapping[int, PartitionState]) -> bool:
    """Whether all topics of a request have an id."""
    return all(any(partitions[planned.index].topic_id) for planned in fetch.partitions)


def build_request(
    fetch: PlannedFetch,
    partitions: Mapping[int, PartitionState],
    settings: ClientSettings,
    *,
    version: int,
) -> tuple[FetchRequest, InFlight]:
    """The message, and what is under way with it."""
    topics: dict[bytes | str, list[FetchPartition]] = {}
    sent: InFlight = {}
    for planned in fetch.partitions:
        each = partitions[planned.index]
        key = each.topic_id if version >= TOPIC_ID_VERSION else each.place.topic
        topics.setdefault(key, []).append(
            FetchPartition(
                partition=each.place.partition,
                current_leader_epoch=each.leader_epoch if each.replica is None else -1,
                fetch_offset=each.position,
                partition_max_bytes=planned.bytes_max,
            )
        )
        sent[key, each.place.partition] = SentPartition(
            each, each.version, each.position, planned.bytes_max
        )
    request = FetchRequest(
        max_wait_ms=settings.fetch_wait_max_ms if fetch.is_waiting else 0,
        min_bytes=settings.fetch_min_bytes if fetch.is_waiting else 1,
        max_bytes=min(fetch.bytes_max, settings.fetch_max_bytes),
        isolation_level=int(settings.is_read_committed),
        topics=tuple(_topic(key, each) for key, each in topics.items()),
        rack_id=settings.client_rack,
    )
    return request, sent


def _topic(key: bytes | str, partitions: list[FetchPartition]) -> FetchTopic:
    if isinstance(key, str):
        return FetchTopic(topic=key, partitions=tuple(partitions))
    return FetchTopic(topic_id=key, partitions=tuple(partitions))


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
    """The slots of one leader that may be asked, and what is under way there."""

    ready: list[tuple[Key, int, int]] = field(default_factory=list)
    """A heap of keys, tickets and indexes."""
    tail: dict[int, None] = field(default_factory=dict)
    requests: int = 0
    tail_is_asked: bool = False
    tail_due_s: float = 0.0


class FetchSlots:
    """All slots, and those of each leader that may be asked."""

    def __init__(self) -> None:
        self.leaders: dict[int, LeaderSlots] = {}
        self.behind_count = 0
        self.rate_sum = 0
        """Of those with records to read."""
        self._slots: dict[int, FetchSlot] = {}
        self._tickets = 0
        self._by_time: list[tuple[Key, int]] = []

    def __iter__(self) -> Iterator[FetchSlot]:
        # A copy, because other threads look on.
        return iter(tuple(self._slots.values()))

    def __getitem__(self, index: int) -> FetchSlot:
        return self._slots[index]

    def get(self, index: int) -> FetchSlot | None:
        """The slot of a partition, if it is still there."""
        return self._slots.get(index)

    def add(self, slot: FetchSlot) -> None:
        """A slot more."""
        self._slots[slot.index] = slot
        self.set_behind(slot, is_behind=True)
        self._put(slot)

    def remove(self, index: int) -> None:
        """A slot less."""
        slot = self._slots.pop(index)
        self.set_behind(slot, is_behind=False)
        self.withdraw(slot)

    def set_behind(self, slot: FetchSlot, *, is_behind: bool) -> None:
        """Whether there are records to read."""
        self.behind_count += is_behind - slot.is_behind
        self.rate_sum += (is_behind - slot.is_behind) * slot.rate
        slot.is_behind = is_behind

    # The order of time.

    def advance(self, slot: FetchSlot, frontier_ms: int, wire_bytes: int) -> None:
        """So many bytes of a partition were read, up to this time."""
        if slot.frontier_ms is not None:
            if frontier_ms <= slot.frontier_ms:
                return
            slot.span_ms = frontier_ms - slot.frontier_ms
            before, slot.rate = slot.rate, wire_bytes * 1000 // slot.span_ms + 1
            self.rate_sum += (slot.rate - before) * slot.is_behind
        slot.frontier_ms = frontier_ms
        self._put(slot)

    def forget_time(self, slot: FetchSlot) -> None:
        """Nothing is known of a partition any more."""
        slot.frontier_ms = None
        self._put(slot)

    def wait_for(self, slot: FetchSlot, *, is_waited_for: bool) -> None:
        """Whether others wait for a partition."""
        slot.is_waited_for = is_waited_for
        self._put(slot)

    def least(self) -> FetchSlot | None:
        """The one that all others wait for, if any is waited for."""
        while self._by_time:
            key, index = self._by_time[0]
            slot = self._slots.get(index)
            if slot is not None and slot.is_waited_for and slot.key == key:
                return slot
            heapq.heappop(self._by_time)
        return None

    def _put(self, slot: FetchSlot) -> None:
        if slot.is_waited_for:
            heapq.heappush(self._by_time, (slot.key, slot.index))

    # The order of asking.

    def enter(self, slot: FetchSlot, *, by_time: bool) -> None:
        """Let a slot be asked, if it may be: in the order of time, or after all that wait."""
        if slot.leader is None or slot.is_asked or slot.is_stopped:
            return
        leader = self.leaders.setdefault(slot.leader, LeaderSlots())
        self._tickets += 1
        slot.ticket = self._tickets
        if slot.is_behind:
            key = slot.key if by_time else (0, self._tickets, 0)
            heapq.heappush(leader.ready, (key, slot.ticket, slot.index))
        else:
            leader.tail[slot.index] = None

    def withdraw(self, slot: FetchSlot) -> None:
        """Take a slot out of those that may be asked."""
        slot.ticket = 0
        if slot.leader is not None and slot.leader in self.leaders:
            self.leaders[slot.leader].tail.pop(slot.index, None)

    def ready(self, leader: LeaderSlots) -> Iterator[FetchSlot]:
        """The slots with records of a leader, the first to ask first, each taken out."""
        while leader.ready:
            _, ticket, index = heapq.heappop(leader.ready)
            slot = self._slots.get(index)
            if slot is not None and slot.ticket == ticket:
                yield slot
