"""Groups on brokers that stop, die and lose their store: nobody shares, and all comes to rest.

The clients do what Kafka's do. While the world is bad it is checked that no partition has two
owners in one generation (P1) and that generations never go back; when it is good again, every
client has its share within a minute, and no rebalance follows.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.coordinator.coordinator_cluster import (
    TOPIC,
    CoordinatorBroker,
    CoordinatorCluster,
    beat_ask,
    join_ask,
    play,
    sync_ask,
)

from lakelog.coordinator.options import GroupOptions
from lakelog.groups.events import JoinAnswer
from lakelog.model.errors import ErrorCode
from lakelog.testing.faulty import Faults
from lakelog.testing.simulation import SimEntropy

PARTITIONS = 12
OPTIONS = GroupOptions(initial_rebalance_delay_ms=500, consumer_session_timeout_ms=10_000)
LOST = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
REQUEST_S = 5.0
JOIN_S = 25.0
T = TypeVar("T")


@dataclass
class ObservedGroups:
    """What all clients see and what they were told."""

    cluster: CoordinatorCluster
    dice: SimEntropy
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """By generation and partition: who was given it."""
    faults: list[str] = field(default_factory=list)

    def pick(self) -> CoordinatorBroker | None:
        running = [
            broker
            for broker in self.cluster.brokers.values()
            if not broker.process.dead and broker.number in self.cluster.everybody.live
        ]
        return self.dice.pick(running) if running else None

    def given(self, generation: int, member_id: str, share: bytes) -> None:
        for partition in share:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                self.faults.append(f"{generation}/{partition}: {owner} and {member_id}")


class ResetError(Exception):
    """The connection broke, or the request took too long."""


async def asked(broker: CoordinatorBroker, task: "asyncio.Task[T]", *, timeout_s: float) -> T:
    """The answer of a broker that lives on."""
    for _ in range(int(timeout_s / 0.25)):
        done, _ = await asyncio.wait([task], timeout=0.25)
        if done:
            return task.result()
        if broker.process.dead:
            break
    raise ResetError


class ClassicClient:
    """A consumer of the classic protocol."""

    def __init__(self, observed: ObservedGroups, number: int) -> None:
        self.observed = observed
        self.number = number
        self.member_id = ""
        self.generation = -1
        self.share: bytes | None = None
        self.broker: CoordinatorBroker | None = None

    async def run(self) -> None:
        while True:
            self.share = None
            if self.broker is None or self.broker.process.dead:
                self.broker = self.observed.pick()
            if self.broker is None:
                await asyncio.sleep(0.5)
                continue
            try:
                if await self._join(self.broker):
                    await self._consume(self.broker)
            except ResetError:
                self.broker = None
            await asyncio.sleep(0.1)

    async def _join(self, broker: CoordinatorBroker) -> bool:
        ask = join_ask(self.member_id, rebalance_timeout_ms=20_000)
        answer = await asked(broker, broker.join(ask), timeout_s=JOIN_S)
        if answer.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        if answer.code is not ErrorCode.NONE:
            return self._failed(answer.code)
        if answer.generation < self.generation:
            self.observed.faults.append(f"{self.number}: back to {answer.generation}")
        self.member_id, self.generation = answer.member_id, answer.generation
        shares = sync_ask(self.member_id, self.generation, *_shares(answer))
        synced = await asked(broker, broker.sync(shares), timeout_s=JOIN_S)
        if synced.code is not ErrorCode.NONE:
            return self._failed(synced.code)
        self.share = synced.assignment
        self.observed.given(self.generation, self.member_id, synced.assignment)
        return True

    async def _consume(self, broker: CoordinatorBroker) -> None:
        while True:
            await asyncio.sleep(1.0)
            heartbeat = broker.heartbeat(self.member_id, self.generation)
            code = await asked(broker, heartbeat, timeout_s=REQUEST_S)
            if code is not ErrorCode.NONE:
                self._failed(code)
                return

    def _failed(self, code: ErrorCode) -> bool:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code in LOST:
            self.broker = None
        else:
            assert code in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}, code
        return False


def _shares(answer: JoinAnswer) -> list[tuple[str, bytes]]:
    names = sorted(name for name, _, _ in answer.members)
    return [(name, bytes(range(place, PARTITIONS, len(names)))) for place, name in enumerate(names)]


class ModernClient:
    """A consumer of KIP-848, which does at once what it is told."""

    def __init__(self, observed: ObservedGroups, number: int) -> None:
        self.observed = observed
        self.member_id = f"modern-{number}"
        self.epoch = 0
        self.owned: tuple[int, ...] = ()
        self.broker: CoordinatorBroker | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            if self.broker is None or self.broker.process.dead:
                self.broker = self.observed.pick()
            if self.broker is None:
                continue
            try:
                await self._beat(self.broker)
            except ResetError:
                self.broker = None

    async def _beat(self, broker: CoordinatorBroker) -> None:
        owned = ((bytes(TOPIC), self.owned),) if self.owned else ()
        ask = beat_ask(self.member_id, self.epoch, group_id="modern", owned=owned)
        answer = await asked(broker, broker.beat(ask), timeout_s=REQUEST_S)
        if answer.code in LOST:
            self.broker = None
        elif answer.code is not ErrorCode.NONE:
            gone = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
            assert answer.code in gone, answer
            self.epoch, self.owned = 0, ()
        else:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.owned = answer.assignment[0][1] if answer.assignment else ()


async def disturb(observed: ObservedGroups) -> None:
    """Everything that may happen to brokers, for two minutes."""
    cluster, dice = observed.cluster, observed.dice
    for _ in range(12):
        await asyncio.sleep(dice.between(1, 10))
        broker = observed.pick()
        if broker is None:
            continue
        kind = dice.pick(["stop", "kill", "outage", "away"])
        if kind == "stop":
            cluster.loop.stop_process(broker.process)
            await asyncio.sleep(dice.between(0, 15))
            cluster.loop.continue_process(broker.process)
        elif kind == "kill":
            cluster.kill(broker)
            await asyncio.sleep(dice.between(0, 12))
            await restarted(cluster, broker)
        elif kind == "outage":
            broker.faults.outage_until_s = cluster.loop.time() + dice.between(1, 15)
        else:
            # The others hold that it is gone, and it knows that it may be.
            cluster.everybody.live.remove(broker.number)
            broker.brokers.until_s = broker.clock.monotonic_s()
            await asyncio.sleep(dice.between(0, 15))
            cluster.everybody.live.append(broker.number)
            broker.brokers.until_s = float("inf")


async def restarted(cluster: CoordinatorCluster, broker: CoordinatorBroker) -> None:
    fresh = await cluster.broker(broker.number, skew_ms=broker.clock.skew_ms)
    spoil(fresh.faults)


def spoil(faults: Faults) -> None:
    faults.unavailable = faults.lost_request = faults.lost_reply = faults.late = 0.02
    faults.watch_loss = 0.1
    faults.late_s = 1.0


@pytest.mark.parametrize("seed", range(12))
def test_groups_survive_a_bad_world_and_come_to_rest(seed: int) -> None:
    async def scenario(cluster: CoordinatorCluster) -> None:
        cluster.book.put("t", TOPIC, PARTITIONS)
        observed = ObservedGroups(cluster, cluster.loop.dice("world"))
        for number, skew_ms in ((1, 0), (2, 3_600_000), (3, -3_600_000)):
            spoil((await cluster.broker(number, skew_ms=skew_ms)).faults)
        classics = [ClassicClient(observed, number) for number in range(5)]
        moderns = [ModernClient(observed, number) for number in range(5)]
        running = [*(one.run() for one in classics), *(one.run() for one in moderns)]
        clients = [asyncio.ensure_future(one) for one in running]
        await disturb(observed)
        for broker in cluster.brokers.values():
            broker.faults.heal()
        await asyncio.sleep(90)
        check_rest(observed, classics, moderns)
        before = {one.generation for one in classics}
        epochs = {one.epoch for one in moderns}
        await asyncio.sleep(60)
        check_rest(observed, classics, moderns)
        assert {one.generation for one in classics} == before
        assert {one.epoch for one in moderns} == epochs
        assert observed.faults == []
        for client in clients:
            assert not client.done(), client.result()
            client.cancel()

    play(scenario, options=OPTIONS, seed=seed)


def check_rest(
    observed: ObservedGroups, classics: list[ClassicClient], moderns: list[ModernClient]
) -> None:
    """Everybody has a share, all shares are everything, and nothing is shared."""
    shares = [one.share for one in classics]
    assert None not in shares, shares
    assert sorted(b"".join(share for share in shares if share)) == list(range(PARTITIONS)), shares
    assert len({one.generation for one in classics}) == 1
    owned = sorted(partition for one in moderns for partition in one.owned)
    assert owned == list(range(PARTITIONS)), [one.owned for one in moderns]
    for broker in observed.cluster.brokers.values():
        members = {one.member_id for one in classics}
        assert set(broker.classic().members) == members
