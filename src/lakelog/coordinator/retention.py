"""Forgets offsets that nobody needs, by the first broker of each group, now and then.

Nothing is forgotten by a clock that is wrong (rule 20), from a state that nobody vouched for, or
because a topic was missing in one look at the topics: it must be missing in two.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from lakelog.clock import Clock
from lakelog.coordinator.expiry import Moment, Place, expired
from lakelog.coordinator.group_domain import GroupDiff, GroupDomain
from lakelog.coordinator.member_expiry import GROUPS_AT_ONCE, rank_of
from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.ports import Brokers, TopicBook
from lakelog.groups.events import ExpireOffsets
from lakelog.model.failures import Failure
from lakelog.telemetry import event

PLACES_MAX: Final = 4096
"""How many offsets one event forgets."""

_log = logging.getLogger("lakelog.coordinator")


async def _trust() -> bool:
    return True


class Retention:
    """The expiry of offsets, for the groups of all domains."""

    def __init__(
        self,
        domains: Sequence[GroupDomain],
        brokers: Brokers,
        book: TopicBook,
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
        moment = Moment(
            now_ms=self._clock.now_ms(),
            retention_ms=self._options.offsets_retention_ms,
            names=names,
            gone=self._missing,
        )
        for domain in self._domains:
            await domain.prove(arrived_s=self._clock.monotonic_s())
            await self._look_at(domain, moment, missing)
        self._missing = frozenset(missing)

    async def _look_at(self, domain: GroupDomain, moment: Moment, missing: set[bytes]) -> None:
        for number, group_id in enumerate(list(domain.table.groups)):
            if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                await asyncio.sleep(0)
            offsets = domain.table.offsets.get(group_id, {})
            missing.update(topic for topic, _ in offsets if topic not in moment.names)
            ranked = self._brokers.ranked(group_id)
            if rank_of(ranked, self._brokers.own_id) == 0 and domain.is_well():
                self._forget(domain, group_id, moment)

    def _forget(self, domain: GroupDomain, group_id: str, moment: Moment) -> None:
        group = domain.group(group_id)
        if group is None:
            return
        offsets = domain.table.offsets.get(group_id, {})
        empty_for_ms = self._empty_for_ms(group_id)
        places = expired(group, offsets, moment, empty_for_ms=empty_for_ms)
        is_idle = not offsets and empty_for_ms >= self._options.offsets_retention_check_ms
        if places or (is_idle and not group.members):
            for some in _parts(places):
                domain.outbox.send(ExpireOffsets(group_id, some, domain.position))
            event(_log, "offsets_expired", group=group_id, count=len(places))

    def _empty_for_ms(self, group_id: str) -> int:
        since_s = self._empty_since_s.get(group_id)
        return 0 if since_s is None else int((self._clock.monotonic_s() - since_s) * 1000)

    def _see(self, change: GroupDiff) -> None:
        if change.after is None or change.after.members:
            self._empty_since_s.pop(change.group_id, None)
        else:
            self._empty_since_s.setdefault(change.group_id, self._clock.monotonic_s())


def _parts(places: tuple[Place, ...]) -> list[tuple[Place, ...]]:
    """The places in events of a bounded size; one without places clears an empty group."""
    starts = range(0, max(1, len(places)), PLACES_MAX)
    return [places[start : start + PLACES_MAX] for start in starts]
