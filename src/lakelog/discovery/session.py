"""The shell around one membership: it does what the state machine says and tells it what came.

Rules:

- All of it happens on one loop. One request at a time is under way; a join or a look at the members
  that has to wait first is replaced by a newer one.
- How long ago the coordinator heard of this node is counted from when the heartbeat was *sent* that
  it answered: so this node knows that its session may be over before anybody else acts on it. What
  is parked at the coordinator is answered late by design; then the last moment counts at which this
  loop is known to have run, and while it is parked a heartbeat goes on a connection beside it.
- Leaving comes before everything: what is under way is given up for it.
- A bug in here ends the membership with an error; it does not end in silence.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, assert_never

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.discovery.config import KafkaDiscoveryConfig
from lakelog.discovery.failures import ConnectionFailed, DiscoveryError
from lakelog.discovery.group_requests import GroupRequest, SendHeartbeat
from lakelog.discovery.member import Member, Phase
from lakelog.discovery.membership import step
from lakelog.discovery.membership_events import (
    CallbackOverdue,
    CallbackReturned,
    Change,
    CountsRead,
    DescribeAnswered,
    Effect,
    Event,
    Fail,
    ForgetCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    PartitionsRevoked,
    Publish,
    ReadCounts,
    Reported,
    RevocationDone,
    SendDescribe,
    SendJoin,
    SendLeave,
    SendSync,
    SessionExpired,
    SyncAnswered,
)
from lakelog.kafka_client.failures import ClientFailure
from lakelog.model.errors import ErrorCode
from lakelog.retry import Backoff

TICK_S_MIN: Final = 0.01
QUICK_BEAT_S: Final = 0.1
"""So soon after a rebalance it beats: a node that heard of the next one late would delay all."""
CALLBACK_LOOKS: Final = 10
"""So many times within max_poll_interval a callback is looked at."""


REBALANCING: Final = "PreparingRebalance"
"""The state of a group that waits for its members to join again, as DescribeGroups calls it."""
KNOWN_TO_COORDINATOR: Final = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
"""The answers by which a member's session goes on."""


class RequestSender(Protocol):
    """Whoever sends the requests: `GroupRequests`."""

    async def run(self, request: GroupRequest) -> Event:
        """Do it and say what came of it."""

    async def counts(self, topics: Sequence[str]) -> dict[str, int]:
        """The partition counts of those topics that there are; raises ClientFailure."""

    async def beat_aside(self, beat: SendHeartbeat) -> int | None:
        """Beat past what is parked; the code, or None if nobody answers."""

    def forget_coordinator(self) -> None:
        """Look for it again before the next request."""


class MembershipOwner(Protocol):
    """Whoever the membership is for."""

    def look(self, member: Member) -> None:
        """This is how it stands now; called before `hear`, for each step."""

    def hear(self, change: Change) -> "asyncio.Future[None] | None":
        """Something has changed; the future, if any, is done when everyone was told."""

    def fail(self, failure: DiscoveryError) -> None:
        """The membership has ended by a failure."""

    def busy_s(self) -> float:
        """For how long a callback has been running."""


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """The waits of one session, in seconds."""

    session_s: float
    heartbeat_s: float
    callback_s: float
    topics_s: float
    """How often the leader looks whether a topic has more partitions."""
    retry: Backoff

    @classmethod
    def of(cls, config: KafkaDiscoveryConfig, *, topics_s: float, retry: Backoff) -> "SessionTimes":
        """The times of a configuration."""
        return cls(
            session_s=config.session_timeout_ms / 1000,
            heartbeat_s=config.heartbeat_interval_ms / 1000,
            callback_s=config.max_poll_interval_ms / 1000,
            topics_s=topics_s,
            retry=retry,
        )

    @property
    def tick_s(self) -> float:
        """How often it is looked what is due."""
        return max(TICK_S_MIN, min(self.heartbeat_s, self.callback_s / CALLBACK_LOOKS))


class MembershipSession:
    """One membership, from `run` until it is cancelled."""

    def __init__(
        self,
        member: Member,
        sender: RequestSender,
        owner: MembershipOwner,
        times: SessionTimes,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.member = member
        self._sender = sender
        self._owner = owner
        self._times = times
        self._clock = clock
        self._entropy = entropy
        self._tasks = Tasks()
        self._due: deque[GroupRequest] = deque()
        self._is_due = asyncio.Event()
        self._later: dict[type[GroupRequest], asyncio.TimerHandle] = {}
        self._current: asyncio.Task[Event] | None = None
        self._current_request: GroupRequest | None = None
        self._aside: asyncio.Task[Any] | None = None
        self._counting: asyncio.Task[Any] | None = None
        now_s = clock.monotonic_s()
        self._ticked_s = self._heard_s = self._counted_s = now_s
        self._beating: asyncio.TimerHandle | None = None
        self._is_overdue = False
        self._has_asked = False
        """Whether the coordinator was ever asked to take this node in."""

    async def run(self) -> None:
        """Keep the membership going; raises what a bug in here raises."""
        self._tasks.spawn(self._work(), name="discovery requests")
        self._tasks.spawn(self._tick(), name="discovery ticks")
        self._beat_after(self._times.heartbeat_s)
        try:
            await self._tasks.failed()
        finally:
            for handle in (*self._later.values(), *filter(None, (self._beating,))):
                handle.cancel()
            await self._tasks.close()

    def handle(self, event: Event) -> None:
        """Take an event; raises ConfigError for an announcement that says too much."""
        before = self.member
        self.member, effects = step(before, event)
        self._owner.look(self.member)
        self._report(before)
        for effect in effects:
            self._do(effect)

    # --- effects --------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        match effect:
            case Publish():
                self._publish(effect.change)
            case Fail():
                self._owner.fail(effect.failure)
            case ForgetCoordinator():
                self._sender.forget_coordinator()
            case SendLeave():
                self._leave(effect)
            case SendJoin() | SendDescribe():
                self._put_later(effect)
            case SendSync() | ReadCounts():
                self._put(effect)
            case _:
                assert_never(effect)

    def _leave(self, request: SendLeave) -> None:
        self._give_up_requests()
        if self._has_asked:
            self._put(request)
        else:
            # Without a member id it would remove whoever has this node's id, and that is not us.
            asyncio.get_running_loop().call_soon(self.handle, LeaveAnswered())

    def _publish(self, change: Change) -> None:
        told = self._owner.hear(change)
        if not isinstance(change, PartitionsRevoked):
            return
        number = change.number
        if told is None:
            asyncio.get_running_loop().call_soon(self.handle, RevocationDone(number))
        else:
            told.add_done_callback(lambda _: self.handle(RevocationDone(number)))

    def _put(self, request: GroupRequest) -> None:
        self._due.append(request)
        self._is_due.set()

    def _put_later(self, request: SendJoin | SendDescribe) -> None:
        """Put it after its pause, in place of one of its kind that was not begun."""
        kind = type(request)
        waiting = self._later.pop(kind, None)
        if waiting is not None:
            waiting.cancel()
        self._due = deque(each for each in self._due if not isinstance(each, kind))
        delay_s = self._times.retry.delay_s(request.attempt, self._entropy)
        if delay_s:
            loop = asyncio.get_running_loop()
            self._later[kind] = loop.call_later(delay_s, self._put, request)
        else:
            self._put(request)

    def _give_up_requests(self) -> None:
        for handle in self._later.values():
            handle.cancel()
        self._later.clear()
        self._due.clear()
        if self._current is not None and isinstance(self._current_request, SendJoin | SendSync):
            self._current.cancel()  # the others end soon; these may be parked for minutes

    # --- requests --------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Do one request after the other."""
        while True:
            while not self._due:
                self._is_due.clear()
                await self._is_due.wait()
            request = self._due.popleft()
            if isinstance(request, SendHeartbeat):
                if not self.member.beats:
                    continue
                request = self._next_beat()
            self._has_asked |= isinstance(request, SendJoin)
            sent_s = self._clock.monotonic_s()
            self._current_request = request
            self._current = self._tasks.spawn(self._sender.run(request), name="discovery request")
            try:
                await asyncio.wait([self._current])
            finally:
                done, self._current, self._current_request = self._current, None, None
                if not done.done():
                    done.cancel()
            if not done.cancelled():
                event = done.result()
                self._note(request, event, sent_s)
                self.handle(event)
                if isinstance(event, DescribeAnswered) and event.group_state == REBALANCING:
                    self._put(self._next_beat())  # the group waits for this node: ask now
                if isinstance(event, SyncAnswered) and not event.code:
                    # What others let go of by this comes with another rebalance, and soon.
                    self._beat_after(min(QUICK_BEAT_S, self._times.heartbeat_s))

    def _note(self, request: GroupRequest, event: Event, sent_s: float) -> None:
        """When the coordinator last heard of this node, if it did by this."""
        if not isinstance(event, HeartbeatAnswered | JoinAnswered | SyncAnswered):
            return
        if event.code not in KNOWN_TO_COORDINATOR:
            return
        is_parked = isinstance(request, SendJoin | SendSync)
        self._heard_s = max(self._heard_s, sent_s, self._ticked_s if is_parked else sent_s)

    # --- time -----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            left_s = self._heard_s + self._times.session_s - self._clock.monotonic_s()
            await asyncio.sleep(max(TICK_S_MIN, min(self._times.tick_s, left_s)))
            self._look_around(self._clock.monotonic_s())
            self._ticked_s = self._clock.monotonic_s()

    def _look_around(self, now_s: float) -> None:
        """Do what is due now."""
        if not self.member.claims and not self.member.beats:
            self._heard_s = now_s  # there is no session, or nothing that could be lost with it
        elif now_s - self._heard_s > self._times.session_s:
            self._heard_s = now_s
            self.handle(SessionExpired())
        self._look_at_callbacks()
        if self._is_counting_due(now_s):
            self._counted_s = now_s
            self._counting = self._tasks.spawn(self._count(), name="discovery counts")

    def _look_at_callbacks(self) -> None:
        is_overdue = self._owner.busy_s() > self._times.callback_s
        if is_overdue and not self._is_overdue:
            self.handle(CallbackOverdue())
        if self._is_overdue and not is_overdue:
            self.handle(CallbackReturned())
        self._is_overdue = is_overdue

    def _beat_after(self, gap_s: float) -> None:
        """Beat then, and again after twice that, up to the usual interval."""
        if self._beating is not None:
            self._beating.cancel()

        def beat() -> None:
            self._beat()
            self._beat_after(min(2 * gap_s, self._times.heartbeat_s))

        self._beating = asyncio.get_running_loop().call_later(gap_s, beat)

    def _beat(self) -> None:
        """Beat if it is expected, and aside if something is parked that may outlast a session."""
        member = self.member
        if isinstance(self._current_request, SendJoin | SendSync):
            if member.claims and member.member_id and (self._aside is None or self._aside.done()):
                self._aside = self._tasks.spawn(self._beat_aside(), name="discovery beat")
        elif member.beats and not any(isinstance(each, SendHeartbeat) for each in self._due):
            self._put(self._next_beat())

    def _next_beat(self) -> SendHeartbeat:
        return SendHeartbeat(self.member.member_id, self.member.joining_generation)

    async def _beat_aside(self) -> None:
        sent_s = self._clock.monotonic_s()
        if await self._sender.beat_aside(self._next_beat()) in KNOWN_TO_COORDINATOR:
            self._heard_s = max(self._heard_s, sent_s)

    def _is_counting_due(self, now_s: float) -> bool:
        return (
            self.member.is_leader
            and self.member.phase is Phase.SETTLED
            and now_s - self._counted_s >= self._times.topics_s
            and (self._counting is None or self._counting.done())
        )

    async def _count(self) -> None:
        """Look whether a topic has more partitions; the next time is soon enough if it fails."""
        facts = self.member.facts
        topics = self.member.topics if facts is None else tuple(sorted(facts.counts))
        try:
            counts = await self._sender.counts(topics)
        except ClientFailure:
            return
        self.handle(CountsRead(counts))

    def _report(self, before: Member) -> None:
        """Report what went wrong, once until it is well again; an end tells of itself."""
        member = self.member
        if (
            member.trouble
            and not before.trouble
            and member.phase not in (Phase.OVERDUE, Phase.GONE)
        ):
            failure = ConnectionFailed(f"group {member.group_id!r}: {member.trouble}")
            self._owner.hear(Reported(failure))
