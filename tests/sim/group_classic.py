"""A member of the classic protocol, as the Java client is one: eager, with range assignments."""

import asyncio
import struct

from tests.sim.group_audit import decode_assignment, encode_assignment
from tests.sim.group_clients import AWAY, Member
from tests.sim.group_cluster import GroupCluster

from lakelog.coordinator.requests import JoinRequest, SyncRequest
from lakelog.groups.events import JoinAnswer
from lakelog.model.errors import ErrorCode
from lakelog.testing.group_history import HeardAssignment, HeardGeneration, HeardHeartbeat, Place

JOIN_SLACK_S = 5.0
"""How much longer than a rebalance may take a client waits for its join."""

RESETS = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""Codes after which a member is none any more."""


def subscription(topics: tuple[str, ...]) -> bytes:
    """The metadata of a consumer that reads these topics."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class ClassicMember(Member):
    """One consumer."""

    def __init__(
        self,
        cluster: GroupCluster,
        name: str,
        group_id: str,
        topics: tuple[str, ...],
        *,
        instance_id: str | None = None,
    ) -> None:
        super().__init__(cluster, name, group_id, topics)
        self.instance_id = instance_id
        self.epoch = -1
        self.is_leader = False
        self.dies_as_leader = False
        self.is_dead = False
        self.is_in = False
        self._is_eager = False
        """It speaks at once, without the usual pause."""
        self._assigned_from: frozenset[Place] = frozenset()

    def generation(self) -> int:
        return self.epoch

    async def run(self) -> None:
        """Join, work, join again, until told to leave."""
        while not (self.is_dead or self.fatal):
            if self.is_leaving:
                await self._leave()
                return
            if not self.is_in:
                await self._enter()
                continue
            if not self._is_eager:
                await self.nap(self._heartbeat_s() * self.dice.between(0.7, 1.1))
                await self.work()
            self._is_eager = False
            await self._beat()
            await self._look_at_topics()

    def _heartbeat_s(self) -> float:
        return self.cluster.settings.session_ms / 1000 / 5

    async def _look_at_topics(self) -> None:
        """A leader that sees new partitions joins again, to assign them."""
        has_changed = self.cluster.topics.places(self.topics) != self._assigned_from
        if self.is_in and self.is_leader and has_changed:
            await self._prepare()

    async def _prepare(self) -> None:
        """Before it joins again, an eager member commits and lets go of all it has."""
        if self.dice.chance(0.7):
            await self.commit()
        self.is_in = False
        self.forget()

    def _reset(self, *, keep_id: bool) -> None:
        self.is_in = False
        self.forget()
        self.epoch = -1
        if not keep_id:
            self.member_id = ""

    async def _enter(self) -> None:
        invoked_s = self.now_s()
        ask = self._join_ask()
        timeout_s = self.cluster.settings.rebalance_ms / 1000 + JOIN_SLACK_S
        answer = await self.ask(lambda broker: broker.coordinator.join(ask), timeout_s=timeout_s)
        if answer is None:
            await self.nap(0.1)
            return
        self.cluster.loop.note(self.name, "join", answer.code, answer.generation)
        if answer.code is not ErrorCode.NONE:
            await self._not_joined(answer)
            return
        self.member_id, self.epoch = answer.member_id, answer.generation
        self.is_leader = bool(answer.members)
        self.cluster.history.told.append(
            HeardGeneration(
                client=self.name,
                group=self.group_id,
                member=self.member_id,
                generation=self.epoch,
                invoked_s=invoked_s,
                returned_s=self.now_s(),
                roster=tuple(name for name, *_ in answer.members) if answer.members else None,
            )
        )
        if self.is_leader and self.dies_as_leader:
            self.cluster.reached.add("a leader died between join and sync")
            self.is_dead = True
            return
        await self._sync(answer)

    async def _not_joined(self, answer: JoinAnswer) -> None:
        match answer.code:
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._reset(keep_id=False)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fatal = answer.code
            case code if code in AWAY:
                self.move()
                await self.nap(0.2)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                await self.nap(0.1)
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                await self.nap(1.0)  # the group is still of the other protocol
            case code:
                self.cluster.violations.append(f"{self.name}: a join heard {code.name}")
                await self.nap(1.0)

    async def _sync(self, joined: JoinAnswer) -> None:
        shares: dict[str, frozenset[Place]] = {}
        if joined.members and not joined.skip_assignment:
            shares = self._shares([name for name, *_ in joined.members])
        if self.is_leader and joined.skip_assignment:
            # What holds was assigned by its predecessor, perhaps from fewer partitions.
            self._assigned_from = self.cluster.assigned_from.get(self.group_id, self._assigned_from)
        elif self.is_leader:
            self._assigned_from = self.cluster.topics.places(self.topics)
            self.cluster.assigned_from[self.group_id] = self._assigned_from
        await self.nap(self.dice.waiting_s(0.05))
        invoked_s = self.now_s()
        ask = self._sync_ask(joined, shares)
        answer = await self.ask(
            lambda broker: broker.coordinator.sync(ask),
            timeout_s=self.cluster.settings.rebalance_ms / 1000 + JOIN_SLACK_S,
        )
        if answer is None:
            return
        self.cluster.loop.note(self.name, "sync", answer.code)
        if answer.code is ErrorCode.NONE:
            self._take(answer.assignment, invoked_s)
        elif answer.code is ErrorCode.FENCED_INSTANCE_ID:
            self.fatal = answer.code
        elif answer.code in AWAY:
            self.move()
            await self.nap(0.2)
        elif answer.code in RESETS:
            self._reset(keep_id=answer.code is ErrorCode.ILLEGAL_GENERATION)
        elif answer.code is not ErrorCode.REBALANCE_IN_PROGRESS:
            self.cluster.violations.append(f"{self.name}: a sync heard {answer.code.name}")
            await self.nap(1.0)

    def _take(self, assignment: bytes, invoked_s: float) -> None:
        places = decode_assignment(assignment)
        self.is_in = True
        self.keep(places)
        self._is_eager = self.dice.chance(0.3)
        if self.dice.chance(self.moves):
            self.move()
        self.cluster.history.given.append(
            HeardAssignment(
                client=self.name,
                group=self.group_id,
                member=self.member_id,
                owner=self.instance_id or self.member_id,
                generation=self.epoch,
                assignment=assignment,
                places=places,
                invoked_s=invoked_s,
                returned_s=self.now_s(),
            )
        )

    def _shares(self, names: list[str]) -> dict[str, frozenset[Place]]:
        places = sorted(self.cluster.topics.places(self.topics))
        count = len(names)
        return {
            name: frozenset(places[at * len(places) // count : (at + 1) * len(places) // count])
            for at, name in enumerate(sorted(names))
        }

    async def _beat(self) -> None:
        invoked_s, member, generation = self.now_s(), self.member_id, self.epoch
        code = await self.ask(
            lambda broker: broker.coordinator.heartbeat(
                self.group_id,
                member_id=member,
                instance_id=self.instance_id,
                generation=generation,
            ),
            timeout_s=self.cluster.settings.client_timeout_s,
        )
        if code is None:
            return
        self.cluster.loop.note(self.name, "heartbeat", code)
        self.cluster.history.beaten.append(
            HeardHeartbeat(
                self.name, self.group_id, member, generation, code, invoked_s, self.now_s()
            )
        )
        match code:
            case ErrorCode.NONE:
                self.welcome()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.welcome()
                await self._prepare()
            case ErrorCode.ILLEGAL_GENERATION:
                self._reset(keep_id=True)
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self._reset(keep_id=False)
            case ErrorCode.FENCED_INSTANCE_ID:
                self.fatal = code
                self.forget()
            case _ if code in AWAY:
                self.move()
            case _:
                self.cluster.violations.append(f"{self.name}: a heartbeat heard {code.name}")

    async def _leave(self) -> None:
        """Commit and leave on one connection, without waiting in between (K11)."""
        committing = asyncio.create_task(self.commit())
        await asyncio.sleep(0.02)
        await self.ask(
            lambda broker: broker.coordinator.leave(
                self.group_id, [(self.member_id, self.instance_id)]
            ),
            timeout_s=self.cluster.settings.client_timeout_s,
        )
        await committing
        self.forget()
        self.is_in = False

    def _join_ask(self) -> JoinRequest:
        settings = self.cluster.settings
        return JoinRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            session_timeout_ms=settings.session_ms,
            rebalance_timeout_ms=settings.rebalance_ms,
            protocol_type="consumer",
            protocols=(("range", subscription(self.topics)),),
            api_version=9,
            client_id=self.name,
            client_host="/127.0.0.1",
        )

    def _sync_ask(self, joined: JoinAnswer, shares: dict[str, frozenset[Place]]) -> SyncRequest:
        return SyncRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            # Whoever gets nothing need not be named.
            assignments=tuple(
                (name, encode_assignment(one)) for name, one in shares.items() if one
            ),
            api_version=5,
            client_id=self.name,
            client_host="/127.0.0.1",
        )
