"""Retention: how far the log start of a stream moves, and when.

Whole entries go, the oldest first: by time when their newest record is too old, by size while what
is left is still as large as asked for. The policy is read, and the state proved current, right
before the record is appended (T6); a Trim only moves forward.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakelog.clock import Clock, agreed_now_ms
from lakelog.domain.events import Trim
from lakelog.domain.replica import Replica
from lakelog.domain.state import DomainState
from lakelog.log.options import CLOCK_HINT, LogOptions
from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.log")
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
