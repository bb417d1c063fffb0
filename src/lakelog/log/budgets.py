"""The memory that the offset index and the producer table may take, and what producers feel of it.

Every broker holds the index of every domain, and it grows until entries are compacted or trimmed;
while the pipeline is down nothing takes them out. So there is a budget:

- From `THROTTLE_SHARE` of it on, a Produce request waits before it takes its place, the longer the
  less room is left. Requests of its connection wait behind it.
- When all of it is taken, produce is refused. Nothing of it was written, and clients repeat it.
- It goes by what the index holds now, so producers go on as soon as entries are gone.

What was accepted before is committed all the same, and so is what other brokers write: the budget
decides who may come in, never what becomes of a record.

A row is one producer on one stream. In order, as the table fills:

- When it is nearly full, an event says so, and a domain of an older level, which has room for less
  than the budget, is raised if every broker knows the level that has more.
- Then the rows that wrote nothing for the longest time go before theirs is over: by an
  ExpireProducers with an earlier cutoff, so every replica lets the same rows go. None of them is
  younger than the Horizon: `apply` sees to that, because a late commit could land twice.
- Only when that does not help a producer that is new on its stream is refused, before its batch is
  handed over, and told to try again. Producers that are known are never refused.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from lakelog.clock import Clock
from lakelog.domain.events import ExpireProducers
from lakelog.domain.replica import Replica
from lakelog.domain.state import PRODUCERS_LEVEL, Applied, DomainState
from lakelog.log.options import LogOptions
from lakelog.log.values import ProducerFacts
from lakelog.log.writes import Registered, raise_level
from lakelog.model.failures import Failure, Unavailable
from lakelog.streams.producers import PRODUCER_BYTES, SEQUENCE_END
from lakelog.streams.table import NONE
from lakelog.telemetry import MetricsRegistry, event

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
        self,
        replicas: Sequence[Replica],
        clock: Clock,
        options: LogOptions,
        metrics: MetricsRegistry,
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


WARN_PERCENT: Final = 80
EVICT_PERCENT: Final = 90
EVICT_TO_PERCENT: Final = 75
EVICT_ROWS_MAX: Final = 50_000
"""Rows that one record lets go: `apply` holds up the loop for 0.2 s then (measured)."""

WARN_INTERVAL_S: Final = 600.0
"""A table that stays nearly full is told of this often."""


class ProducerBudget:
    """Lets producers in while there is room, and makes room, for every domain of a broker."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        clock: Clock,
        options: LogOptions,
        metrics: MetricsRegistry,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._options = options
        self._warned_s: dict[int, float] = {}
        for replica in replicas:
            domain = str(replica.identity.domain)
            rows, used_bytes = metrics.producers.labels(domain), metrics.producer_bytes
            rows.set_function(partial(_rows, replica))
            used_bytes.labels(domain).set_function(partial(_used_bytes, replica))
            limit = metrics.producer_bytes_max.labels(domain)
            limit.set_function(partial(self._limit_bytes, replica))

    def takes(self, domain: int, stream: int, producer: int) -> bool:
        """Whether a batch of this producer may be handed over for this stream."""
        state = self._replicas[domain].state
        if len(state.producers) < self._rows_max(state):
            return True
        row = state.streams.row_of.get(stream)
        # What is unknown here `apply` refuses, without a row.
        return row is None or state.producers.row(row, producer) != NONE

    def has_room(self) -> bool:
        """Whether every domain has room for one more, whoever it is."""
        return all(
            len(replica.state.producers) < self._rows_max(replica.state)
            for replica in self._replicas
        )

    async def run(self, registered: Registered) -> None:
        """Look after all tables for ever, once an interval."""
        while True:
            await asyncio.sleep(self._options.producer_check_interval_ms / 1000)
            for replica in self._replicas:
                try:
                    await self.relieve(replica, registered)
                except Failure as error:
                    event(_log, "producers_not_relieved", logging.WARNING, reason=repr(error))

    async def relieve(self, replica: Replica, registered: Registered) -> None:
        """Tell that a table is nearly full, and make room in it."""
        state = replica.state
        used, limit = len(state.producers), self._rows_max(state)
        if used * 100 < limit * WARN_PERCENT:
            self._warned_s.pop(replica.identity.domain, None)
            return
        self._warn(replica)
        is_short = state.producers_max < self._options.producer_bytes_max // PRODUCER_BYTES
        if is_short and state.level < PRODUCERS_LEVEL:
            await raise_level(replica, PRODUCERS_LEVEL, registered, self._clock)
        elif used * 100 >= limit * EVICT_PERCENT:
            await self._evict(replica, used - limit * EVICT_TO_PERCENT // 100)

    async def _evict(self, replica: Replica, count: int) -> None:
        """Let the oldest rows go. The cutoff comes from the state, so no clock is trusted here."""
        table, horizon_ms = replica.state.producers, replica.state.horizon_ms
        cutoff_ms = min(table.cutoff_ms(min(count, EVICT_ROWS_MAX)), horizon_ms)
        old = len(table.older_than(cutoff_ms))
        if old:
            await replica.submit(ExpireProducers(cutoff_ms))
            event(_log, "producers_evicted", domain=replica.identity.domain, rows=old)

    def _warn(self, replica: Replica) -> None:
        domain, now_s = replica.identity.domain, self._clock.monotonic_s()
        if now_s < self._warned_s.get(domain, 0.0):
            return
        self._warned_s[domain] = now_s + WARN_INTERVAL_S
        event(
            _log,
            "producers_nearly_full",
            logging.WARNING,
            domain=domain,
            rows=len(replica.state.producers),
            bytes=replica.state.producers.size_bytes,
            bytes_max=int(self._limit_bytes(replica)),
            hint="raise log.producer_bytes_max, or let fewer producers write to fewer partitions",
        )

    def _rows_max(self, state: DomainState) -> int:
        return min(self._options.producer_bytes_max // PRODUCER_BYTES, state.producers_max)

    def _limit_bytes(self, replica: Replica) -> float:
        return float(self._rows_max(replica.state) * PRODUCER_BYTES)


def producer_facts(state: DomainState, stream: int) -> list[ProducerFacts]:
    """The idempotent producers that are known on a stream."""
    row = state.streams.row_of.get(stream)
    if row is None:
        return []
    found = []
    for producer_row in state.producers.of_stream(row).tolist():
        newest = state.producers.window(producer_row)[-1]
        last = (newest.first + newest.count - 1) % SEQUENCE_END
        producer = int(state.producers.columns.arrays["producer"][producer_row])
        epoch = state.producers.epoch(producer_row)
        found.append(ProducerFacts(producer, epoch, last, newest.timestamp_ms))
    return found


def _rows(replica: Replica) -> float:
    return float(len(replica.state.producers))


def _used_bytes(replica: Replica) -> float:
    return float(replica.state.producers.size_bytes)
