"""Garbage: WAL objects that no entry names are deleted, and nothing else ever is.

An id older than the Horizon can never be committed any more, and one that was committed and let go
can never be named again: garbage stays garbage, so no lock is needed. It is deleted only when it
was garbage in two passes one grace apart (C3), seen by a state that was proved current after the
Horizon was applied (rule 19). Nothing relies on the listing for correctness: what it misses stays
until the next pass.
"""

import asyncio
import logging

from lakelog.clock import Clock, agreed_now_ms
from lakelog.domain.events import ExpireProducers, Horizon
from lakelog.domain.milestone import when
from lakelog.domain.replica import Replica
from lakelog.domain.start import wal_keys
from lakelog.domain.write_event import ExpireWrites
from lakelog.log.options import CLOCK_HINT, LogOptions
from lakelog.model.failures import Failure
from lakelog.model.ids import DomainId
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event
from lakelog.wal.ids import parse_object_key, wal_id_time_ms

_log = logging.getLogger("lakelog.log")
DELETES_AT_ONCE = 1000


class Sweeper:
    """Finds and deletes the garbage of one domain."""

    def __init__(
        self, replica: Replica, objects: ObjectStore, clock: Clock, options: LogOptions
    ) -> None:
        self._replica = replica
        self._objects = objects
        self._clock = clock
        self._options = options
        self._suspects: dict[str, float] = {}

    async def run(self) -> None:
        """Sweep for ever, once an interval."""
        while True:
            await asyncio.sleep(self._options.sweep_interval_ms / 1000)
            try:
                await self.sweep_once()
            except Failure as error:
                event(_log, "sweep_failed", logging.WARNING, reason=repr(error))

    async def sweep_once(self) -> int:
        """One pass; returns how many objects were deleted."""
        now_ms = await agreed_now_ms(
            self._clock, self._objects.clock_skew_ms, skew_max_ms=self._options.clock_skew_max_ms
        )
        if now_ms is None:
            event(_log, "clock_differs", logging.ERROR, hint=f"clean-up waits; {CLOCK_HINT}")
            return 0
        if now_ms < self._replica.timeline.sweep_after_ms:
            # A5: objects that only the lost part of the log named look like garbage from here.
            until = when(self._replica.timeline.sweep_after_ms)
            event(_log, "sweep_waits", logging.WARNING, until=until, hint="save what was lost")
            return 0
        await self._replica.submit(Horizon(now_ms - self._options.orphan_ttl_ms))
        await self._replica.submit(ExpireProducers(now_ms - self._options.producer_expiry_ms))
        if self._replica.state.writes:  # there are none before the level that has the event
            await self._replica.submit(ExpireWrites(now_ms - self._options.write_expiry_ms))
        await self._replica.prove(arrived_s=self._clock.monotonic_s())
        garbage = await self._garbage()
        now_s = self._clock.monotonic_s()
        self._suspects = {key: self._suspects.get(key, now_s) for key in garbage}
        # A5: whoever starts from an older copy of the metadata must know what is gone here.
        await self._replica.mark()
        grace_s = self._options.grace_ms / 1000
        condemned = [key for key, since_s in self._suspects.items() if now_s - since_s >= grace_s]
        for start in range(0, len(condemned), DELETES_AT_ONCE):
            await self._objects.delete(condemned[start : start + DELETES_AT_ONCE])
        if condemned:
            event(_log, "swept", objects=len(condemned), domain=self._replica.identity.domain)
        return len(condemned)

    async def _garbage(self) -> list[str]:
        """Objects of this domain older than the Horizon that no entry names, now."""
        domain = DomainId(self._replica.identity.domain)
        horizon_ms = self._replica.state.horizon_ms
        old: list[str] = []
        async for info in self._objects.list("wal/v1/"):
            place = parse_object_key(info.key)
            if place is None or place.domain != domain:
                continue
            if wal_id_time_ms(place.wal_id) < horizon_ms:
                old.append(info.key)
        # After the listing: an object named meanwhile must not be taken for garbage.
        await self._replica.prove(arrived_s=self._clock.monotonic_s())
        named = wal_keys(self._replica.state)
        return [key for key in old if key not in named]
