"""How much memory the offset index may take, and what producers feel of it (rule 25).

Every broker holds the index of every domain, and it grows until entries are compacted or trimmed;
while the pipeline is down nothing takes them out. So there is a budget:

- From `THROTTLE_SHARE` of it on, a Produce request waits before it takes its place, the longer the
  less room is left. Requests of its connection wait behind it.
- When all of it is taken, produce is refused. Nothing of it was written, and clients repeat it.
- It goes by what the index holds now, so producers go on as soon as entries are gone.

What was accepted before is committed all the same, and so is what other brokers write: the budget
decides who may come in, never what becomes of a record.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from lakelog.clock import Clock
from lakelog.domain.outcomes import Applied
from lakelog.domain.replica import Replica
from lakelog.log.options import LogOptions
from lakelog.model.failures import Unavailable
from lakelog.telemetry import Metrics, event

THROTTLE_SHARE: Final = 0.8
"""The part of the budget that producers get without waiting."""

DEAD_SHARE_MIN: Final = 1 / 16
"""A full index is packed when so much of it is dead: its rows go before producers are refused."""

SAY_AGAIN_S: Final = 10.0
"""How often the log says that producers wait, or are refused."""

_log = logging.getLogger("lakelog.log")


def throttle_ms(held_bytes: int, options: LogOptions) -> int:
    """How long a request waits while the index holds so many bytes; 0 where it need not."""
    free_bytes = int(options.index_bytes_max * THROTTLE_SHARE)
    if held_bytes <= free_bytes:
        return 0
    share = min(1.0, (held_bytes - free_bytes) / (options.index_bytes_max - free_bytes))
    return max(1, round(options.index_throttle_ms_max * share))


class IndexBudget:
    """Lets producers in while the indexes of these replicas have room."""

    def __init__(
        self, replicas: Sequence[Replica], clock: Clock, options: LogOptions, metrics: Metrics
    ) -> None:
        self.throttle_ms = 0
        """How long a request waits now; looked at for each, so it is kept and not computed."""
        self._replicas = replicas
        self._clock = clock
        self._options = options
        self._refusals = metrics.index_refusals
        self._said_s: dict[str, float] = {}
        metrics.index_bytes.set_function(self.held_bytes)
        metrics.index_bytes_max.set(options.index_bytes_max)
        for replica in replicas:
            replica.listeners.append(self._applied)
            replica.on_reload.append(self._measure)
        self._measure()

    def held_bytes(self) -> int:
        """What the indexes hold in memory now."""
        return sum(replica.state.index_bytes() for replica in self._replicas)

    async def admit(self, *, deadline_s: float) -> None:
        """Return when a producer may go on; raises `Unavailable` when there is no room."""
        if not self.throttle_ms:
            return
        left_s = deadline_s - self._clock.monotonic_s()
        self._say("index_throttled", logging.WARNING)
        await asyncio.sleep(max(0.0, min(self.throttle_ms / 1000, left_s)))
        self.check()

    def check(self) -> None:
        """Raise `Unavailable` when there is no room."""
        held_bytes = self.held_bytes()
        if held_bytes < self._options.index_bytes_max:
            return
        self._refusals.inc()
        self._say("index_full", logging.ERROR, refused=self._refusals.value)
        raise Unavailable(
            f"the offset index takes {held_bytes} bytes and {self._options.index_bytes_max} are"
            " allowed (log.index_bytes_max): records come faster than they are compacted or expire"
        )

    def _applied(self, _: Applied) -> None:
        self._measure()

    def _measure(self) -> None:
        held_bytes = self.held_bytes()
        if held_bytes >= self._options.index_bytes_max and self._packed():
            held_bytes = self.held_bytes()
        self.throttle_ms = throttle_ms(held_bytes, self._options)

    def _packed(self) -> bool:
        """Give back the rows of dead entries; whether there were enough to be worth it.

        Packing changes no meaning (rule 13); `apply` does it by itself when half of them are dead.
        """
        sparse = [
            replica.state
            for replica in self._replicas
            if replica.state.index.dead > replica.state.index.columns.count * DEAD_SHARE_MIN
        ]
        for state in sparse:
            state.pack()
        return bool(sparse)

    def _say(self, name: str, level: int, **fields: object) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._said_s.get(name, float("-inf")) < SAY_AGAIN_S:
            return
        self._said_s[name] = now_s
        event(
            _log,
            name,
            level,
            held_bytes=self.held_bytes(),
            bytes_max=self._options.index_bytes_max,
            **fields,
            hint="see that the pipeline runs, keep less, or raise log.index_bytes_max",
        )
