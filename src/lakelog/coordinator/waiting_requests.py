"""Joins and syncs that wait for their group, answered from its state whenever it changes (K1).

A request is parked when its event is queued and can be answered once that was taken in. A member
has one: a newer one has the older answered with 27, because a request without an answer blocks its
connection for ever (row 82).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from lakelog.coordinator.group_domain import GroupDiff
from lakelog.coordinator.requests import JoinRequest, SyncRequest
from lakelog.groups.classic import answer_join, answer_sync
from lakelog.groups.events import JoinAnswer, JoinResult, SyncAnswer
from lakelog.groups.state import Group
from lakelog.model.errors import ErrorCode

SKIPS_SINCE = 9
"""From this version of JoinGroup on a leader can be told not to assign anew (row 85)."""


@dataclass(slots=True, eq=False)
class WaitingJoin:
    """A JoinGroup that waits; `joined` is what became of its event."""

    request: JoinRequest
    member_id: str
    answer: "asyncio.Future[JoinAnswer]"
    joined: JoinResult | None = None

    @property
    def is_taken(self) -> bool:
        """Whether the group has the join, so that its state says the answer."""
        return self.joined is not None

    def refuse(self, code: ErrorCode) -> None:
        """Answer with a code; a member keeps its id but for one that found no room (row 84)."""
        if not self.answer.done():
            is_full = code is ErrorCode.GROUP_MAX_SIZE_REACHED
            self.answer.set_result(JoinAnswer(code, "" if is_full else self.request.member_id))

    def try_answer(self, group: Group | None) -> bool:
        """Answer if the group says so by now."""
        found = answer_join(group, self.member_id, instance_id=self.request.instance_id)
        if found is None:
            return False
        if not self.answer.done():
            self.answer.set_result(self._returned(found))
        return True

    def _returned(self, found: JoinAnswer) -> JoinAnswer:
        """A static leader that came back while all is stable must not assign anew (row 85)."""
        joined = self.joined
        if joined is None or found.code is not ErrorCode.NONE:
            return found
        if joined.skip_assignment and self.request.api_version >= SKIPS_SINCE:
            return replace(found, skip_assignment=True)
        if joined.leader is not None:
            return replace(found, leader=joined.leader, members=())
        return found


@dataclass(slots=True, eq=False)
class WaitingSync:
    """A SyncGroup that waits."""

    request: SyncRequest
    answer: "asyncio.Future[SyncAnswer]"
    is_taken: bool = False

    @property
    def member_id(self) -> str:
        """Who waits."""
        return self.request.member_id

    def refuse(self, code: ErrorCode) -> None:
        """Answer with a code."""
        if not self.answer.done():
            self.answer.set_result(SyncAnswer(code))

    def try_answer(self, group: Group | None) -> bool:
        """Answer if the group says so by now."""
        request = self.request
        found = answer_sync(
            group, request.member_id, generation=request.generation, instance_id=request.instance_id
        )
        if found is None:
            return False
        if not self.answer.done():
            self.answer.set_result(found)
        return True


WaitingRequest = WaitingJoin | WaitingSync


class WaitingRequests:
    """All requests that wait on this broker."""

    def __init__(self, group_of: Callable[[str], Group | None]) -> None:
        self._group_of = group_of
        self._parked: dict[str, dict[str, WaitingRequest]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def park(self, parked: WaitingRequest) -> None:
        """Let it wait; an older one of the same member waits no longer."""
        there = self._parked.setdefault(parked.request.group_id, {})
        older = there.get(parked.member_id)
        if older is not None:
            older.refuse(ErrorCode.REBALANCE_IN_PROGRESS)
        there[parked.member_id] = parked

    def take(self, parked: WaitingRequest) -> None:
        """Its event was taken in: from here on the group answers it."""
        assert parked.is_taken
        group_id = parked.request.group_id
        if parked.try_answer(self._group_of(group_id)):
            self._remove(parked)

    def refuse(self, parked: WaitingRequest, code: ErrorCode) -> None:
        """Its event was refused."""
        self._remove(parked)
        parked.refuse(code)

    def refuse_all(self, code: ErrorCode) -> None:
        """Nobody waits any longer."""
        everybody, self._parked = self._parked, {}
        for there in everybody.values():
            for parked in there.values():
                parked.refuse(code)

    def joins(self, group_id: str, member_id: str) -> bool:
        """Whether a join of this member waits, and somebody for its answer."""
        parked = self._parked.get(group_id, {}).get(member_id)
        return isinstance(parked, WaitingJoin) and not parked.answer.done()

    def see(self, change: GroupDiff) -> None:
        """Answer those whom the change of their group concerns."""
        there = self._parked.get(change.group_id)
        if there is None:
            return
        # A group that moved has an answer for all; else for those members that changed.
        concerned = (
            list(there.values())
            if change.has_moved
            else [there[name] for name in change.members if name in there]
        )
        for parked in concerned:
            if parked.is_taken and parked.try_answer(change.after):
                self._remove(parked)

    def _remove(self, parked: WaitingRequest) -> None:
        there = self._parked.get(parked.request.group_id, {})
        if there.get(parked.member_id) is parked:
            del there[parked.member_id]
            if not there:
                del self._parked[parked.request.group_id]
