"""B15: committed partitions a second through one broker, by many members at once.

Members of several groups commit in a closed loop, some requests under way on every connection: one
partition a request, and a hundred. Every commit carries its member and generation, so that the
broker has to check them, and every offset is new.
"""

import asyncio
import time
from collections import deque

from bench import group_wire as wire
from bench.arena import Arena, Contestant
from bench.broker import ProcessBroker
from bench.group_lane import open_lanes
from bench.group_members import ClassicMember
from bench.groups import Crowd, Meter, Shape, assemble, equal_settings, make_topic, warm_up
from bench.pipeline import run_loop
from bench.raw import KafkaError
from bench.results import Metric, Sample, percentiles_ms

NAME = "b15"
GROUPS, SIZE = 8, 8
PARTITIONS = 1_000
IN_FLIGHT = 8
BATCHES = (1, 100)
SECONDS_MIN = 3.0
SETTLE_S = 0.5
METRICS = (
    Metric("partitions_s", "partitions/s"),
    Metric("partitions_per_cpu_s", "partitions/broker-cpu-s"),
    Metric("requests_s", "1/s"),
    Metric("commit_p50_ms", "ms", more_is_better=False),
    Metric("commit_p99_ms", "ms", more_is_better=False),
    Metric("others_cores", "cores", more_is_better=False),
)


class Committers:
    """Every member commits, again and again, with some requests under way."""

    def __init__(self, crowd: Crowd, topic: str, batch: int) -> None:
        self.requests = 0
        self.latencies: list[float] = []
        self._members = [each for squad in crowd.squads for each in squad.members]
        self._topic = topic
        self._batch = batch
        self._is_over = False

    async def run(self, broker: ProcessBroker, seconds: float) -> dict[str, float]:
        """Commit for some seconds; return how much and what it cost."""
        async with asyncio.TaskGroup() as committing:
            for number, member in enumerate(self._members):
                assert isinstance(member, ClassicMember), "only classic members commit here"
                committing.create_task(self._commit(member, number))
            await asyncio.sleep(SETTLE_S)
            before, meter = self.requests, Meter(broker)
            self.latencies.clear()
            await asyncio.sleep(seconds)
            requests = self.requests - before
            cpu_s, wall_s = meter.cpu_seconds(), meter.wall_seconds()
            others = meter.others_cores()
            self._is_over = True
        p50, p99, _ = percentiles_ms(self.latencies)
        return {
            "partitions_s": requests * self._batch / wall_s,
            "partitions_per_cpu_s": requests * self._batch / max(cpu_s, 0.01),
            "requests_s": requests / wall_s,
            "commit_p50_ms": p50,
            "commit_p99_ms": p99,
            "others_cores": others,
        }

    async def _commit(self, member: ClassicMember, number: int) -> None:
        under_way: deque[tuple[float, asyncio.Future[bytes]]] = deque()
        sent = 0
        while under_way or not self._is_over:
            while len(under_way) < IN_FLIGHT and not self._is_over:
                body = self._body(member, number, sent)
                answer = member.lane.ask(wire.OFFSET_COMMIT, wire.OFFSET_COMMIT_VERSION, body)
                under_way.append((time.perf_counter(), answer))
                sent += 1
            started, oldest = under_way.popleft()
            codes = wire.commit_codes(await oldest)
            if codes != {0}:
                raise KafkaError(f"a commit was answered {sorted(codes)}: {member.squad}")
            self.latencies.append(time.perf_counter() - started)
            self.requests += 1

    def _body(self, member: ClassicMember, number: int, sent: int) -> bytes:
        start = (number + sent) * self._batch % PARTITIONS
        offsets = dict.fromkeys(range(start, start + self._batch), sent)
        group_id, generation = member.squad.group_id, member.generation
        return wire.commit(group_id, member.member_id, generation, self._topic, offsets)


def run(arena: Arena) -> None:
    """Measure both sizes of request in turns."""
    with equal_settings(), arena.contest(warm_up) as contestants:
        for number in range(arena.scale.rounds):
            for batch in BATCHES:
                for contestant in contestants:
                    values = measure(contestant, batch, max(arena.scale.seconds, SECONDS_MIN))
                    cell = f"{GROUPS * SIZE} members, {batch} a request"
                    arena.recorder.add(Sample(NAME, cell, contestant.name, number, values))


def measure(contestant: Contestant, batch: int, seconds: float) -> dict[str, float]:
    """Form the groups, then commit."""
    broker = contestant.broker
    topic = make_topic(broker.port, PARTITIONS)
    shape = Shape("classic", GROUPS, SIZE, GROUPS, interval_s=0.1)

    async def work() -> dict[str, float]:
        lanes = await open_lanes(broker.port, shape.lanes())
        crowd = await assemble(shape, topic, PARTITIONS, lanes)
        values = await Committers(crowd, topic, batch).run(broker, seconds)
        await crowd.disband()
        return values

    return run_loop(work())
