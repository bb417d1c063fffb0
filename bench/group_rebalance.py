"""B17: a rebalance of three members and a thousand partitions, heartbeats every 100 ms.

Timed from the moment at which a third member asks to join, or to leave, until every member that
stays has its new assignment. The classic leader assigns at once; members of the newer protocol let
go and say so at once, as clients do. Between two rebalances the group rests for longer than a
second, because both brokers compute at most one target a second.
"""

import asyncio
import time

from bench.arena import Arena, Contestant
from bench.group_lane import Lane, open_lanes
from bench.group_members import Member, Squad
from bench.groups import (
    KINDS,
    SETTLE_TIMEOUT_S,
    Meter,
    disband,
    equal_settings,
    find_coordinator,
    make_topic,
    warm_up,
)
from bench.pipeline import run_loop
from bench.raw import KafkaError
from bench.results import Metric, Sample, summarise

NAME = "b17"
SIZE, PARTITIONS = 3, 1_000
INTERVAL_S = 0.1
REST_S = 1.2
REPEATS = 3
METRICS = (
    Metric("join_ms", "ms", more_is_better=False),
    Metric("join_most_ms", "ms", more_is_better=False),
    Metric("leave_ms", "ms", more_is_better=False),
    Metric("leave_most_ms", "ms", more_is_better=False),
    Metric("others_cores", "cores", more_is_better=False),
)


class Drill:
    """Three members in the background, of whom the last comes and goes."""

    def __init__(self, kind: str, squad: Squad, lanes: list[Lane]) -> None:
        self._kind = kind
        self._squad = squad
        self._lanes = lanes
        self._over = asyncio.Event()
        self._joins: list[float] = []
        self._leaves: list[float] = []

    async def run(self, repeats: int) -> tuple[list[float], list[float]]:
        """Join and leave so many times; return the seconds of each."""
        self._squad.members = [KINDS[self._kind](self._squad, lane) for lane in self._lanes[:-1]]
        async with asyncio.TaskGroup() as living:
            for member in self._squad.members:
                living.create_task(member.live(self._over, interval_s=INTERVAL_S))
            await self._settled()
            for number in range(repeats):
                # Not a multiple of the interval: else every trigger falls on the same phase of it.
                await self._come_and_go(living, REST_S + INTERVAL_S * (number + 0.5) / repeats)
            self._over.set()
        await disband(self._squad)
        return self._joins, self._leaves

    async def _come_and_go(self, living: asyncio.TaskGroup, rest_s: float) -> None:
        await asyncio.sleep(rest_s)
        third: Member = KINDS[self._kind](self._squad, self._lanes[-1])
        gone = asyncio.Event()
        self._squad.expect(SIZE, after=self._squad.generation)
        started = time.perf_counter()
        task = living.create_task(third.live(gone, interval_s=INTERVAL_S))
        await self._settled()
        self._joins.append(time.perf_counter() - started)
        await asyncio.sleep(rest_s)
        gone.set()
        await task
        self._squad.expect(SIZE - 1, after=self._squad.generation)
        started = time.perf_counter()
        await third.leave()
        await self._settled()
        self._leaves.append(time.perf_counter() - started)

    async def _settled(self) -> None:
        try:
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                await self._squad.settled.wait()
        except TimeoutError as error:
            raise KafkaError(f"no new assignment for everybody: {self._squad}") from error


def run(arena: Arena) -> None:
    """Measure both protocols in turns."""
    with equal_settings(), arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for kind in KINDS:
                for contestant in contestants:
                    values = measure(contestant, kind, f"rebalance-{kind}-{number}")
                    cell = f"{SIZE} members, {PARTITIONS:,} partitions, {kind}"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def measure(contestant: Contestant, kind: str, group_id: str) -> dict[str, float]:
    """Let the third member come and go some times."""
    broker = contestant.broker
    topic = make_topic(broker.port, PARTITIONS)

    async def work() -> dict[str, float]:
        meter = Meter(broker)
        lanes = await open_lanes(broker.port, SIZE)
        await find_coordinator(lanes[0])
        squad = Squad(group_id, topic, size=SIZE - 1, partitions=PARTITIONS)
        joins, leaves = map(summarise, await Drill(kind, squad, lanes).run(REPEATS))
        for lane in lanes:
            lane.close()
        await asyncio.sleep(0)
        return {
            "join_ms": joins.median * 1e3,
            "join_most_ms": joins.high * 1e3,
            "leave_ms": leaves.median * 1e3,
            "leave_most_ms": leaves.high * 1e3,
            "others_cores": meter.others_cores(),
        }

    return run_loop(work())
