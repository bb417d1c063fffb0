"""What simulated members of both protocols share: a connection, offsets, and how they end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.sim.group_cluster import GroupBroker, GroupCluster

from lakelog.groups.events import CommitOffsets
from lakelog.model.errors import ErrorCode
from lakelog.model.failures import Unavailable
from lakelog.testing.group_history import HeardCommit, Place, Read
from lakelog.testing.simulation import SimEntropy

T = TypeVar("T")
AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Codes that make a client look for its coordinator again."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A heartbeat that was welcome: when it was sent, to whom, and whether that was the holder."""

    asked_s: float
    broker: GroupBroker
    is_holder: bool


class Client:
    """A broker to talk to, and another one when that is bad."""

    def __init__(self, cluster: GroupCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.dice: SimEntropy = cluster.loop.dice(name)
        self.answered: tuple[float, GroupBroker] | None = None
        """When it asked what was answered last, and whom."""
        self._broker: GroupBroker | None = None

    def now_s(self) -> float:
        return self.cluster.loop.time()

    async def broker(self) -> GroupBroker:
        """The broker in use, or another one once that is gone."""
        while True:
            running = self.cluster.running()
            if self._broker is not None and self._broker in running:
                return self._broker
            if running:
                self._broker = self.dice.pick(running)
                return self._broker
            await asyncio.sleep(0.1)

    def move(self) -> None:
        """Choose anew next time: it may be the same one."""
        self._broker = None

    async def ask(
        self, act: Callable[[GroupBroker], Awaitable[T]], *, timeout_s: float
    ) -> T | None:
        """Ask the broker; None when no answer came, whatever became of the request."""
        broker = await self.broker()
        asked_s = self.now_s()
        await asyncio.sleep(self.dice.waiting_s(0.001))
        request = broker.ask(act)
        awaited: list[asyncio.Future[Any]] = [request, broker.gone]
        await asyncio.wait(awaited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        is_lost = self.dice.chance(self.cluster.loses_replies)
        if not request.done() or request.cancelled() or is_lost:
            self.cluster.reached.add("a client lost its answer")
            self.move()
            return None
        error = request.exception()
        if error is not None:
            if not isinstance(error, Unavailable):
                self.cluster.violations.append(f"{self.name} at {broker.name}: {error!r}")
            self.move()
            return None
        await asyncio.sleep(self.dice.waiting_s(0.001))
        self.answered = asked_s, broker
        return request.result()


class Member(Client, ABC):
    """A client in a group: it reads its partitions and commits how far it got."""

    def __init__(
        self, cluster: GroupCluster, name: str, group_id: str, topics: tuple[str, ...]
    ) -> None:
        super().__init__(cluster, name)
        self.group_id = group_id
        self.topics = topics
        self.member_id = ""
        self.instance_id: str | None = None
        self.owned: frozenset[Place] = frozenset()
        self.paused_until_s = 0.0
        self.is_leaving = False
        self.fatal: ErrorCode | None = None
        self.moves = self.dice.pick((0.0, 0.0, 0.05, 0.4))
        self.commits = self.dice.pick((0.0, 0.1, 0.5))
        """How often it commits; who never does finds out late that its broker is in trouble."""
        self.contact: Contact | None = None
        """The last heartbeat that was welcome."""
        self._positions: dict[Place, int] = {}
        self._tokens = 0

    @abstractmethod
    async def run(self) -> None:
        """Be a member until told otherwise."""

    @abstractmethod
    def generation(self) -> int:
        """What commits are made under."""

    async def nap(self, wait_s: float) -> None:
        """Wait; a paused client waits longer, and knows nothing of it."""
        await asyncio.sleep(wait_s)
        while self.now_s() < self.paused_until_s:
            await asyncio.sleep(self.paused_until_s - self.now_s())
        if self.dice.chance(self.moves):
            self.move()

    def welcome(self) -> None:
        """The last request was a heartbeat, and it was welcome."""
        if self.answered is not None:
            asked_s, broker = self.answered
            group = self.cluster.group(self.group_id)
            known = None if group is None else group.members.get(self.member_id)
            is_holder = known is not None and known.holder == broker.number
            self.contact = Contact(asked_s, broker, is_holder)

    async def work(self) -> None:
        """Read a little and commit it; a partition that is new begins where it was committed."""
        fresh = [place for place in sorted(self.owned) if place not in self._positions]
        if fresh:
            await self._resume(fresh)
        for place in sorted(self.owned & self._positions.keys()):
            self._positions[place] += self.dice.number(1, 5)
        if self.dice.chance(self.commits):
            await self.commit()

    async def commit(self) -> ErrorCode | None:
        """Commit all positions; None where no answer came."""
        places = sorted(self.owned & self._positions.keys())
        if not places or not self.member_id:
            return ErrorCode.NONE
        asked = self._commit_event(places)
        generation, invoked_s = self.generation(), self.now_s()
        code = await self.ask(
            lambda broker: broker.coordinator.commit(asked),
            timeout_s=self.cluster.settings.client_timeout_s,
        )
        for topic, partition, _, _, token in asked.offsets:
            self.cluster.history.committed.append(
                HeardCommit(
                    client=self.name,
                    group=self.group_id,
                    member=asked.member_id,
                    generation=generation,
                    place=(topic, partition),
                    token=token,
                    code=code,
                    invoked_s=invoked_s,
                    returned_s=self.now_s(),
                )
            )
        self.cluster.loop.note(self.name, "commit", code)
        if code in AWAY:
            self.move()
        if code is not None:
            self.cluster.reached.add(f"a commit heard {code.name}")
        return code

    def forget(self) -> None:
        """Let go of everything."""
        self.owned = frozenset()
        self._positions = {}

    def keep(self, places: Collection[Place]) -> None:
        """Have these and nothing else."""
        self.owned = frozenset(places)
        self._positions = {
            place: offset for place, offset in self._positions.items() if place in self.owned
        }

    def _commit_event(self, places: list[Place]) -> CommitOffsets:
        offsets = []
        for topic, partition in places:
            self._tokens += 1
            token = f"{self.name}#{self._tokens}"
            offsets.append((topic, partition, self._positions[topic, partition], 0, token))
        return CommitOffsets(
            group_id=self.group_id,
            member_id=self.member_id,
            instance_id=self.instance_id,
            generation=self.generation(),
            api_version=9,
            time_ms=self.cluster.clock.now_ms(),
            offsets=tuple(offsets),
        )

    async def _resume(self, places: list[Place]) -> None:
        found = await read_offsets(self, self.group_id, places)
        if found is not None:
            self._positions.update({place: found[place] for place in places})


async def read_offsets(
    client: Client, group_id: str, places: Collection[Place]
) -> dict[Place, int] | None:
    """An OffsetFetch, written down; None when there was no answer."""
    invoked_s = client.now_s()
    table = await client.ask(
        lambda broker: broker.offsets(group_id), timeout_s=client.cluster.settings.client_timeout_s
    )
    if table is None:
        return None
    for place in places:
        known = table.get(place)
        token = None if known is None else known.metadata
        client.cluster.history.read.append(
            Read(client.name, group_id, place, token, invoked_s, client.now_s())
        )
    return {place: table[place].offset if place in table else 0 for place in places}
