"""What a stream sees of its topics, asked for rarely enough that an idle stream costs nothing.

Spark asks a stream for news ninety times a second. Heads are asked for when the last answer is
older than `POLL_S`, topics when it is older than `TOPICS_S` or when a partition is gone: that is
fewer than 20 questions a second. Who comes earlier waits for that, and does not get the old answer:
so "nothing is new" is always true of a moment after the question, and whoever lets Spark process
all that is available (`processAllAvailable`) has what was written before.

A broker that does not answer is no reason to end a query that runs: questions are asked again for
`PATIENCE_S`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, TypeVar

from lakelog.clock import Clock
from lakelog.index.ports import TopicStreams
from lakelog.lake.read.range_plan import PartitionStream, names_wanted
from lakelog.lake.read.read_request import Matching, Topics
from lakelog.lake.read.topic_source import TopicSource
from lakelog.model.failures import Unavailable
from lakelog.spark.stream_offsets import LivePartitions, live_partitions, wanted_now

POLL_S: Final = 0.06
TOPICS_S: Final = 1.0
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.25
"""Between two questions that were not answered."""

ResultT = TypeVar("ResultT")
Sleep: TypeAlias = Callable[[float], Awaitable[None]]
_log: Final = logging.getLogger(__name__)


class TopicPoller:
    """The partitions that are wanted and what they have, of now or of a moment ago."""

    def __init__(
        self, source: TopicSource, wanted: Topics, clock: Clock, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._source = source
        self._wanted = wanted
        self._clock = clock
        self._sleep = sleep
        self._partitions: tuple[PartitionStream, ...] = ()
        self._listed_s = float("-inf")
        self._live: LivePartitions = {}
        self._polled_s = float("-inf")

    async def current(self) -> LivePartitions:
        """What there is now, or soon; the same object as before if nothing has changed."""
        early_s = self._polled_s + POLL_S - self._clock.monotonic_s()
        if early_s > 0:
            await self._sleep(early_s)
        return await self.patient(self._ask)

    async def fresh(self) -> LivePartitions:
        """What there is now, topics and all, without waiting."""
        self._listed_s = float("-inf")
        return await self.patient(self._ask)

    async def seen(self) -> LivePartitions:
        """What there was when somebody last looked."""
        return self._live if self._polled_s > float("-inf") else await self.fresh()

    async def at(self, names: Sequence[str]) -> LivePartitions:
        """What these topics have now, whether they are wanted or not."""

        async def ask() -> LivePartitions:
            topics = await self._source.index.topics(names)
            partitions = wanted_now(Matching(""), topics)
            return live_partitions(partitions, await self._source.bounds(partitions))

        return await self.patient(ask)

    async def patient(self, ask: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """The answer, however often it must be asked for; raises `Unavailable` in the end."""
        end_s = self._clock.monotonic_s() + PATIENCE_S
        said = ""
        while True:
            try:
                return await ask()
            except Unavailable as reason:
                if self._clock.monotonic_s() >= end_s:
                    raise
                if str(reason) != said:
                    said = str(reason)
                    _log.warning("asked again: %s", reason)
            await self._sleep(PAUSE_S)

    async def _ask(self) -> LivePartitions:
        began_s = self._clock.monotonic_s()
        if began_s - self._listed_s >= TOPICS_S:
            await self._list(began_s)
        bounds = await self._source.bounds(self._partitions) if self._partitions else {}
        if any(one.stream not in bounds for one in self._partitions):
            await self._list(began_s)  # a topic was deleted, and may have been made again
            bounds = await self._source.bounds(self._partitions) if self._partitions else {}
        live = live_partitions(self._partitions, bounds)
        self._live = self._live if live == self._live else live
        self._polled_s = began_s
        return self._live

    async def _list(self, now_s: float) -> None:
        topics: Sequence[TopicStreams]
        topics = await self._source.index.topics(names_wanted(self._wanted))
        self._partitions = wanted_now(self._wanted, topics)
        self._listed_s = now_s
