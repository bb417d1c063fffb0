"""What leaves the log: records by retention, and WAL objects that no entry names any more.

Whole entries go, the oldest first: by time when their newest record is too old, by size while what
is left is still as large as asked for. The policy is read, and the state proved current, right
before the record is appended (T6); a Trim only moves forward.

An id older than the Horizon can never be committed any more, and one that was committed and let go
can never be named again: garbage stays garbage, so no lock is needed. It is deleted only when it
was garbage in two passes one grace apart (C3), seen by a state that was proved current after the
Horizon was applied (rule 19). Nothing relies on the listing for correctness: what it misses stays
until the next pass.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakelog.clock import Clock, agreed_now_ms
from lakelog.domain.commit_event import ExpireWrites
from lakelog.domain.events import ExpireProducers, Horizon, Trim
from lakelog.domain.milestone import when
from lakelog.domain.replica import Replica
from lakelog.domain.start import wal_keys
from lakelog.domain.state import DomainState
from lakelog.log.options import CLOCK_HINT, LogOptions
from lakelog.model.failures import Failure
from lakelog.model.ids import DomainId
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event
from lakelog.wal.layout import parse_object_key, wal_id_time_ms

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


TRIMS_PER_RECORD = 10_000
"""Streams that one Trim moves: 16 bytes each, far below a record's limit."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a stream keeps; -1 is without limit."""

    retention_ms: int
    retention_bytes: int


Policies = Callable[[], Awaitable[Mapping[int, Policy]]]


def log_start_after(
    policy: Policy,
    *,
    ends: npt.NDArray[np.int64],
    timestamps: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    now_ms: int,
) -> int:
    """Where the log starts once the oldest entries are gone; 0 when all of them stay."""
    count = len(ends)
    too_old = 0
    if policy.retention_ms >= 0:
        young = np.flatnonzero(timestamps >= now_ms - policy.retention_ms)
        too_old = int(young[0]) if len(young) else count
    too_many = 0
    if policy.retention_bytes >= 0:
        left = int(sizes.sum()) - np.cumsum(sizes)
        enough = np.flatnonzero(left < policy.retention_bytes)
        too_many = int(enough[0]) if len(enough) else count
    gone = max(too_old, too_many)
    return int(ends[gone - 1]) if gone else 0


def plan_trim(state: DomainState, policies: Mapping[int, Policy], *, now_ms: int) -> Trim | None:
    """The streams whose log start moves now, or None."""
    moved: dict[int, int] = {}
    columns = state.index.columns
    for stream, policy in sorted(policies.items()):
        row = state.streams.row_of.get(stream)
        if row is None or (policy.retention_ms < 0 and policy.retention_bytes < 0):
            continue
        rows = state.index.rows(state.streams, row)
        start = log_start_after(
            policy,
            ends=columns["end"][rows],
            timestamps=columns["max_timestamp"][rows],
            sizes=columns["byte_length"][rows],
            now_ms=now_ms,
        )
        if start > int(state.streams.columns.arrays["log_start"][row]):
            moved[stream] = start
    if not moved:
        return None
    some = list(moved.items())[:TRIMS_PER_RECORD]
    return Trim(
        np.array([stream for stream, _ in some], dtype=np.int64),
        np.array([start for _, start in some], dtype=np.int64),
    )


class Retention:
    """Applies the policies of a domain's streams from time to time."""

    def __init__(
        self,
        replica: Replica,
        objects: ObjectStore,
        clock: Clock,
        policies: Policies,
        options: LogOptions,
    ) -> None:
        self._replica = replica
        self._objects = objects
        self._clock = clock
        self._policies = policies
        self._options = options

    async def run(self) -> None:
        """Apply retention for ever, once an interval."""
        while True:
            await asyncio.sleep(self._options.retention_interval_ms / 1000)
            try:
                await self.apply_once()
            except Failure as error:
                event(_log, "retention_failed", logging.WARNING, reason=repr(error))

    async def apply_once(self) -> None:
        """Trim what is too old or too large now."""
        # Rule 20: a clock that is a year ahead would trim every topic for good.
        now_ms = await agreed_now_ms(
            self._clock, self._objects.clock_skew_ms, skew_max_ms=self._options.clock_skew_max_ms
        )
        if now_ms is None:
            event(_log, "clock_differs", logging.ERROR, hint=f"retention waits; {CLOCK_HINT}")
            return
        policies = await self._policies()
        await self._replica.prove(arrived_s=self._clock.monotonic_s())
        while trim := plan_trim(self._replica.state, policies, now_ms=now_ms):
            await self._replica.submit(trim)
