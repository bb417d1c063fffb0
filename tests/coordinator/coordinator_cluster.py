"""A simulated cluster of coordinators alone, and requests as Kafka's clients send them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeGuard, TypeVar

from msgspec.structs import replace
from tests.simulated_cluster import SimulatedBroker, SimulatedCluster, TopicBook

from lakelog.coordinator.coordinator import GroupCoordinator
from lakelog.coordinator.options import GroupOptions, default_settings
from lakelog.coordinator.requests import ConsumerHeartbeatRequest, JoinRequest, SyncRequest
from lakelog.domain.envelope import decode_record
from lakelog.domain.events import Event, GroupChange
from lakelog.domain.options import DomainOptions
from lakelog.domain.state import LEVEL_MAX
from lakelog.groups.events import (
    CommitOffsets,
    ConsumerHeartbeatResult,
    GroupEvent,
    JoinAnswer,
    SyncAnswer,
)
from lakelog.groups.parts import GroupPart
from lakelog.groups.state import ClassicGroup, ConsumerGroup, Group, GroupSettings
from lakelog.model.errors import ErrorCode
from lakelog.model.ids import TopicId
from lakelog.telemetry import MetricsRegistry
from lakelog.testing.faulty import Faults
from lakelog.testing.simulation import SimLoop, simulate

T = TypeVar("T")
EventT = TypeVar("EventT", bound=GroupEvent)
SESSION_MS = 10_000
TOPIC = TopicId(bytes(range(16)))
OTHER_TOPIC = TopicId(bytes(range(16, 32)))


class Members:
    """Who lives, as all brokers see it."""

    def __init__(self) -> None:
        self.live: list[int] = []


class BrokersView:
    """Who lives, as one broker sees it; a test says how long its session does."""

    def __init__(self, own_id: int, everybody: Members) -> None:
        self.own_id = own_id
        self.until_s = float("inf")
        self._everybody = everybody

    def live(self) -> Sequence[int]:
        return sorted({*self._everybody.live, self.own_id})

    def alive_until_s(self) -> float:
        return self.until_s

    def ranked(self, key: str) -> Sequence[int]:
        def score(broker: int) -> bytes:
            return blake2b(f"{key}/{broker}".encode(), digest_size=8).digest()

        return sorted(self.live(), key=score)


class SharedTopicBook(TopicBook):
    """The topics, of which all brokers hear at once."""

    def put(self, name: str, topic: TopicId, partitions: int) -> None:
        self.set({**self.topics(), name: (topic, partitions)})

    def drop(self, name: str) -> None:
        self.set({key: value for key, value in self.topics().items() if key != name})


class ChosenSettings:
    """What was chosen for single groups."""

    def __init__(self, options: GroupOptions) -> None:
        self.defaults = default_settings(options)
        self.chosen: dict[str, GroupSettings] = {}

    def of(self, group_id: str) -> GroupSettings:
        return self.chosen.get(group_id, self.defaults)


class CoordinatorBroker(SimulatedBroker):
    """A broker that coordinates groups and does nothing else; its object store never fails."""

    def __init__(
        self, cluster: "CoordinatorCluster", number: int, *, skew_ms: int, domains: int
    ) -> None:
        name, start_s = f"broker-{number}", 1_000.0 * number
        super().__init__(cluster, number, name, start_s=start_s, skew_ms=skew_ms)
        loop = cluster.loop
        self.faults = Faults(latency_s=0.001, timeout_s=0.2)
        metadata = self.metadata_store(self.faults, loop.dice(f"{number}"))
        options = cluster.domain_options
        self.replicas = self.replicas_of(metadata, cluster.objects, options, domains)
        self.brokers = BrokersView(number, cluster.everybody)
        self.metrics = MetricsRegistry()
        self.coordinator = GroupCoordinator(
            self.replicas,
            self.brokers,
            cluster.book,
            self.clock,
            loop.dice(f"ids {number}").entropy,
            cluster.options,
            self.metrics,
            cluster.settings,
        )

    async def begin(self) -> "Sequence[asyncio.Task[None]]":
        """Load and serve; a test looks itself at what fails."""
        for replica in self.replicas:
            await replica.start(found=True)
        self.coordinator.start()
        self.ready = True
        return []

    def call(self, act: Callable[[], Awaitable[T]]) -> "asyncio.Task[T]":
        """Have the broker do this as if a client had asked."""

        async def work() -> T:
            return await act()

        return self.spawn(work())

    def group(self, group_id: str) -> Group | None:
        return self.coordinator.table(group_id).groups.get(group_id)

    def classic(self, group_id: str = "g") -> ClassicGroup:
        group = self.group(group_id)
        assert isinstance(group, ClassicGroup), group
        return group

    def consumer(self, group_id: str = "g") -> ConsumerGroup:
        group = self.group(group_id)
        assert isinstance(group, ConsumerGroup), group
        return group

    def join(self, ask: JoinRequest) -> "asyncio.Task[JoinAnswer]":
        return self.call(lambda: self.coordinator.join(ask))

    def sync(self, ask: SyncRequest) -> "asyncio.Task[SyncAnswer]":
        return self.call(lambda: self.coordinator.sync(ask))

    def beat(self, ask: ConsumerHeartbeatRequest) -> "asyncio.Task[ConsumerHeartbeatResult]":
        return self.call(lambda: self.coordinator.beat(ask))

    def commit(self, event: CommitOffsets) -> "asyncio.Task[ErrorCode]":
        return self.call(lambda: self.coordinator.commit(event))

    def heartbeat(
        self, member_id: str, generation: int, group_id: str = "g", instance_id: str | None = None
    ) -> "asyncio.Task[ErrorCode]":
        return self.call(
            lambda: self.coordinator.heartbeat(
                group_id, member_id=member_id, instance_id=instance_id, generation=generation
            )
        )


class CoordinatorCluster(SimulatedCluster):
    """The topics, who lives, and the brokers."""

    def __init__(self, loop: SimLoop, options: GroupOptions, domain_options: DomainOptions) -> None:
        super().__init__(loop, "c")
        self.options = options
        self.domain_options = domain_options
        self.everybody = Members()
        self.book = SharedTopicBook()
        self.settings = ChosenSettings(options)
        self.brokers: dict[int, CoordinatorBroker] = {}

    async def broker(
        self, number: int = 1, *, skew_ms: int = 0, domains: int = 1
    ) -> CoordinatorBroker:
        broker = CoordinatorBroker(self, number, skew_ms=skew_ms, domains=domains)
        self.everybody.live.append(number)
        await self.loop.spawn(broker.begin(), process=broker.process, name="start")
        self.brokers[number] = broker
        return broker

    def written(self, kind: type[EventT]) -> list[EventT]:
        """The events of groups of this kind in the log, in order."""
        changes = [event.event for event in self._events() if is_change(event)]
        return [event for event in changes if isinstance(event, kind)]

    def written_parts(self) -> list[GroupPart]:
        """The parts of larger events in the log, in order."""
        return [event for event in self._events() if isinstance(event, GroupPart)]

    def _events(self) -> list[Event]:
        records = [
            decode_record(mutation.data, level_max=LEVEL_MAX)
            for mutation in self.journal.mutations
            if mutation.kind == "append"
        ]
        return [event for record in records for event in record.events]

    def kill(self, broker: CoordinatorBroker) -> None:
        self.loop.kill_process(broker.process)
        self.everybody.live.remove(broker.number)

    def group_owned_by(self, number: int) -> str:
        """A group id whose first broker is this one."""
        ranked = self.brokers[number].brokers.ranked
        return next(
            name for name in map("group-{}".format, range(1000)) if ranked(name)[0] == number
        )


def is_change(event: Event) -> TypeGuard[GroupChange]:
    return isinstance(event, GroupChange)


async def keep_alive(
    broker: CoordinatorBroker, answer: JoinAnswer, *, every_s: float, for_s: float
) -> None:
    """Send heartbeats as a client does; each must be welcome."""
    for _ in range(int(for_s / every_s)):
        await asyncio.sleep(every_s)
        code = await broker.heartbeat(answer.member_id, answer.generation)
        assert code is ErrorCode.NONE, code


QUICK = GroupOptions(initial_rebalance_delay_ms=0)
DOMAIN = DomainOptions()


def play(
    scenario: Callable[[CoordinatorCluster], Awaitable[None]],
    *,
    options: GroupOptions = QUICK,
    domain: DomainOptions = DOMAIN,
    seed: int = 7,
) -> None:
    """Run a scenario in virtual time."""

    async def main(loop: SimLoop) -> None:
        await scenario(CoordinatorCluster(loop, options, domain))

    simulate(main, seed=seed)


def join_ask(member_id: str = "", **changes: Any) -> JoinRequest:
    ask = JoinRequest(
        group_id="g",
        member_id=member_id,
        instance_id=None,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=(("range", b"\0\0\0\0\0\1\0\1t\0\0\0\0"),),
        api_version=9,
        client_id="client",
        client_host="/127.0.0.1",
    )
    return replace(ask, **changes)


def sync_ask(
    member_id: str, generation: int, *assignments: tuple[str, bytes], group_id: str = "g"
) -> SyncRequest:
    return SyncRequest(
        group_id=group_id,
        member_id=member_id,
        instance_id=None,
        generation=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
        api_version=5,
        client_id="client",
        client_host="/127.0.0.1",
    )


def beat_ask(
    member_id: str = "m", member_epoch: int = 0, **changes: Any
) -> ConsumerHeartbeatRequest:
    joins = member_epoch == 0
    ask = ConsumerHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=member_epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=60_000 if joins else -1,
        names=("t",) if joins else None,
        pattern=None,
        assignor=None,
        owned=() if joins else None,
        api_version=1,
        client_id="client",
        client_host="/127.0.0.1",
    )
    return replace(ask, **changes)


def commit_event(member_id: str = "", generation: int = -1, **changes: Any) -> CommitOffsets:
    event = CommitOffsets(
        group_id="g",
        member_id=member_id,
        instance_id=None,
        generation=generation,
        api_version=9,
        time_ms=1_000,
        offsets=((bytes(TOPIC), 0, 5, -1, ""),),
    )
    return replace(event, **changes)


async def joined(broker: CoordinatorBroker, **changes: Any) -> JoinAnswer:
    """A new member with its first generation, alone or with whoever waits already."""
    first = await broker.join(join_ask(**changes))
    assert first.code is ErrorCode.MEMBER_ID_REQUIRED, first
    return await broker.join(join_ask(first.member_id, **changes))


async def stable(broker: CoordinatorBroker, **changes: Any) -> JoinAnswer:
    """A group of one member with its assignment."""
    answer = await joined(broker, **changes)
    assert answer.code is ErrorCode.NONE, answer
    group_id = str(changes.get("group_id", "g"))
    asked = sync_ask(
        answer.member_id, answer.generation, (answer.member_id, b"mine"), group_id=group_id
    )
    synced = await broker.sync(asked)
    assert (synced.code, synced.assignment) == (ErrorCode.NONE, b"mine"), synced
    return answer
