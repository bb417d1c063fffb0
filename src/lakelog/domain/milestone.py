"""Milestones: what the object store knows of how far a domain log has reached (A5).

A metadata store that is put back from an older copy looks whole: nothing in it says that it was
longer once. So brokers leave that in the object store, one small object each, written over and
over: at their start and their end, while the log grows, and before a sweep. A milestone is
written after the log holds what it says, so that none is ever ahead of a log that lost nothing,
whenever a process or a machine stops.

Where a loss was accepted, the log goes on as another *timeline*, as in PostgreSQL: milestones of
earlier ones say what was lost, and are no reason to refuse any more.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

import msgspec

from lakelog.clock import Clock
from lakelog.domain.state import DomainState
from lakelog.meta import keys
from lakelog.meta.port import MetadataLog, MetadataStore
from lakelog.model.failures import NotFound, OutcomeUnknown, Refused, Unavailable
from lakelog.objects.port import ObjectStore
from lakelog.telemetry import event

FORMAT: Final = 1
ROOT: Final = "milestone/v1"
_SUFFIX: Final = ".json"
_log = logging.getLogger("lakelog.domain")


class Milestone(msgspec.Struct, frozen=True):
    """The log of a domain once held this."""

    format: int
    cluster_id: str
    domain: int
    timeline: int
    position: int
    record: str
    writer: str
    incarnation: int
    number: int
    horizon_ms: int
    time_ms: int


class Timeline(msgspec.Struct, frozen=True):
    """Which history of a domain this is: every loss that is accepted begins another."""

    format: int = FORMAT
    number: int = 1
    start: int = 0
    reached: int = 0
    accepted_ms: int = 0
    sweep_after_ms: int = 0


class Milestones:
    """The milestones of one domain; its own broker's is written, everybody's are read."""

    def __init__(
        self, objects: ObjectStore, log: MetadataLog, clock: Clock, *, domain: int, writer: str
    ) -> None:
        self._objects = objects
        self._log = log
        self._clock = clock
        self._root = f"{ROOT}/domain={domain}/"
        self._domain = domain
        self._writer = writer
        self._position = 0

    def is_due(self, state: DomainState) -> bool:
        """Whether the log has grown since the last one."""
        return state.position > self._position

    async def keep(
        self, marked: Callable[[], tuple[DomainState, Timeline] | None], *, every_ms: int
    ) -> None:
        """Leave one as often as the log has grown, for ever; None: there is nothing to note now."""
        while True:
            await asyncio.sleep(every_ms / 1000)
            await self.try_put(marked())

    async def try_put(self, marked: tuple[DomainState, Timeline] | None) -> None:
        """Leave one if the log has grown since the last; a store that is down is no failure."""
        if marked is None or not self.is_due(marked[0]):
            return
        try:
            await self.put(*marked)
        except (Unavailable, OutcomeUnknown) as error:
            event(_log, "milestone_failed", logging.WARNING, reason=repr(error))

    async def put(self, state: DomainState, timeline: Timeline) -> None:
        """Leave one of the state as it is now; raises `Unavailable` or `OutcomeUnknown`."""
        position, horizon_ms, cluster_id = state.position, state.horizon_ms, state.cluster_id
        stamp = state.writers.get(self._writer)
        if stamp is None or position < self._position:
            return  # a state that is being loaded again: what was noted before says more
        milestone = Milestone(
            format=FORMAT,
            cluster_id=cluster_id,
            domain=self._domain,
            timeline=timeline.number,
            position=position,
            record=await self.record_at(position),
            writer=self._writer,
            incarnation=stamp.incarnation,
            number=stamp.number,
            horizon_ms=horizon_ms,
            time_ms=self._clock.now_ms(),
        )
        key = f"{self._root}{self._writer}{_SUFFIX}"
        await self._objects.put(key, [msgspec.json.encode(milestone)])
        self._position = max(self._position, position)

    async def load(self) -> list[Milestone]:
        """Everybody's; a damaged one says nothing, one of a newer version is `Refused`."""
        found = []
        async for info in self._objects.list(self._root):
            try:
                data = await self._objects.get(info.key)
                milestone = msgspec.json.decode(data, type=Milestone)
            except NotFound:
                continue
            except msgspec.MsgspecError as error:
                event(_log, "milestone_damaged", logging.ERROR, key=info.key, reason=str(error))
                continue
            if milestone.format != FORMAT:
                raise Refused(
                    f"{info.key} has format {milestone.format}, this version knows {FORMAT}:"
                    " a newer version of Lakelog wrote here, use that one"
                )
            found.append(milestone)
        return found

    async def record_at(self, position: int) -> str:
        """The hash of the record at that position, empty when the log does not hold it now."""
        page = await self._log.read(after=position - 1)
        is_there = page.start == position and page.records
        return sha256(page.records[0]).hexdigest() if is_there else ""


async def load_timeline(store: MetadataStore, domain: int) -> tuple[Timeline, int]:
    """The timeline of a domain, and the version of its key; the first one needs no key."""
    found = await store.get(keys.timeline(domain))
    if found is None:
        return Timeline(), 0
    return msgspec.json.decode(found.value, type=Timeline), found.version


async def sweep_after_ms(store: MetadataStore) -> int:
    """Until when nothing may be swept, because a loss was accepted; of all domains."""
    found = await store.range(keys.DOMAINS)
    timelines = [
        msgspec.json.decode(pair.value, type=Timeline)
        for pair in found
        if pair.key.endswith(keys.TIMELINE)
    ]
    return max((timeline.sweep_after_ms for timeline in timelines), default=0)


def contradiction(
    milestones: Sequence[Milestone], timeline: Timeline, state: DomainState, record: str
) -> str | None:
    """What one of them proves against a log that adds up to this state, or None.

    `record` is the hash of what the log holds where the newest of them stands, if it does.
    """
    for milestone in sorted(milestones, key=_age, reverse=True):
        said = f"{milestone.writer} noted at {when(milestone.time_ms)}"
        if milestone.timeline > timeline.number:
            return f"{said} timeline {milestone.timeline}, and this is {timeline.number}"
        if milestone.timeline < timeline.number:
            continue  # its loss was accepted
        if milestone.position > state.position:
            return f"{said} that it had reached {milestone.position}"
        last = state.writers.get(milestone.writer)
        stamp = (milestone.incarnation, milestone.number)
        if last is None or (last.incarnation, last.number) < stamp:
            return f"{said} its record {stamp[0]}.{stamp[1]}, which is not in there"
        if milestone == newest(milestones) and record not in ("", milestone.record):
            return f"{said} another record at {milestone.position}: two logs went on from one copy"
    return None


def newest(milestones: Sequence[Milestone]) -> Milestone | None:
    """The one that is furthest."""
    return max(milestones, key=_age, default=None)


def when(time_ms: int) -> str:
    """A moment for humans: UTC, to the second."""
    seconds, _ = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _age(milestone: Milestone) -> tuple[int, int]:
    return milestone.timeline, milestone.position
