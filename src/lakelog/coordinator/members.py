"""What members of classic groups ask: to join, for their assignment, to be known as alive, to go.

A join or sync that was taken in is parked and answered from the group's state. A heartbeat is
answered from our own state, as long as that may be believed; bad news are given only after the log
was read to its end. A heartbeat of a member that another broker holds makes it ours (K4).
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.coordinator.asks import (
    JoinAsk,
    SyncAsk,
    check_join,
    join_event,
    minted_classic,
    needs_id_first,
)
from lakelog.coordinator.group_domain import AnswerT, EventResult, GroupDomain
from lakelog.coordinator.issued import Issued
from lakelog.coordinator.member_expiry import MemberKey
from lakelog.coordinator.options import GroupOptions
from lakelog.coordinator.parked import ParkedJoin, ParkedSync, Parking
from lakelog.groups.classic import judge_heartbeat
from lakelog.groups.events import (
    Adopt,
    Join,
    JoinAnswer,
    Joined,
    Judged,
    Leave,
    Left,
    Sync,
    SyncAnswer,
)
from lakelog.groups.parts import sync_parts
from lakelog.groups.state import ClassicGroup, Group
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable

_GOOD: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})
"""What a member that is known in its generation hears."""


class Members:
    """Takes the requests of classic groups in."""

    def __init__(  # noqa: PLR0913 - the coordinator hands over one of each
        self,
        parking: Parking,
        renew: Callable[[str, str], None],
        clock: Clock,
        entropy: Entropy,
        options: GroupOptions,
        *,
        own_id: int,
        tasks: Tasks,
    ) -> None:
        self.issued = Issued()
        self._parking = parking
        self._renew = renew
        self._clock = clock
        self._entropy = entropy
        self._options = options
        self._own_id = own_id
        self._tasks = tasks
        self._adopting: set[MemberKey] = set()

    def join(self, domain: GroupDomain, ask: JoinAsk) -> "asyncio.Future[JoinAnswer]":
        """The answer to a JoinGroup."""
        code = check_join(ask, self._options)
        if code is not ErrorCode.NONE:
            return _done(JoinAnswer(code, ask.member_id))
        member_id = ask.member_id or minted_classic(self._entropy.token(16), ask)
        is_new = not ask.member_id or (ask.group_id, member_id) in self.issued
        event = join_event(
            ask, member_id=member_id, is_new=is_new, holder=self._own_id, options=self._options
        )
        if needs_id_first(ask):
            return _done(self._issue(domain, event))
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        parked = ParkedJoin(ask, member_id, answer)
        self._parking.park(parked)
        heard = domain.outbox.send(event)
        heard.add_done_callback(partial(self._joined, parked))
        return answer

    def _issue(self, domain: GroupDomain, event: Join) -> JoinAnswer:
        """Send the member away with an id, unless the group would not take it (KIP-394)."""
        if not domain.is_well():
            return JoinAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        _, outcome, _ = domain.table.preview(event)
        assert isinstance(outcome, Joined), outcome
        if outcome.code is not ErrorCode.NONE:
            return JoinAnswer(outcome.code, "")
        until_s = self._clock.monotonic_s() + event.session_timeout_ms / 1000
        self.issued.give((event.group_id, event.member_id), until_s=until_s)
        return JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, event.member_id)

    def _joined(self, parked: ParkedJoin, heard: "asyncio.Future[EventResult]") -> None:
        outcome = heard.result()
        if not isinstance(outcome, Joined):
            assert isinstance(outcome, ErrorCode), outcome
            self._parking.refuse(parked, outcome)
            return
        if outcome.code is not ErrorCode.NONE:
            self._parking.refuse(parked, outcome.code)
            return
        self.issued.take((parked.ask.group_id, parked.member_id))
        self._renew(parked.ask.group_id, parked.member_id)
        parked.joined = outcome
        self._parking.take(parked)

    def sync(self, domain: GroupDomain, ask: SyncAsk) -> "asyncio.Future[SyncAnswer]":
        """The answer to a SyncGroup."""
        if not ask.group_id:
            return _done(SyncAnswer(ErrorCode.INVALID_GROUP_ID))
        size_bytes = sum(len(name) + len(share) for name, share in ask.assignments)
        parts = () if size_bytes > self._options.sync_bytes_max else self._sync_events(domain, ask)
        if not parts:
            return _done(SyncAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        parked = ParkedSync(ask, answer)
        self._parking.park(parked)
        all_heard = [domain.outbox.send(part) for part in parts]
        all_heard[-1].add_done_callback(partial(self._synced, parked, all_heard))
        return answer

    def _sync_events(self, domain: GroupDomain, ask: SyncAsk) -> tuple[Sync, ...]:
        group = domain.group(ask.group_id)
        is_follower = (
            isinstance(group, ClassicGroup)
            and group.generation == ask.generation
            and group.leader != ask.member_id
        )
        event = Sync(
            group_id=ask.group_id,
            member_id=ask.member_id,
            instance_id=ask.instance_id,
            generation=ask.generation,
            protocol_type=ask.protocol_type,
            protocol_name=ask.protocol_name,
            assignments=() if is_follower else ask.assignments,
        )
        attempt = 1 + self._entropy.below(1 << 62)
        bytes_max = self._options.sync_part_bytes_max
        # One assignment that fits into no part goes as it is: any event may exceed a record.
        return sync_parts(event, bytes_max=bytes_max, attempt=attempt) or (event,)

    def _synced(
        self,
        parked: ParkedSync,
        all_heard: "Sequence[asyncio.Future[EventResult]]",
        _: "asyncio.Future[EventResult]",
    ) -> None:
        for heard in all_heard:
            # The queue is first in, first out: parts before the last one are settled with it.
            outcome = heard.result() if heard.done() else ErrorCode.COORDINATOR_NOT_AVAILABLE
            code = outcome.code if isinstance(outcome, Judged) else outcome
            if code is not ErrorCode.NONE:
                assert isinstance(code, ErrorCode), code
                self._parking.refuse(parked, code)
                return
        self._renew(parked.ask.group_id, parked.member_id)
        parked.is_taken = True
        self._parking.take(parked)

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
    ) -> "asyncio.Future[Left | ErrorCode]":
        """The answer to a LeaveGroup; ids that were given out and not used can go too (row 86)."""
        if not group_id:
            return _done(ErrorCode.INVALID_GROUP_ID)
        unused = [self.issued.take((group_id, member_id)) for member_id, _ in members]
        leaving = tuple(
            member for member, is_unused in zip(members, unused, strict=True) if not is_unused
        )
        finish = partial(_left, tuple(members), unused)
        if not leaving:
            return _done(finish(Left(())))
        return domain.outbox.ask(Leave(group_id, leaving), finish)


def _left(
    members: Sequence[tuple[str, str | None]], unused: Sequence[bool], heard: EventResult
) -> Left | ErrorCode:
    """What became of each member, those with unused ids among them."""
    if not isinstance(heard, Left):
        return heard if isinstance(heard, ErrorCode) else ErrorCode.UNKNOWN_SERVER_ERROR
    codes = iter(heard.codes)
    names = iter(heard.member_ids)
    return Left(
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
