"""What the first broker of a group does for it: targets, patterns, changed topics (K7).

Each broker does this for every group, but the one that is r places behind the group's first waits
r times two seconds longer; by then there is usually nothing left to do. A group gets a target at
most once in an interval, and its first one at once (row 94). A target that comes too late for its
epoch is refused by the group and made again, after a pause that grows with what it cost.

What there is to say is worked out by `owner_events` (pure). Assignments and the meaning of patterns
depend on topics, which are not in the group's domain; so they are worked out here, once, and
written as data (K7). It may take a while for a large group and runs beside the loop: groups and the
map of topics are values.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from lakelog.clock import Clock, Tasks
from lakelog.coordinator.group_domain import EventResult, GroupDiff, GroupDomain
from lakelog.coordinator.member_expiry import GROUPS_AT_ONCE, rank_of
from lakelog.coordinator.options import GroupOptions, Ports
from lakelog.coordinator.timers import RANK_DELAY_S
from lakelog.groups.consumer import (
    fingerprint,
    needs_target,
    subscribed,
    target_event,
    unresolved,
)
from lakelog.groups.consumer_target import PatternError, compile_pattern, matching
from lakelog.groups.events import GroupEventResult, Resolved, TargetAssignment, TopicsChanged
from lakelog.groups.state import ConsumerGroup, Group
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import INTERNAL_TOPICS, TopicId
from lakelog.telemetry import event

Topics = Mapping[str, tuple[TopicId, int]]
"""By name: a topic's id and its number of partitions."""

OwnerEvent = Resolved | TargetAssignment | TopicsChanged
"""What only the owner of a group appends."""


def is_waiting(group: ConsumerGroup) -> bool:
    """Whether members wait for something that the owner has to say."""
    return needs_target(group) or bool(unresolved(group))


def is_concerned(group: ConsumerGroup, changed: Set[str]) -> bool:
    """Whether topics of these names, which changed, may matter to the group."""
    return bool(group.members) and (
        bool(group.resolved) or not changed.isdisjoint(subscribed(group))
    )


def owner_events(
    group: ConsumerGroup, topics: Topics, *, assignor_default: str
) -> tuple[OwnerEvent, ...]:
    """What is to be written now, in this order; nothing if all of it stands already.

    Patterns come first: a target that does not know them would have to be made again.
    """
    if not group.members:
        return ()
    resolutions = _resolutions(group, topics)
    if resolutions:
        return resolutions
    known = {name: topics[name] for name in sorted(subscribed(group)) if name in topics}
    if needs_target(group):
        return (target_event(group, topics=known, assignor_default=assignor_default),)
    seen = fingerprint(known)
    return () if seen == group.fingerprint else (TopicsChanged(group.group_id, seen),)


def _resolutions(group: ConsumerGroup, topics: Topics) -> tuple[Resolved, ...]:
    patterns = dict.fromkeys(member.pattern for member in group.members.values() if member.pattern)
    found = []
    for pattern in patterns:
        names = _matching(pattern, topics)
        if group.resolved.get(pattern) != names:
            found.append(Resolved(group.group_id, pattern, names))
    return tuple(found)


def _matching(pattern: str, topics: Topics) -> tuple[str, ...]:
    try:
        return matching(compile_pattern(pattern), topics.keys() - INTERNAL_TOPICS)
    except PatternError:
        # Another broker let it in; one that cannot read it finds nothing, and says so once.
        return ()


AGAIN_S: Final = 0.1
"""The least pause before a refused target is made again."""

COST_FACTOR: Final = 4.0
"""… and the pause in units of what it took to make it."""

RETRY_S: Final = 1.0
"""The pause while our state cannot be trusted, or nothing can be written."""

BATCH_S: Final = 0.1
"""Changes of topics within this time are looked at together."""

_log = logging.getLogger("lakelog.coordinator")
_TAKEN_IN: Final = GroupEventResult(ErrorCode.NONE)
_TOO_LARGE: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.GROUP_MAX_SIZE_REACHED})


class Owner:
    """The work of group owners, for the groups of all domains."""

    def __init__(
        self,
        domains: Sequence[GroupDomain],
        domain_of: Callable[[str], GroupDomain],
        ports: Ports,
        clock: Clock,
        options: GroupOptions,
    ) -> None:
        self._domains = domains
        self._domain_of = domain_of
        self._brokers = ports.brokers
        self._book = ports.topics
        self._settings = ports.settings
        self._clock = clock
        self._options = options
        self._tasks = Tasks()
        self._alarms: dict[str, tuple[float, asyncio.TimerHandle]] = {}
        self._busy: set[str] = set()
        self._targeted_s: dict[str, float] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._topics: Topics = {}
        self._has_news = asyncio.Event()
        self._is_closed = False
        for domain in domains:
            domain.listeners.append(self._see)

    def start(self) -> None:
        """Begin to work; hears of changed topics from here on."""
        self._topics = self._book.topics()
        self._book.on_change(self._has_news.set)
        self._tasks.spawn(self._follow_topics(), name="group topics")

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    async def close(self) -> None:
        """Work no more."""
        self._is_closed = True
        for _, alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()
        await self._tasks.close()

    def comes_at_once(self, group_id: str) -> bool:
        """Whether a group that needs a target gets it without having to wait for its turn."""
        return self._pause_s(group_id) <= 0.0

    def settled(self, group_id: str) -> "asyncio.Future[None]":
        """A future that is done when the group waits for its owner no longer."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = [other for other in self._waiters.get(group_id, ()) if not other.done()]
        self._waiters[group_id] = [*waiting, waiter]
        return waiter

    def _see(self, change: GroupDiff) -> None:
        group_id, before, after = change.group_id, change.before, change.after
        if not isinstance(after, ConsumerGroup):
            self._targeted_s.pop(group_id, None)
            self._wake(group_id)
            return
        if _has_new_target(before, after):
            self._targeted_s[group_id] = self._clock.monotonic_s()
        if not is_waiting(after):
            self._wake(group_id)
        elif group_id not in self._busy:
            self._look_in(group_id, self._pause_s(group_id))

    def _wake(self, group_id: str) -> None:
        for waiter in self._waiters.pop(group_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _pause_s(self, group_id: str) -> float:
        """How long the group has to wait until it may have another target."""
        last_s = self._targeted_s.get(group_id)
        if last_s is None:
            return 0.0
        due_s = last_s + self._settings.of(group_id).assignment_interval_ms / 1000
        return max(0.0, due_s - self._clock.monotonic_s())

    def _look_in(self, group_id: str, delay_s: float) -> None:
        """Look at the group after so long, later by our place in its order."""
        if self._is_closed:
            return
        rank = rank_of(self._brokers.ranked(group_id), self._brokers.own_id)
        loop = asyncio.get_running_loop()
        when_s = loop.time() + delay_s + rank * RANK_DELAY_S
        earlier = self._alarms.get(group_id)
        if earlier is not None:
            # The time is kept beside the handle: uvloop's handles of the present moment have none.
            if earlier[0] <= when_s:
                return
            earlier[1].cancel()
        self._alarms[group_id] = when_s, loop.call_at(when_s, self._begin, group_id)

    def _begin(self, group_id: str) -> None:
        del self._alarms[group_id]
        if group_id not in self._busy:
            self._busy.add(group_id)
            self._tasks.spawn(self._attend(group_id), name="group owner")

    async def _attend(self, group_id: str) -> None:
        """Say about the group what there is to say, then see whether that was all."""
        try:
            pause_s = await self._attend_once(group_id)
        finally:
            self._busy.discard(group_id)
        group = self._domain_of(group_id).group(group_id)
        if pause_s is None and isinstance(group, ConsumerGroup) and is_waiting(group):
            pause_s = 0.0  # it changed while we were at it
        if pause_s is not None:
            self._look_in(group_id, max(pause_s, self._pause_s(group_id)))

    async def _attend_once(self, group_id: str) -> float | None:
        """Returns after what pause to look again; None if only a change gives reason to."""
        domain = self._domain_of(group_id)
        group = domain.group(group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        if not domain.is_well():
            return RETRY_S
        began_s = self._clock.monotonic_s()
        loop = asyncio.get_running_loop()
        said = await loop.run_in_executor(None, self._work_out, group, self._book.topics())
        cost_s = self._clock.monotonic_s() - began_s
        if not said:
            return None
        sent = [domain.outbox.send(owner_event) for owner_event in said]
        results = [await result for result in sent]
        return self._judge(group_id, results, cost_s=cost_s)

    def _work_out(self, group: ConsumerGroup, topics: Topics) -> tuple[OwnerEvent, ...]:
        assignor = self._options.consumer_assignors[0]
        return owner_events(group, topics, assignor_default=assignor)

    def _judge(self, group_id: str, results: Sequence[EventResult], *, cost_s: float) -> float:
        """After what pause to look at the group again, by what became of what we said."""
        if all(result == _TAKEN_IN for result in results):
            return 0.0  # topics may have changed while the target was made
        if _TOO_LARGE.intersection(result for result in results if isinstance(result, ErrorCode)):
            event(_log, "target_too_large", logging.ERROR, group=group_id)
            self._targeted_s[group_id] = self._clock.monotonic_s()
            return self._options.patterns_refresh_ms / 1000
        if ErrorCode.COORDINATOR_NOT_AVAILABLE in results:
            return RETRY_S
        return max(AGAIN_S, COST_FACTOR * cost_s)

    async def _follow_topics(self) -> None:
        """Look at the groups that changed topics concern; at all groups first and now and then."""
        await self._look_at_groups(None)
        while True:
            try:
                async with asyncio.timeout(self._options.patterns_refresh_ms / 1000):
                    await self._has_news.wait()
            except TimeoutError:
                await self._look_at_groups(None)
                continue
            await asyncio.sleep(BATCH_S)
            self._has_news.clear()
            before, self._topics = self._topics, self._book.topics()
            changed = _differing(before, self._topics)
            if changed:
                await self._look_at_groups(changed)

    async def _look_at_groups(self, changed: frozenset[str] | None) -> None:
        for domain in self._domains:
            for number, group_id in enumerate(list(domain.table.groups)):
                if number % GROUPS_AT_ONCE == GROUPS_AT_ONCE - 1:
                    await asyncio.sleep(0)
                group = domain.group(group_id)
                if not isinstance(group, ConsumerGroup) or not group.members:
                    continue
                if changed is None or is_concerned(group, changed):
                    self._look_in(group_id, self._pause_s(group_id))


def _has_new_target(before: Group | None, after: ConsumerGroup) -> bool:
    """Whether a target was made; that a member's share goes with it is none."""
    if not isinstance(before, ConsumerGroup) or not after.members:
        return False
    return after.target_epoch != before.target_epoch


def _differing(before: Topics, after: Topics) -> frozenset[str]:
    """The names of topics that came, went or are other ones."""
    return frozenset(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
