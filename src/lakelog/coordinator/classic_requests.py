"""What members of classic groups ask: to join, for their assignment, to be known as alive, to go.

A join or sync that was taken in is parked and answered from the group's state. A heartbeat is
answered from our own state, as long as that may be believed; bad news are given only after the log
was read to its end. A heartbeat of a member that another broker holds makes it ours (K4).

`IssuedMemberIds` (pure) are ids that were given out and not used yet (KIP-394). Nothing is written
for such an id: it lives here until its member joins, leaves or takes too long. A broker that
restarts forgets them, and the member is told to ask again (K3).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.coordinator.group_domain import AnswerT, EventResult, GroupDomain
from lakelog.coordinator.member_expiry import MemberKey
from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.requests import (
    JoinRequest,
    SyncRequest,
    check_join,
    join_event,
    minted_classic,
    needs_id_first,
)
from lakelog.coordinator.timers import Deadlines
from lakelog.coordinator.waiting_requests import WaitingJoin, WaitingRequests, WaitingSync
from lakelog.groups.classic import judge_heartbeat
from lakelog.groups.events import (
    Adopt,
    GroupEventResult,
    Join,
    JoinAnswer,
    JoinResult,
    Leave,
    LeaveResult,
    Sync,
    SyncAnswer,
)
from lakelog.groups.parts import sync_parts
from lakelog.groups.state import ClassicGroup, Group
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable

ISSUED_MAX: Final = 100_000
"""Beyond so many the oldest is forgotten: ids cost a client nothing."""


class IssuedMemberIds:
    """The ids that wait for their members."""

    def __init__(self, *, count_max: int = ISSUED_MAX) -> None:
        self._deadlines: Deadlines[MemberKey] = Deadlines()
        self._count_max = count_max

    def __contains__(self, key: MemberKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def give(self, key: MemberKey, *, until_s: float) -> None:
        """Remember that the id was given out."""
        if len(self._deadlines) >= self._count_max:
            self._deadlines.drop(next(iter(self._deadlines)))
        self._deadlines.set(key, until_s)

    def take(self, key: MemberKey) -> bool:
        """Whether the id was waiting; it does so no longer."""
        is_here = key in self._deadlines
        self._deadlines.drop(key)
        return is_here

    def expire(self, now_s: float) -> None:
        """Forget those that took too long."""
        self._deadlines.take_due(now_s)


_GOOD: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a member that is known in its generation hears."""


class ClassicRequests:
    """Takes the requests of classic groups in."""

    def __init__(  # noqa: PLR0913 - the coordinator hands over one of each
        self,
        waiting: WaitingRequests,
        renew: Callable[[str, str], None],
        clock: Clock,
        entropy: Entropy,
        options: GroupOptions,
        *,
        own_id: int,
        tasks: Tasks,
    ) -> None:
        self.issued = IssuedMemberIds()
        self._waiting = waiting
        self._renew = renew
        self._clock = clock
        self._entropy = entropy
        self._options = options
        self._own_id = own_id
        self._tasks = tasks
        self._adopting: set[MemberKey] = set()

    def join(self, domain: GroupDomain, request: JoinRequest) -> "asyncio.Future[JoinAnswer]":
        """The answer to a JoinGroup."""
        code = check_join(request, self._options)
        if code is not ErrorCode.NONE:
            return _done(JoinAnswer(code, request.member_id))
        member_id = request.member_id or minted_classic(self._entropy.token(16), request)
        is_new = not request.member_id or (request.group_id, member_id) in self.issued
        event = join_event(
            request, member_id=member_id, is_new=is_new, holder=self._own_id, options=self._options
        )
        if needs_id_first(request):
            return _done(self._issue(domain, event))
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        parked = WaitingJoin(request, member_id, answer)
        self._waiting.park(parked)
        heard = domain.outbox.send(event)
        heard.add_done_callback(partial(self._joined, parked))
        return answer

    def _issue(self, domain: GroupDomain, event: Join) -> JoinAnswer:
        """Send the member away with an id, unless the group would not take it (KIP-394)."""
        if not domain.is_well():
            return JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        _, outcome, _ = domain.table.preview(event)
        assert isinstance(outcome, JoinResult), outcome
        if outcome.code is not ErrorCode.NONE:
            return JoinAnswer(outcome.code, "")
        until_s = self._clock.monotonic_s() + event.session_timeout_ms / 1000
        self.issued.give((event.group_id, event.member_id), until_s=until_s)
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, event.member_id)

    def _joined(self, parked: WaitingJoin, heard: "asyncio.Future[EventResult]") -> None:
        outcome = heard.result()
        if not isinstance(outcome, JoinResult):
            assert isinstance(outcome, ErrorCode), outcome
            self._waiting.refuse(parked, outcome)
            return
        if outcome.code is not ErrorCode.NONE:
            self._waiting.refuse(parked, outcome.code)
            return
        self.issued.take((parked.request.group_id, parked.member_id))
        self._renew(parked.request.group_id, parked.member_id)
        parked.joined = outcome
        self._waiting.take(parked)

    def sync(self, domain: GroupDomain, request: SyncRequest) -> "asyncio.Future[SyncAnswer]":
        """The answer to a SyncGroup."""
        if not request.group_id:
            return _done(SyncAnswer(ErrorCode.INVALID_GROUP_ID))
        size_bytes = sum(len(name) + len(share) for name, share in request.assignments)
        fits = size_bytes <= self._options.sync_bytes_max
        parts = self._sync_events(domain, request) if fits else ()
        if not parts:
            return _done(SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        parked = WaitingSync(request, answer)
        self._waiting.park(parked)
        all_heard = [domain.outbox.send(part) for part in parts]
        all_heard[-1].add_done_callback(partial(self._synced, parked, all_heard))
        return answer

    def _sync_events(self, domain: GroupDomain, request: SyncRequest) -> tuple[Sync, ...]:
        group = domain.group(request.group_id)
        is_follower = (
            isinstance(group, ClassicGroup)
            and group.generation == request.generation
            and group.leader != request.member_id
        )
        event = Sync(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            generation=request.generation,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=() if is_follower else request.assignments,
        )
        attempt = 1 + self._entropy.below(1 << 62)
        bytes_max = self._options.sync_part_bytes_max
        # One assignment that fits into no part goes as it is: any event may exceed a record.
        return sync_parts(event, bytes_max=bytes_max, attempt=attempt) or (event,)

    def _synced(
        self,
        parked: WaitingSync,
        all_heard: "Sequence[asyncio.Future[EventResult]]",
        _: "asyncio.Future[EventResult]",
    ) -> None:
        for heard in all_heard:
            # The queue is first in, first out: parts before the last one are settled with it.
            outcome = heard.result() if heard.done() else ErrorCode.COORDINATOR_NOT_AVAILABLE
            code = outcome.code if isinstance(outcome, GroupEventResult) else outcome
            if code is not ErrorCode.NONE:
                assert isinstance(code, ErrorCode), code
                self._waiting.refuse(parked, code)
                return
        self._renew(parked.request.group_id, parked.member_id)
        parked.is_taken = True
        self._waiting.take(parked)

    def heartbeat(
        self,
        domain: GroupDomain,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> "asyncio.Future[ErrorCode]":
        """The answer to a Heartbeat."""
        if not domain.is_well():
            return _done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        code = judge_heartbeat(
            domain.group(group_id),
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
        )
        if code in _GOOD:
            return _done(self._alive(domain, (group_id, member_id), code))
        judge = partial(
            judge_heartbeat, member_id=member_id, instance_id=instance_id, generation=generation
        )
        work = self._make_sure(domain, (group_id, member_id), judge)
        return self._tasks.spawn(work, name="group heartbeat")

    async def _make_sure(
        self, domain: GroupDomain, key: MemberKey, judge: Callable[[Group | None], ErrorCode]
    ) -> ErrorCode:
        """Judge again on a state that is surely current."""
        try:
            await domain.prove(arrived_s=self._clock.monotonic_s())
        except Unavailable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code = judge(domain.group(key[0]))
        return self._alive(domain, key, code) if code in _GOOD else code

    def _alive(self, domain: GroupDomain, key: MemberKey, code: ErrorCode) -> ErrorCode:
        """A member that is known spoke to us: from now on we watch it."""
        group_id, member_id = key
        group = domain.group(group_id)
        assert group is not None, key
        if group.members[member_id].holder == self._own_id:
            self._renew(group_id, member_id)
            return code
        if key in self._adopting:
            return code
        heard = domain.outbox.send(Adopt(group_id, member_id, self._own_id))
        if heard.done():  # it could not even be queued
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._adopting.add(key)
        heard.add_done_callback(lambda _: self._adopting.discard(key))
        return code

    def leave(
        self, domain: GroupDomain, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> "asyncio.Future[LeaveResult | ErrorCode]":
        """The answer to a LeaveGroup; ids that were given out and not used can go too (row 86)."""
        if not group_id:
            return _done(ErrorCode.INVALID_GROUP_ID)
        unused = [self.issued.take((group_id, member_id)) for member_id, _ in members]
        leaving = tuple(
            member for member, is_unused in zip(members, unused, strict=True) if not is_unused
        )
        finish = partial(_left, tuple(members), unused)
        if not leaving:
            return _done(finish(LeaveResult(())))
        return domain.outbox.request(Leave(group_id, leaving), finish)


def _left(
    members: Sequence[tuple[str, str | None]], unused: Sequence[bool], heard: EventResult
) -> LeaveResult | ErrorCode:
    """What became of each member, those with unused ids among them."""
    if not isinstance(heard, LeaveResult):
        return heard if isinstance(heard, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    codes = iter(heard.codes)
    names = iter(heard.member_ids)
    return LeaveResult(
        tuple(ErrorCode.NONE if is_unused else next(codes) for is_unused in unused),
        tuple(
            member_id if is_unused else next(names, member_id)
            for (member_id, _), is_unused in zip(members, unused, strict=True)
        ),
    )


def _done(answer: AnswerT) -> "asyncio.Future[AnswerT]":
    done: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done
