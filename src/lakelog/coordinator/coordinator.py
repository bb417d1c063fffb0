"""The coordinator of groups: any broker is one, for every group (K9).

What a client asks becomes an event in the log of the group's domain, and the group's machine says
in `apply` what becomes of it. Every method queues its event before it returns (K11) and returns a
future that does not fail for the world's faults: the code in the answer says it, 15 where the log
cannot be reached and 16 while the broker goes away.

States have the names that Kafka has for them. Every broker sees every rebalance, and only the first
broker of a group counts it: the sum over all brokers is the number of rebalances.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from lakelog.clock import Clock, Entropy, Tasks
from lakelog.coordinator.budget import Budget
from lakelog.coordinator.classic_requests import ClassicRequests
from lakelog.coordinator.consumer_requests import ConsumerRequests
from lakelog.coordinator.group_domain import AnswerT, EventResult, GroupDiff, GroupDomain
from lakelog.coordinator.member_expiry import MemberExpiry, rank_of
from lakelog.coordinator.offsets import OffsetCommits, OffsetRetention
from lakelog.coordinator.options import (
    Brokers,
    EqualSettings,
    GroupOptions,
    GroupSettingsLookup,
    Ports,
    TopicLookup,
)
from lakelog.coordinator.owner import Owner
from lakelog.coordinator.requests import (
    ConsumerHeartbeatRequest,
    JoinRequest,
    SyncRequest,
    beat_event,
    check_beat,
    minted_consumer,
)
from lakelog.coordinator.waiting_requests import WaitingRequests
from lakelog.domain.replica import Replica
from lakelog.groups import consumer
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeatResult,
    GroupEvent,
    JoinAnswer,
    LeaveResult,
    SyncAnswer,
)
from lakelog.groups.state import ClassicGroup, ClassicState, ConsumerGroup, Group
from lakelog.groups.table import GroupTable, domain_index
from lakelog.log.writes import Registered
from lakelog.model.errors import ErrorCode
from lakelog.telemetry import MetricsRegistry

CLASSIC_STATES = {
    ClassicState.EMPTY: "Empty",
    ClassicState.PREPARING: "PreparingRebalance",
    ClassicState.COMPLETING: "CompletingRebalance",
    ClassicState.STABLE: "Stable",
}
"""The names that Kafka has for the states of classic groups."""


class GroupMetrics:
    """Keeps the metrics of groups; rebalances are counted by the group's first broker alone.

    The state of a consumer group takes a look at all its members, so it is found out when somebody
    wants to see it.
    """

    def __init__(
        self,
        domains: Sequence[GroupDomain],
        domain_of: Callable[[str], GroupDomain],
        brokers: Brokers,
        metrics: MetricsRegistry,
    ) -> None:
        self._domain_of = domain_of
        self._brokers = brokers
        self._metrics = metrics
        self._states: dict[str, tuple[str, str]] = {}
        self._changed: set[str] = set()
        metrics.groups.refresh = self._refresh
        for domain in domains:
            domain.listeners.append(self._see)

    def _see(self, change: GroupDiff) -> None:
        self._changed.add(change.group_id)
        if is_rebalanced(change.before, change.after):
            ranked = self._brokers.ranked(change.group_id)
            if rank_of(ranked, self._brokers.own_id) == 0:
                self._metrics.rebalances.inc()

    def _refresh(self) -> None:
        changed, self._changed = self._changed, set()
        for group_id in sorted(changed):
            before = self._states.pop(group_id, None)
            if before is not None:
                self._metrics.groups.add(before, -1)
            group = self._domain_of(group_id).group(group_id)
            if group is not None:
                state = self._states[group_id] = state_of(group)
                self._metrics.groups.add(state, 1)


def state_of(group: Group) -> tuple[str, str]:
    """A group's protocol and state as Kafka names them."""
    if isinstance(group, ClassicGroup):
        return "classic", CLASSIC_STATES[group.state]
    return "consumer", consumer.state_name(group)


def is_rebalanced(before: Group | None, after: Group | None) -> bool:
    """Whether the group has a new generation, or a new target."""
    if isinstance(before, ClassicGroup) and isinstance(after, ClassicGroup):
        return after.generation > before.generation
    if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
        return after.target is not before.target
    return False


ISSUED_CHECK_S: Final = 1.0
"""How often unused member ids are looked at."""

_GOING: Final = ErrorCode.NOT_COORDINATOR


class GroupCoordinator:
    """Groups as one broker serves them."""

    def __init__(  # noqa: PLR0913, PLR0917 - the composition root hands over one of each
        self,
        replicas: Sequence[Replica],
        brokers: Brokers,
        topics: TopicLookup,
        clock: Clock,
        entropy: Entropy,
        options: GroupOptions,
        metrics: MetricsRegistry,
        settings: GroupSettingsLookup | None = None,
    ) -> None:
        self.options = options
        self.settings = settings or EqualSettings(options)
        self._clock = clock
        self._entropy = entropy
        self._own_id = brokers.own_id
        self._tasks = Tasks()
        self._is_draining = False
        self.registered: Registered = _nobody
        """The names under which the brokers that have a session write."""
        self._domains = [
            GroupDomain(replica, brokers, clock, entropy, options) for replica in replicas
        ]
        self._budget = Budget(self.tables, clock, options, metrics)
        for domain in self._domains:
            domain.listeners.append(self._budget.see)
            domain.outbox.refusal = partial(_refusal_of, self._budget, domain)
        self._waiting = WaitingRequests(self._group)
        self._expiries = [
            MemberExpiry(
                domain,
                brokers,
                clock,
                options,
                has_parked_join=self._waiting.joins,
                expired=metrics.expired_members,
            )
            for domain in self._domains
        ]
        for domain in self._domains:
            domain.listeners.append(self._waiting.see)
        ports = Ports(brokers, topics, self.settings)
        self._owner = Owner(self._domains, self._domain, ports, clock, options)
        self._retention = OffsetRetention(self._domains, brokers, topics, clock, options)
        self._group_metrics = GroupMetrics(self._domains, self._domain, brokers, metrics)
        self._classic = ClassicRequests(
            self._waiting,
            self._renew,
            clock,
            entropy,
            options,
            own_id=brokers.own_id,
            tasks=self._tasks,
        )
        self._consumer = ConsumerRequests(self._owner, clock, self._tasks, self._renew)
        self._commits = OffsetCommits(self._renew, metrics.offset_commits)

    def expire_offsets_if(self, is_clock_right: Callable[[], Awaitable[bool]]) -> None:
        """Have the clock checked before offsets are forgotten for their age (rule 20)."""
        self._retention.is_clock_right = is_clock_right

    def start(self) -> None:
        """Begin to watch groups; the replicas run already."""
        for domain in self._domains:
            domain.open()
            self._tasks.spawn(domain.follow_level(self.registered), name="group level")
        for expiry in self._expiries:
            self._tasks.spawn(expiry.run(), name="group watch")
        self._owner.start()
        self._tasks.spawn(self._owner.failed(), name="watch")
        self._tasks.spawn(self._retention.run(), name="offset retention")
        self._tasks.spawn(self._forget_issued(), name="issued member ids")

    async def failed(self) -> None:
        """Wait for a failure that the process must not survive, and raise it."""
        await self._tasks.failed()

    def drain(self) -> None:
        """Send everybody away, those who wait too: another broker is to take over."""
        self._is_draining = True
        self._waiting.refuse_all(_GOING)

    async def close(self) -> None:
        """Stop watching; whoever still waits is sent away."""
        self.drain()
        for domain in self._domains:
            domain.close()
        await self._owner.close()
        await self._tasks.close()

    def table(self, group_id: str) -> GroupTable:
        """The groups and offsets of the domain that this group is in."""
        return self._domain(group_id).table

    def tables(self) -> Sequence[GroupTable]:
        """All groups and offsets, domain by domain."""
        return [domain.table for domain in self._domains]

    async def prove(self, group_id: str | None, *, arrived_s: float) -> None:
        """Return when the tables hold all that was acknowledged before (rule 16).

        That includes what this broker queued before. Of one group's domain, or of all; raises
        `Unavailable`.
        """
        domains = self._domains if group_id is None else [self._domain(group_id)]
        await asyncio.gather(*(domain.prove(arrived_s=arrived_s) for domain in domains))

    def join(self, request: JoinRequest) -> "asyncio.Future[JoinAnswer]":
        """The answer to a JoinGroup, once its generation is there."""
        domain = self._domain(request.group_id)
        refusal = self._refusal(domain)
        if refusal is not None:
            return _done(JoinAnswer(refusal, request.member_id))
        return self._classic.join(domain, request)

    def sync(self, request: SyncRequest) -> "asyncio.Future[SyncAnswer]":
        """The answer to a SyncGroup, once the leader has brought the assignments."""
        domain = self._domain(request.group_id)
        refusal = self._refusal(domain)
        if refusal is not None:
            return _done(SyncAnswer(refusal))
        return self._classic.sync(domain, request)

    def heartbeat(
        self, group_id: str, *, member_id: str, instance_id: str | None, generation: int
    ) -> "asyncio.Future[ErrorCode]":
        """The answer to a Heartbeat of a classic group."""
        if self._is_draining:
            return _done(_GOING)
        if not group_id:
            return _done(ErrorCode.INVALID_GROUP_ID)
        return self._classic.heartbeat(
            self._domain(group_id),
            group_id,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
        )

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> "asyncio.Future[LeaveResult | ErrorCode]":
        """What became of each member (id, instance id) of a LeaveGroup."""
        domain = self._domain(group_id)
        refusal = self._refusal(domain)
        if refusal is not None:
            return _done(refusal)
        return self._classic.leave(domain, group_id, members)

    def beat(self, request: ConsumerHeartbeatRequest) -> "asyncio.Future[ConsumerHeartbeatResult]":
        """The answer to a ConsumerGroupHeartbeat."""
        if self._is_draining:
            return _done(ConsumerHeartbeatResult(_GOING, "The broker is stopping."))
        refused = check_beat(request, self.options)
        if refused is not None:
            return _done(refused)
        member_id = request.member_id or minted_consumer(self._entropy.token(16))
        event = beat_event(
            request,
            member_id=member_id,
            holder=self._own_id,
            members_max=self.options.consumer_members_max,
            settings=self.settings.of(request.group_id),
        )
        return self._consumer.beat(self._domain(request.group_id), event)

    def commit(self, event: CommitOffsets) -> "asyncio.Future[ErrorCode]":
        """What became of an OffsetCommit: all of it, or nothing with this code."""
        domain = self._domain(event.group_id)
        refusal = self._refusal(domain)
        if refusal is not None:
            return _done(refusal)
        return self._commits.commit(domain, event)

    def submit(self, event: GroupEvent) -> "asyncio.Future[EventResult]":
        """What became of any other event of a group."""
        if self._is_draining:
            return _done(_GOING)
        return self._domain(event.group_id).outbox.send(event)

    def _refusal(self, domain: GroupDomain) -> ErrorCode | None:
        """Why nothing is taken in now.

        A broker that stood still finds requests in its sockets that their clients have long sent
        elsewhere: written now, an old commit would follow a newer one (K6).
        """
        if self._is_draining:
            return _GOING
        return None if domain.is_well() else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _domain(self, group_id: str) -> GroupDomain:
        domains = self._domains
        return domains[0] if len(domains) == 1 else domains[domain_index(group_id, len(domains))]

    def _group(self, group_id: str) -> Group | None:
        return self._domain(group_id).group(group_id)

    def _renew(self, group_id: str, member_id: str) -> None:
        expiries = self._expiries
        domain = 0 if len(expiries) == 1 else domain_index(group_id, len(expiries))
        expiries[domain].renew(group_id, member_id)

    async def _forget_issued(self) -> None:
        while True:
            await asyncio.sleep(ISSUED_CHECK_S)
            self._classic.issued.expire(self._clock.monotonic_s())


def _refusal_of(budget: Budget, domain: GroupDomain, event: GroupEvent) -> ErrorCode | None:
    return budget.refusal(event, domain.table)


async def _nobody() -> Sequence[str]:
    return ()


def _done(answer: AnswerT) -> "asyncio.Future[AnswerT]":
    done: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done
