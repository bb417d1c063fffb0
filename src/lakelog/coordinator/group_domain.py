"""The groups of one domain as this broker sees them: what changed, whether we may speak for them.

Each record that touches a group is looked at once, after it was applied, and the group is compared
with what it was: whoever wants to know hears of the difference (`GroupDiff`). Groups are values, so
"nothing changed" is "the same object", and the same holds for members. A reload is the same for all
groups at once (K1). We speak for groups only while nobody can hold that we are gone and somebody
vouched for our state lately (K6).

`Outbox` has events on their way into the log of the domain, and what became of each. An event takes
its place in the log's queue before `send` returns (K11). Whoever sent it hears the outcome of
`apply`, or a code: 15 when the outcome is not known or takes too long, -1 when the event is larger
than any may be, 81 or 28 when groups hold too much already. One that is larger than a record goes
in parts, and is seen as a whole with the last of them (K10). Nothing raises for the world's faults.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from lakelog.clock import Clock, Entropy
from lakelog.coordinator.options import Brokers, GroupOptions
from lakelog.domain.event_queue import EventTooLarge
from lakelog.domain.events import Event, GroupChange
from lakelog.domain.replica import Replica
from lakelog.domain.state import Applied, GroupApplied, Outcome
from lakelog.groups.events import GroupEvent, GroupOutcome
from lakelog.groups.parts import PARTS_LEVEL, GroupPart, event_parts
from lakelog.groups.state import ClassicGroup, Group
from lakelog.groups.table import GroupTable
from lakelog.log.writes import Registered, raise_level
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.telemetry import event as log_event


@dataclass(frozen=True, slots=True)
class GroupDiff:
    """A group that is another one now."""

    group_id: str
    before: Group | None
    after: Group | None
    members: tuple[str, ...]
    """The ids of the members that came, went or changed."""

    @property
    def has_moved(self) -> bool:
        """Whether the group is in another phase, so that every member may be concerned."""
        before, after = self.before, self.after
        if not isinstance(before, ClassicGroup) or not isinstance(after, ClassicGroup):
            return True
        return before.state is not after.state or before.generation != after.generation


def diff_groups(group_id: str, before: Group | None, after: Group | None) -> GroupDiff:
    """The difference between two groups of one id."""
    old = {} if before is None else before.members
    new = {} if after is None else after.members
    differing = [name for name, member in new.items() if old.get(name) is not member]
    came = sum(name not in old for name in differing)
    if len(old) + came > len(new):
        differing += [name for name in old if name not in new]
    return GroupDiff(group_id, before, after, tuple(differing))


EventResult: TypeAlias = GroupOutcome | ErrorCode
"""An outcome, or why there is none."""

AnswerT = TypeVar("AnswerT")


@dataclass(slots=True, eq=False)
class _Waiting(Generic[AnswerT]):
    until_s: float
    outcomes: "tuple[asyncio.Future[Outcome], ...]"
    """Of the event, or of all its parts; the last one is the event's."""
    answer: "asyncio.Future[AnswerT]"
    finish: Callable[[EventResult], AnswerT]

    def settle(self, outcome: "asyncio.Future[Outcome]") -> None:
        error = None if outcome.cancelled() else outcome.exception()
        if outcome.cancelled() or isinstance(error, Failure):
            self.give_up()
        elif not self.answer.done():
            judged = outcome.result()
            assert isinstance(judged, GroupApplied), judged
            self.answer.set_result(self.finish(judged.outcome))

    def give_up(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self.finish(ErrorCode.COORDINATOR_NOT_AVAILABLE))


class Outbox:
    """The way of this broker's group events into one domain."""

    def __init__(
        self, replica: Replica, clock: Clock, entropy: Entropy, options: GroupOptions
    ) -> None:
        self.lacks_level = asyncio.Event()
        """Set when an event could not be written because the domain does not know parts yet."""
        self.refusal: Callable[[GroupEvent], ErrorCode | None] = lambda _: None
        """The code for an event that may not be written, because groups hold too much."""
        self._replica = replica
        self._clock = clock
        self._entropy = entropy
        self._options = options
        self._last: asyncio.Future[Outcome] | None = None
        self._waiting: deque[_Waiting[Any]] = deque()

    def send(self, event: GroupEvent) -> "asyncio.Future[EventResult]":
        """Queue the event; the future never fails."""
        return self.request(event, _as_result)

    def request(
        self, event: GroupEvent, finish: Callable[[EventResult], AnswerT]
    ) -> "asyncio.Future[AnswerT]":
        """The same; the answer is what `finish` makes of what is heard."""
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        code = self.refusal(event)
        if code is not None:
            answer.set_result(finish(code))
            return answer
        try:
            outcomes = self._submit(event)
        except EventTooLarge:
            answer.set_result(finish(ErrorCode.UNKNOWN_SERVER_ERROR))
            return answer
        except Unavailable:
            answer.set_result(finish(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return answer
        self._last = outcomes[-1]
        until_s = self._clock.monotonic_s() + self._options.request_timeout_ms / 1000
        waiting = _Waiting(until_s, outcomes, answer, finish)
        self._last.add_done_callback(waiting.settle)
        while self._waiting and self._waiting[0].answer.done():
            self._waiting.popleft()
        self._waiting.append(waiting)
        return answer

    def _submit(self, event: GroupEvent) -> "tuple[asyncio.Future[Outcome], ...]":
        """Queue the event, or one after another all its parts: nothing of ours comes between."""
        try:
            return (self._replica.submit(GroupChange(event)),)
        except EventTooLarge as reason:
            too_large = reason
        options = self._options
        attempt = 1 + self._entropy.below(1 << 62)
        parts = event_parts(event, bytes_max=options.sync_part_bytes_max, attempt=attempt)
        if not parts or sum(len(part.data) for part in parts) > options.sync_bytes_max:
            raise too_large
        if self._replica.state.level < PARTS_LEVEL:
            self.lacks_level.set()
            raise Unavailable("the domain is not at the level yet that knows parts of events")
        return tuple([self._replica.submit(part) for part in parts])

    async def settled(self) -> None:
        """Return when everything that was sent before has an outcome, or never will."""
        if self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    def sweep(self, now_s: float) -> None:
        """Those who waited too long hear 15.

        Their events are taken back if they still wait too: the client asks again, perhaps
        elsewhere, and what lands after that would be old. One in flight may still be taken in.
        """
        waiting = self._waiting
        while waiting and (waiting[0].until_s <= now_s or waiting[0].answer.done()):
            late = waiting.popleft()
            if not late.answer.done():
                for outcome in late.outcomes:
                    self._replica.withdraw(outcome)
                late.give_up()


def _as_result(heard: EventResult) -> EventResult:
    return heard


PROOF_S: Final = 5.0
"""How long a proof of currency may take."""

UPGRADE_PAUSE_S: Final = 10.0
"""The least time between two attempts to have parts of events understood."""

_log = logging.getLogger("lakelog.coordinator")


class GroupDomain:
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
        self.listeners: list[Callable[[GroupDiff], None]] = []
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
        change = diff_groups(group_id, before, after)
        for listener in self.listeners:
            listener(change)


def _group_of(event: Event) -> str | None:
    """The group that an event of the log may have changed."""
    if isinstance(event, GroupChange):
        return event.event.group_id
    return event.group_id if isinstance(event, GroupPart) else None
