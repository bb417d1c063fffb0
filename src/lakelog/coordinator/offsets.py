"""Committed offsets on their way into the log, and out of it when nobody needs them any more.

Commits of many members share records, because they share the queue of their domain. One that is
larger than a record goes in parts; each part is judged on its own, and the client hears the first
that is refused: what was taken in before is no harm, the client commits it again.

Which offsets nobody needs is as in Kafka (`expired`, pure): an offset goes when it was not
committed again for the time of retention and no live member reads its topic; while a group is
empty, the time begins when it became so, if that is later. When a group became empty is nowhere
written (no times are compared in `apply`), so each broker counts from when it saw it: after a
restart offsets stay longer, never shorter. Offsets of topics that are gone go at once (K12).

They are forgotten by the first broker of each group, now and then. Nothing is forgotten by a clock
that is wrong (rule 20), from a state that nobody vouched for, or because a topic was missing in one
look at the topics: it must be missing in two.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from lakelog.clock import Clock
from lakelog.coordinator.group_domain import EventResult, GroupDiff, GroupDomain
from lakelog.coordinator.member_expiry import GROUPS_AT_ONCE, rank_of
from lakelog.coordinator.options import Brokers, GroupOptions, TopicLookup
from lakelog.domain.event_queue import EVENT_BYTES_MAX
from lakelog.groups.events import CommitOffsets, ExpireOffsets, GroupEventResult, encode_group_event
from lakelog.groups.routing import subscribed
from lakelog.groups.state import ClassicGroup, ClassicState, CommittedOffset, Group
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure
from lakelog.telemetry import Count, event

ROW_BYTES_MAX: Final = 64
"""An offset without its text: a topic id, four numbers, and what encloses them."""

CHARACTER_BYTES_MAX: Final = 4


class OffsetCommits:
    """Takes commits in."""

    def __init__(self, renew: Callable[[str, str], None], committed: Count) -> None:
        self._renew = renew
        self._committed = committed

    def commit(self, domain: GroupDomain, event: CommitOffsets) -> "asyncio.Future[ErrorCode]":
        """What the client hears; the event is queued before this returns."""
        parts = commit_parts(event, bytes_max=EVENT_BYTES_MAX)
        answers = [
            domain.outbox.request(part, partial(self._finish, domain, part)) for part in parts
        ]
        return answers[0] if len(answers) == 1 else _first_refusal(answers)

    def _finish(self, domain: GroupDomain, event: CommitOffsets, heard: EventResult) -> ErrorCode:
        if not isinstance(heard, GroupEventResult):
            return heard if isinstance(heard, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
        if heard.code is ErrorCode.NONE:
            self._committed.inc(len(event.offsets))
            # A classic member that commits is alive; one of a consumer group has to say so.
            if isinstance(domain.group(event.group_id), ClassicGroup):
                self._renew(event.group_id, event.member_id)
        return heard.code


def commit_parts(event: CommitOffsets, *, bytes_max: int) -> tuple[CommitOffsets, ...]:
    """The commit in events that are not larger than this, as far as single offsets allow."""
    # Measuring is encoding, so it is done only where a bound leaves doubt.
    if _bound_bytes(event) <= bytes_max or len(event.offsets) <= 1:
        return (event,)
    if len(encode_group_event(event)) <= bytes_max:
        return (event,)
    half = len(event.offsets) // 2
    halves = (event.offsets[:half], event.offsets[half:])
    return tuple(
        part
        for offsets in halves
        for part in commit_parts(replace(event, offsets=offsets), bytes_max=bytes_max)
    )


def _bound_bytes(event: CommitOffsets) -> int:
    """What the event surely does not exceed."""
    names = len(event.group_id) + len(event.member_id) + len(event.instance_id or "")
    characters = names + sum(len(row[4]) for row in event.offsets)
    return ROW_BYTES_MAX * (1 + len(event.offsets)) + CHARACTER_BYTES_MAX * characters


def _first_refusal(answers: "list[asyncio.Future[ErrorCode]]") -> "asyncio.Future[ErrorCode]":
    """A future of the first code that is not NONE, once all are there."""
    whole: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    missing = len(answers)

    def count(_: "asyncio.Future[ErrorCode]") -> None:
        nonlocal missing
        missing -= 1
        if missing == 0 and not whole.done():
            codes = [answer.result() for answer in answers]
            refused = [code for code in codes if code is not ErrorCode.NONE]
            whole.set_result(refused[0] if refused else ErrorCode.NONE)

    for answer in answers:
        answer.add_done_callback(count)
    return whole


ExpiredOffset = tuple[bytes, str, int]
"""A topic's id, its name ("" for a topic that is gone) and a partition."""


@dataclass(frozen=True, slots=True)
class RetentionCheck:
    """What one look at all offsets goes by."""

    now_ms: int
    retention_ms: int
    names: Mapping[bytes, str]
    """The topics that there are: id -> name."""
    gone: Set[bytes]
    """The ids of topics that are not there, and were not when we looked last."""


def expired(
    group: Group,
    offsets: Mapping[tuple[bytes, int], CommittedOffset],
    moment: RetentionCheck,
    *,
    empty_for_ms: int,
) -> tuple[ExpiredOffset, ...]:
    """The offsets of the group to forget; `empty_for_ms` is how long we saw it without members."""
    is_due = _can_expire(group, moment, empty_for_ms=empty_for_ms)
    read = (subscribed(group) or frozenset()) if group.members else frozenset()
    cutoff_ms = moment.now_ms - moment.retention_ms
    found = []
    for (topic, partition), committed in offsets.items():
        name = moment.names.get(topic)
        if name is None:
            if topic in moment.gone:
                found.append((topic, "", partition))
        elif is_due and name not in read and committed.time_ms < cutoff_ms:
            found.append((topic, name, partition))
    return tuple(found)


def _can_expire(group: Group, moment: RetentionCheck, *, empty_for_ms: int) -> bool:
    """Whether offsets of this group may be forgotten for their age."""
    if not group.members:
        is_simple = isinstance(group, ClassicGroup) and not group.protocol_type
        return is_simple or empty_for_ms >= moment.retention_ms
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.STABLE and subscribed(group) is not None
    return True


PLACES_MAX: Final = 4096
"""How many offsets one event forgets."""

_log = logging.getLogger("lakelog.coordinator")


async def _trust() -> bool:
    return True


class OffsetRetention:
    """The expiry of offsets, for the groups of all domains."""

    def __init__(
        self,
        domains: Sequence[GroupDomain],
        brokers: Brokers,
        book: TopicLookup,
        clock: Clock,
        options: GroupOptions,
    ) -> None:
        self.is_clock_right: Callable[[], Awaitable[bool]] = _trust
        """Whether our clock is that of the object store, nearly; asked before each look."""
        self._domains = domains
        self._brokers = brokers
        self._book = book
        self._clock = clock
        self._options = options
        self._empty_since_s: dict[str, float] = {}
        self._missing: frozenset[bytes] = frozenset()
        for domain in domains:
            domain.listeners.append(self._see)

    async def run(self) -> None:
        """Look for what is expired for ever, once an interval."""
        while True:
            await asyncio.sleep(self._options.offsets_retention_check_ms / 1000)
            try:
                await self.look_once()
            except Failure as reason:
                event(_log, "offsets_expiry_failed", logging.WARNING, reason=repr(reason))

    async def look_once(self) -> None:
        """Forget what is expired now."""
        if not await self.is_clock_right():
            event(_log, "clock_differs", logging.ERROR, hint="set the clock; offsets stay")
            return
        names = {bytes(topic): name for name, (topic, _) in self._book.topics().items()}
        missing: set[bytes] = set()
        moment = RetentionCheck(
            now_ms=self._clock.now_ms(),
            retention_ms=self._options.offsets_retention_ms,
            names=names,
            gone=self._missing,
        )
        for domain in self._domains:
            await domain.prove(arrived_s=self._clock.monotonic_s())
            await self._look_at(domain, moment, missing)
        self._missing = frozenset(missing)

    async def _look_at(
        self, domain: GroupDomain, moment: RetentionCheck, missing: set[bytes]
    ) -> None:
        for number, group_id in enumerate(list(domain.table.groups)):
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            offsets = domain.table.offsets.get(group_id, {})
            missing.update(topic for topic, _ in offsets if topic not in moment.names)
            ranked = self._brokers.ranked(group_id)
            if rank_of(ranked, self._brokers.own_id) == 0 and domain.is_well():
                self._forget(domain, group_id, moment)

    def _forget(self, domain: GroupDomain, group_id: str, moment: RetentionCheck) -> None:
        group = domain.group(group_id)
        if group is None:
            return
        offsets = domain.table.offsets.get(group_id, {})
        empty_for_ms = self._empty_for_ms(group_id)
        places = expired(group, offsets, moment, empty_for_ms=empty_for_ms)
        is_idle = not offsets and empty_for_ms >= self._options.offsets_retention_check_ms
        if places or (is_idle and not group.members):
            for part in _parts(places):
                domain.outbox.send(ExpireOffsets(group_id, part, domain.position))
            event(_log, "offsets_expired", group=group_id, count=len(places))

    def _empty_for_ms(self, group_id: str) -> int:
        since_s = self._empty_since_s.get(group_id)
        return 0 if since_s is None else int((self._clock.monotonic_s() - since_s) * 1000)

    def _see(self, change: GroupDiff) -> None:
        if change.after is None or change.after.members:
            self._empty_since_s.pop(change.group_id, None)
        else:
            self._empty_since_s.setdefault(change.group_id, self._clock.monotonic_s())


def _parts(places: tuple[ExpiredOffset, ...]) -> list[tuple[ExpiredOffset, ...]]:
    """The places in events of a bounded size; one without places clears an empty group."""
    starts = range(0, max(1, len(places)), PLACES_MAX)
    return [places[start : start + PLACES_MAX] for start in starts]
