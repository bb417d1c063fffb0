"""The groups of one domain as this broker sees them: what changed, whether we may speak for them.

Each record that touches a group is looked at once, after it was applied, and the group is compared
with what it was: whoever wants to know hears of the difference. A reload is the same for all groups
at once (K1). We speak for groups only while nobody can hold that we are gone and somebody vouched
for our state lately (K6).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lakelog.clock import Clock, Entropy
from lakelog.coordinator.changes import Change, change_of
from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.outbox import Outbox
from lakelog.coordinator.ports import Brokers
from lakelog.domain.events import Event, GroupChange
from lakelog.domain.outcomes import Applied
from lakelog.domain.replica import Replica
from lakelog.groups.parts import PARTS_LEVEL, GroupPart
from lakelog.groups.state import Group
from lakelog.groups.table import GroupTable
from lakelog.log.levels import Registered, raise_level
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.telemetry import event as log_event

PROOF_S: Final = 5.0
"""How long a proof of currency may take."""

UPGRADE_PAUSE_S: Final = 10.0
"""The least time between two attempts to have parts of events understood."""

_log = logging.getLogger("lakelog.coordinator")


class Desk:
    """One domain's groups."""

    def __init__(
        self,
        replica: Replica,
        brokers: Brokers,
        clock: Clock,
        entropy: Entropy,
        options: GroupOptions,
    ) -> None:
        self.outbox = Outbox(replica, clock, entropy, options)
        self.hearers: list[Callable[[Change], None]] = []
        self.on_reload: list[Callable[[], None]] = []
        self._replica = replica
        self._brokers = brokers
        self._clock = clock
        self._seen: dict[str, Group] = {}

    @property
    def table(self) -> GroupTable:
        """The groups and offsets as applied; another object after a reload."""
        return self._replica.state.groups

    @property
    def position(self) -> int:
        """How far the log is applied."""
        return self._replica.state.position

    def group(self, group_id: str) -> Group | None:
        """The group as it is now."""
        return self._replica.state.groups.groups.get(group_id)

    def open(self) -> None:
        """Follow the domain from here on; every group that there is counts as new."""
        self._replica.listeners.append(self._hear)
        self._replica.on_reload.append(self._reload)
        self._look_at_all()

    def close(self) -> None:
        """Follow it no longer."""
        if self._hear in self._replica.listeners:
            self._replica.listeners.remove(self._hear)
            self._replica.on_reload.remove(self._reload)

    def is_well(self) -> bool:
        """Whether what we say about groups from our own state may be believed."""
        if self._clock.monotonic_s() >= self._brokers.alive_until_s():
            return False
        try:
            self._replica.check_fresh()
        except Unavailable:
            return False
        return True

    async def prove(self, *, arrived_s: float) -> None:
        """Return when everything sent or acknowledged before is applied; raises `Unavailable`."""
        try:
            async with asyncio.timeout(PROOF_S):
                await self.outbox.settled()
                await self._replica.prove(arrived_s=arrived_s)
        except TimeoutError:
            raise Unavailable("the log could not be read in time") from None

    async def follow_level(self, registered: Registered) -> None:
        """Raise the domain's level when an event has to go in parts, once all brokers know it."""
        while True:
            await self.outbox.lacks_level.wait()
            try:
                await raise_level(self._replica, PARTS_LEVEL, registered, self._clock)
            except (Unavailable, OutcomeUnknown) as reason:
                log_event(_log, "large_events_refused", logging.WARNING, reason=str(reason))
            await asyncio.sleep(UPGRADE_PAUSE_S)
            self.outbox.lacks_level.clear()

    def _hear(self, applied: Applied) -> None:
        touched = {
            group_id: None
            for group_id in map(_group_of, applied.record.events)
            if group_id is not None
        }
        for group_id in touched:
            self._look_at(group_id)

    def _reload(self) -> None:
        for callback in self.on_reload:
            callback()
        self._look_at_all()

    def _look_at_all(self) -> None:
        for group_id in {**self._seen, **self.table.groups}:
            self._look_at(group_id)

    def _look_at(self, group_id: str) -> None:
        before = self._seen.get(group_id)
        after = self.group(group_id)
        if after is before:
            return
        if after is None:
            del self._seen[group_id]
        else:
            self._seen[group_id] = after
        change = change_of(group_id, before, after)
        for hearer in self.hearers:
            hearer(change)


def _group_of(event: Event) -> str | None:
    """The group that an event of the log may have changed."""
    if isinstance(event, GroupChange):
        return event.event.group_id
    return event.group_id if isinstance(event, GroupPart) else None
