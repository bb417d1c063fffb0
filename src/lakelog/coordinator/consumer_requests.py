"""Heartbeats of consumer groups: answered from our own state if they change nothing (K8).

A heartbeat that changes something is written, and its answer is the outcome. If the group then
needs a target that may come at once, the answer waits for it a little, so that a member that joins
gets its partitions with its first answer, as it does from Kafka. Bad news (unknown, fenced) are
given only after the log was read to its end: our state may be a moment behind.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from lakelog.clock import Clock, Tasks
from lakelog.coordinator.group_domain import EventResult, GroupDomain
from lakelog.coordinator.owner import Owner
from lakelog.coordinator.requests import JOINS
from lakelog.groups.consumer import needs_target
from lakelog.groups.events import ConsumerHeartbeat, ConsumerHeartbeatResult
from lakelog.groups.state import ConsumerGroup
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable

TARGET_S: Final = 2.0
"""How long an answer waits for a target; the member asks again anyway."""

_UNAVAILABLE: Final = ConsumerHeartbeatResult(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator cannot reach its log."
)


class ConsumerRequests:
    """Takes heartbeats in."""

    def __init__(
        self, owner: Owner, clock: Clock, tasks: Tasks, renew: Callable[[str, str], None]
    ) -> None:
        self._owner = owner
        self._clock = clock
        self._tasks = tasks
        self._renew = renew

    def beat(
        self, domain: GroupDomain, event: ConsumerHeartbeat
    ) -> "asyncio.Future[ConsumerHeartbeatResult]":
        """The answer to a heartbeat; what is to be written is queued before this returns."""
        if not domain.is_well():
            return _done(_UNAVAILABLE)
        event = _adopting(domain, event)
        _, outcome, is_changed = domain.table.preview(event)
        assert isinstance(outcome, ConsumerHeartbeatResult), outcome
        if outcome.code is not ErrorCode.NONE:
            return self._tasks.spawn(self._make_sure(domain, event), name="group beat")
        if not is_changed:
            self._renew(event.group_id, outcome.member_id)
            if self._awaits_target(domain, event.group_id):
                return self._tasks.spawn(self._targeted(domain, event), name="group beat")
            return _done(outcome)
        heard = domain.outbox.send(event)
        return self._tasks.spawn(self._written(domain, event, heard), name="group beat")

    async def _make_sure(
        self, domain: GroupDomain, event: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Judge again on a state that is surely current."""
        try:
            await domain.prove(arrived_s=self._clock.monotonic_s())
        except Unavailable:
            return _UNAVAILABLE
        return await self._judge(domain, event)

    async def _targeted(
        self, domain: GroupDomain, event: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """Judge once the target is there that the group needs: the member need not ask again."""
        await self._await_target(event.group_id)
        return await self._judge(domain, event)

    async def _judge(
        self, domain: GroupDomain, event: ConsumerHeartbeat
    ) -> ConsumerHeartbeatResult:
        """The answer by what is known now; the event still names the holder that it met (K4)."""
        _, outcome, is_changed = domain.table.preview(event)
        assert isinstance(outcome, ConsumerHeartbeatResult), outcome
        if is_changed:
            return await self._written(domain, event, domain.outbox.send(event))
        if outcome.code is ErrorCode.NONE:
            self._renew(event.group_id, outcome.member_id)
        return outcome

    async def _written(
        self, domain: GroupDomain, event: ConsumerHeartbeat, heard: "asyncio.Future[EventResult]"
    ) -> ConsumerHeartbeatResult:
        first = _beaten(await heard)
        if first.code is not ErrorCode.NONE:
            return first
        self._renew(event.group_id, first.member_id)
        if event.member_epoch < JOINS:
            return first
        if self._awaits_target(domain, event.group_id):
            await self._await_target(event.group_id)
        group = domain.group(event.group_id)
        if not isinstance(group, ConsumerGroup) or group.target_epoch <= first.epoch:
            return first
        return await self._with_target(domain, event, first)

    def _awaits_target(self, domain: GroupDomain, group_id: str) -> bool:
        group = domain.group(group_id)
        if not isinstance(group, ConsumerGroup) or not needs_target(group):
            return False
        return self._owner.comes_at_once(group_id)

    async def _await_target(self, group_id: str) -> None:
        target = self._owner.settled(group_id)
        await asyncio.wait([target], timeout=TARGET_S)
        target.cancel()  # it may never come

    async def _with_target(
        self, domain: GroupDomain, event: ConsumerHeartbeat, first: ConsumerHeartbeatResult
    ) -> ConsumerHeartbeatResult:
        """What the member would hear if it asked once more, added to what it was to hear."""
        _, second, is_changed = domain.table.preview(_next(event, first))
        if is_changed:
            second = _beaten(await domain.outbox.send(_next(event, first)))
        assert isinstance(second, ConsumerHeartbeatResult), second
        if second.code is not ErrorCode.NONE:
            # What was written may have given partitions: a client that hears of a failure tells
            # everything next time, and is told everything. One that hears of success is not.
            return second if is_changed else first
        if second.assignment is None:
            return replace(second, assignment=first.assignment)
        return second


def _adopting(domain: GroupDomain, event: ConsumerHeartbeat) -> ConsumerHeartbeat:
    """The heartbeat; of a member that another broker holds, with that holder's epoch (K4)."""
    group = domain.group(event.group_id)
    member = None if group is None else group.members.get(event.member_id)
    if member is None or member.holder == event.holder:
        return event
    return replace(event, holder_epoch=member.holder_epoch)


def _next(event: ConsumerHeartbeat, first: ConsumerHeartbeatResult) -> ConsumerHeartbeat:
    """The same member a moment later, with nothing new to tell: a join stays one.

    It may be given partitions, and lets go of none: by now its client may have gone elsewhere and
    have some (P1).
    """
    if event.member_epoch == JOINS:
        return replace(event, owned=None)
    return replace(
        event,
        member_epoch=first.epoch,
        rack_id=None,
        rebalance_timeout_ms=-1,
        names=None,
        pattern=None,
        assignor=None,
        owned=None,
    )


def _beaten(heard: EventResult) -> ConsumerHeartbeatResult:
    if isinstance(heard, ConsumerHeartbeatResult):
        return heard
    if heard is ErrorCode.UNKNOWN_SERVER_ERROR:
        return ConsumerHeartbeatResult(
            heard, "The request is larger than an event of a group may be."
        )
    if heard is ErrorCode.GROUP_MAX_SIZE_REACHED:
        return ConsumerHeartbeatResult(
            heard, "The groups of this cluster hold as much as they may."
        )
    return _UNAVAILABLE


def _done(answer: ConsumerHeartbeatResult) -> "asyncio.Future[ConsumerHeartbeatResult]":
    done: asyncio.Future[ConsumerHeartbeatResult] = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done
