"""A member of the consumer protocol (KIP-848), as the Java client is one."""

import math

from tests.sim.group_clients import AWAY, Member
from tests.sim.group_cluster import GroupCluster

from lakelog.coordinator.requests import ConsumerHeartbeatRequest
from lakelog.groups.events import ConsumerHeartbeatResult, Owned
from lakelog.model.errors import ErrorCode
from lakelog.testing.group_history import HeardHeartbeat, Place

FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})
"""Codes after which a member lets go of everything and joins again."""


class ModernMember(Member):
    """One consumer: it heartbeats, and lets go of what it shall not have before it says so."""

    def __init__(
        self,
        cluster: GroupCluster,
        name: str,
        group_id: str,
        topics: tuple[str, ...],
        *,
        instance_id: str | None = None,
        pattern: str | None = None,
    ) -> None:
        super().__init__(cluster, name, group_id, topics)
        self.instance_id = instance_id
        self.member_id = f"{name}-id"
        self.pattern = pattern
        self.epoch = 0
        self.tenure = 0
        self.goes_for_a_while = False
        self.is_slow = False
        """It takes longer to let go of partitions than it may."""
        self._shall: frozenset[Place] = frozenset()
        self._revoked_s = math.inf
        self._tells_all = True
        self._told_owned: frozenset[Place] | None = None
        cluster.auditor.believers.append(self)

    def generation(self) -> int:
        return self.epoch

    async def run(self) -> None:
        """Heartbeat and work until told to leave."""
        while self.fatal is None:
            if self.is_leaving:
                await self._leave()
                return
            await self._beat()
            if self.epoch > 0:
                await self.work()
            self._let_go()
            if self._told_owned is not None and self._told_owned != self.owned:
                continue  # it says at once that it has done what it was told
            await self.nap(self._pause_s())
            self._let_go()

    def _pause_s(self) -> float:
        beat_s = self.cluster.settings.options.consumer_heartbeat_interval_ms / 1000
        if self._revoked_s < math.inf:
            return max(0.01, min(beat_s, self._revoked_s - self.now_s()))
        return beat_s * self.dice.between(0.7, 1.0)

    async def _beat(self) -> None:
        invoked_s = self.now_s()
        ask = self._ask()
        answer = await self.ask(
            lambda broker: broker.coordinator.beat(ask),
            timeout_s=self.cluster.settings.client_timeout_s,
        )
        if answer is None:
            self._tells_all = True
            await self.nap(0.1)
            return
        self.cluster.loop.note(self.name, "beat", answer.code, answer.epoch)
        if answer.code is ErrorCode.NONE:
            self._hear(ask, answer, invoked_s)
        else:
            await self._refused(answer, ask, invoked_s)

    def _hear(
        self, ask: ConsumerHeartbeatRequest, answer: ConsumerHeartbeatResult, invoked_s: float
    ) -> None:
        self._tells_all = False
        if ask.owned is not None:
            self._told_owned = self.owned
        if ask.member_epoch == 0:
            self.tenure = self.cluster.auditor.tenure(self.group_id, self.member_id)
        self.epoch = answer.epoch
        self.welcome()
        self._note(answer.epoch, answer.code, invoked_s)
        if answer.assignment is not None:
            self._shall = frozenset(
                (topic, partition)
                for topic, partitions in answer.assignment
                for partition in partitions
            )
            if self.owned - self._shall and self._revoked_s == math.inf:
                usual_s = self.dice.waiting_s(0.2)
                slow_s = 2 * self.cluster.settings.rebalance_ms / 1000
                self._revoked_s = self.now_s() + (slow_s if self.is_slow else usual_s)
        self.cluster.auditor.believe(self.group_id)

    async def _refused(
        self, answer: ConsumerHeartbeatResult, ask: ConsumerHeartbeatRequest, invoked_s: float
    ) -> None:
        self._tells_all = True
        code = answer.code
        if ask.member_epoch > 0:
            self._note(ask.member_epoch, code, invoked_s)
        if code in FENCED:
            self.cluster.reached.add(f"a consumer was fenced: {code.name}")
            self._lose()
        elif code in AWAY:
            self.move()
            await self.nap(0.2)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._lose()
            self.fatal = code
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID or (
            code is ErrorCode.GROUP_ID_NOT_FOUND and ask.member_epoch == 0
        ):
            await self.nap(1.0)  # its predecessor is still there, or the other protocol
        else:
            self.cluster.violations.append(f"{self.name}: a heartbeat heard {code.name}: {answer}")
            self._lose()
            await self.nap(1.0)

    def _note(self, epoch: int, code: ErrorCode, invoked_s: float) -> None:
        self.cluster.history.beaten.append(
            HeardHeartbeat(
                self.name, self.group_id, self.member_id, epoch, code, invoked_s, self.now_s()
            )
        )

    def _lose(self) -> None:
        self.forget()
        self.epoch = 0
        self._shall = frozenset()
        self._revoked_s = math.inf
        self._told_owned = None
        self._tells_all = True

    def _let_go(self) -> None:
        """What has to go goes once nobody works on it any more; then comes what is new."""
        if self.epoch <= 0 or self.owned == self._shall:
            return
        if self._revoked_s < math.inf and self.now_s() < self._revoked_s:
            return
        self._revoked_s = math.inf
        self.keep(self._shall)
        self.cluster.auditor.believe(self.group_id)

    async def _leave(self) -> None:
        await self.commit()
        epoch = -2 if self.goes_for_a_while and self.instance_id else -1
        self.forget()
        ask = self._ask(leaves=epoch)
        await self.ask(
            lambda broker: broker.coordinator.beat(ask),
            timeout_s=self.cluster.settings.client_timeout_s,
        )
        self.epoch = 0

    def _ask(self, leaves: int = 0) -> ConsumerHeartbeatRequest:
        all_of_it = (self._tells_all or self.epoch == 0) and not leaves
        says_owned = all_of_it or self._told_owned != self.owned
        return ConsumerHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=leaves or self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            rebalance_timeout_ms=self.cluster.settings.rebalance_ms if all_of_it else -1,
            names=(() if self.pattern else self.topics) if all_of_it else None,
            pattern=self.pattern if all_of_it else None,
            assignor=None,
            owned=listed(self.owned) if says_owned and not leaves else None,
            api_version=1,
            client_id=self.name,
            client_host="/127.0.0.1",
        )


def listed(places: frozenset[Place]) -> Owned:
    """Partitions as a request carries them."""
    topics = sorted({topic for topic, _ in places})
    return tuple(
        (topic, tuple(sorted(number for name, number in places if name == topic)))
        for topic in topics
    )
