"""A coordinator in memory, on the real machines, that keeps the promises of the real one.

It lets a test decide what a store decides otherwise: when events are applied, whether a proof can
be had, what other brokers have written that this one has not applied yet, and when time is over.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from lakelog.coordinator.options import EqualSettings, GroupOptions, GroupSettingsLookup
from lakelog.coordinator.requests import (
    ConsumerHeartbeatRequest,
    JoinRequest,
    SyncRequest,
    beat_event,
    check_beat,
    check_join,
    join_event,
    needs_id_first,
)
from lakelog.groups import classic, consumer
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupEvent,
    GroupEventResult,
    GroupOutcome,
    JoinAnswer,
    JoinResult,
    Leave,
    LeaveResult,
    Sync,
    SyncAnswer,
    TimerExpired,
    decode_group_event,
    encode_group_event,
)
from lakelog.groups.state import ClassicGroup, ConsumerGroup, Group, TimerKind
from lakelog.groups.table import GroupTable, domain_index
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.model.ids import TopicId

HOLDER = 1

Answered = TypeVar("Answered")


class MemoryGroups:
    """The groups of all domains of one broker."""

    def __init__(self, *, domains: int = 1, options: GroupOptions | None = None) -> None:
        self.options = options or GroupOptions()
        self.settings: GroupSettingsLookup = EqualSettings(self.options)
        self.topics: dict[str, tuple[TopicId, int]] = {}
        self.taken: list[GroupEvent] = []
        self.foreign: list[GroupEvent] = []
        self.stale_domains: set[int] = set()
        self.proofs: list[str | None] = []
        self.is_held = False
        self.is_draining = False
        self._held: list[tuple[GroupEvent, Callable[[GroupOutcome], None]]] = []
        self._parked: list[Callable[[], bool]] = []
        self._tables = tuple(GroupTable() for _ in range(domains))
        self._position = 0
        self._issued: set[str] = set()

    # What a broker asks.

    def table(self, group_id: str) -> GroupTable:
        return self._tables[domain_index(group_id, len(self._tables))]

    def tables(self) -> Sequence[GroupTable]:
        return self._tables

    async def prove(self, group_id: str | None, *, arrived_s: float) -> None:
        assert arrived_s > 0
        self.proofs.append(group_id)
        domains = range(len(self._tables))
        asked = set(domains) if group_id is None else {domain_index(group_id, len(domains))}
        await asyncio.sleep(0)
        if asked & self.stale_domains:
            raise Unavailable("the store does not answer")
        self.apply_held()
        foreign, self.foreign = self.foreign, []
        for event in foreign:
            self.apply(event)

    def join(self, ask: JoinRequest) -> "asyncio.Future[JoinAnswer]":
        future: asyncio.Future[JoinAnswer] = asyncio.Future()
        code = self._refusal() or check_join(ask, self.options)
        if code:
            future.set_result(JoinAnswer(code, ask.member_id))
            return future
        member_id = ask.member_id or f"{ask.client_id}-{len(self._issued)}"
        is_new = member_id in self._issued or not ask.member_id
        self._issued.add(member_id)
        if needs_id_first(ask):
            future.set_result(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return future
        event = join_event(
            ask, member_id=member_id, is_new=is_new, holder=HOLDER, options=self.options
        )

        def settle(outcome: GroupOutcome) -> None:
            assert isinstance(outcome, JoinResult)
            if outcome.code:
                future.set_result(JoinAnswer(outcome.code, ask.member_id))
            else:
                mine = outcome.member_id or member_id
                self._park(future, lambda: classic.answer_join(self.group(ask.group_id), mine))

        self._take(event, settle)
        return future

    def sync(self, ask: SyncRequest) -> "asyncio.Future[SyncAnswer]":
        future: asyncio.Future[SyncAnswer] = asyncio.Future()
        event = Sync(
            ask.group_id,
            ask.member_id,
            ask.instance_id,
            ask.generation,
            ask.protocol_type,
            ask.protocol_name,
            ask.assignments,
        )

        def answer() -> SyncAnswer | None:
            group = self.group(ask.group_id)
            return classic.answer_sync(group, ask.member_id, generation=ask.generation)

        def settle(outcome: GroupOutcome) -> None:
            assert isinstance(outcome, GroupEventResult)
            if outcome.code:
                future.set_result(SyncAnswer(outcome.code))
            else:
                self._park(future, answer)

        self._take(event, settle)
        return future

    def heartbeat(
        self, group_id: str, *, member_id: str, instance_id: str | None, generation: int
    ) -> "asyncio.Future[ErrorCode]":
        future: asyncio.Future[ErrorCode] = asyncio.Future()
        judged = classic.judge_heartbeat(
            self.group(group_id),
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
        )
        future.set_result(self._refusal() or judged)
        return future

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> "asyncio.Future[LeaveResult | ErrorCode]":
        future: asyncio.Future[LeaveResult | ErrorCode] = asyncio.Future()
        if not group_id:
            future.set_result(ErrorCode.INVALID_GROUP_ID)
            return future

        def settle(outcome: GroupOutcome) -> None:
            assert isinstance(outcome, LeaveResult)
            future.set_result(outcome)

        self._take(Leave(group_id, tuple(members)), settle)
        return future

    def beat(self, ask: ConsumerHeartbeatRequest) -> "asyncio.Future[ConsumerHeartbeatResult]":
        future: asyncio.Future[ConsumerHeartbeatResult] = asyncio.Future()
        refused = check_beat(ask, self.options)
        if refused is not None:
            future.set_result(refused)
            return future
        event = beat_event(
            ask,
            member_id=ask.member_id,
            holder=HOLDER,
            members_max=self.options.consumer_members_max,
            settings=self.settings.of(ask.group_id),
        )

        def settle(outcome: GroupOutcome) -> None:
            assert isinstance(outcome, ConsumerHeartbeatResult)
            group = self.group(ask.group_id)
            if not outcome.code and isinstance(group, ConsumerGroup):
                outcome = self._assigned(group, event, outcome)
            future.set_result(outcome)

        self._take(event, settle)
        return future

    def commit(self, event: CommitOffsets) -> "asyncio.Future[ErrorCode]":
        future: asyncio.Future[ErrorCode] = asyncio.Future()
        code = self._refusal()
        if code:
            future.set_result(code)
            return future

        def settle(outcome: GroupOutcome) -> None:
            assert isinstance(outcome, GroupEventResult)
            future.set_result(outcome.code)

        self._take(event, settle)
        return future

    def submit(self, event: GroupEvent) -> "asyncio.Future[GroupOutcome | ErrorCode]":
        future: asyncio.Future[GroupOutcome | ErrorCode] = asyncio.Future()
        code = self._refusal()
        if code:
            future.set_result(code)
        else:
            self._take(event, future.set_result)
        return future

    # What a test does to it.

    def group(self, group_id: str) -> Group | None:
        return self.table(group_id).groups.get(group_id)

    def apply(self, event: GroupEvent) -> GroupOutcome:
        """Apply an event, through its bytes, and answer who waited for it."""
        self._position += 1
        event = decode_group_event(memoryview(encode_group_event(event)))
        outcome = self.table(event.group_id).apply(event, position=self._position)
        self._parked = [is_answered for is_answered in self._parked if not is_answered()]
        return outcome

    def apply_held(self) -> None:
        """Apply what was taken in, in order."""
        held, self._held = self._held, []
        for event, settle in held:
            settle(self.apply(event))

    def run_out(self, group_id: str) -> None:
        """The time to join a classic group is over, however often it begins anew."""
        while True:
            group = self.group(group_id)
            assert isinstance(group, ClassicGroup)
            joins = [one for one in classic.timers(group) if one.kind is TimerKind.JOIN]
            if not joins:
                return
            for timer in joins:
                self.apply(TimerExpired(group_id, timer.kind, timer.subject, timer.number))

    def _refusal(self) -> ErrorCode:
        return ErrorCode.NOT_COORDINATOR if self.is_draining else ErrorCode.NONE

    def _take(self, event: GroupEvent, settle: Callable[[GroupOutcome], None]) -> None:
        self.taken.append(event)
        self._held.append((event, settle))
        if not self.is_held:
            self.apply_held()

    def _park(
        self, future: "asyncio.Future[Answered]", answer: Callable[[], Answered | None]
    ) -> None:
        def is_answered() -> bool:
            found = answer()
            if found is not None:
                future.set_result(found)
            return found is not None

        if not is_answered():
            self._parked.append(is_answered)

    def _assigned(
        self, group: ConsumerGroup, event: ConsumerHeartbeat, outcome: ConsumerHeartbeatResult
    ) -> ConsumerHeartbeatResult:
        """The outcome after the target that a heartbeat made necessary, for who stays."""
        if not consumer.needs_target(group):
            return outcome
        default = self.options.consumer_assignors[0]
        self.apply(consumer.target_event(group, topics=self.topics, assignor_default=default))
        if event.member_epoch < 0:
            return outcome
        again = self.apply(event)
        assert isinstance(again, ConsumerHeartbeatResult)
        return again
