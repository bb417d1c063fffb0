"""What the benchmarks of groups share: brokers that count alike, crowds of members, heartbeats.

Rules: both brokers begin a group's first rebalance without delay and leave every other setting at
its default. Members share connections once they are settled, so that a heartbeat's cost is not that
of a connection. `others_cores` is what everyone else on the machine used meanwhile, in cores.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from bench import group_wire as wire
from bench.broker import ProcessBroker
from bench.group_lane import Lane, open_lanes
from bench.group_members import LATER, RETRY_S, ClassicMember, ConsumerMember, Member, Squad
from bench.pipeline import run_loop
from bench.raw import Client, KafkaError
from bench.results import percentiles_ms

KINDS: dict[str, type[Member]] = {"classic": ClassicMember, "consumer": ConsumerMember}
# Kafka's own node in bench/peer.py has no initial delay either.
SETTINGS = {"LAKELOG_GROUPS__INITIAL_REBALANCE_DELAY_MS": "0"}
SETTLE_TIMEOUT_S = 120.0
READY_TIMEOUT_S = 60.0
CALM_S = 0.5
HEARTBEAT_S = 3.0
WARM_PARTITIONS = 10
_numbers = itertools.count()


@contextmanager
def equal_settings() -> Iterator[None]:
    """Start our brokers with the settings of the peer while this lasts."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    os.environ.update(SETTINGS)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Meter:
    """What a broker, and everyone else on the machine, used since the meter was made."""

    def __init__(self, broker: ProcessBroker) -> None:
        self._broker = broker
        self._started = time.perf_counter()
        self._busy, self._own = busy_seconds(), time.process_time()
        self._cpu = broker.cpu_seconds()

    def cpu_seconds(self) -> float:
        """The broker's processor seconds."""
        return self._broker.cpu_seconds() - self._cpu

    def wall_seconds(self) -> float:
        """The seconds that passed."""
        return time.perf_counter() - self._started

    def others_cores(self) -> float:
        """How many cores were busy with neither this broker nor this process."""
        known = self.cpu_seconds() + time.process_time() - self._own
        return max(busy_seconds() - self._busy - known, 0.0) / self.wall_seconds()


def busy_seconds() -> float:
    """Seconds that all processors together have worked so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


@dataclass(slots=True)
class Crowd:
    """Settled members, and the lanes on which they say so."""

    lanes: list[Lane]
    squads: list[Squad] = field(default_factory=list)

    def by_lane(self) -> list[list[Member]]:
        """The members that share each lane."""
        found: dict[Lane, list[Member]] = {lane: [] for lane in self.lanes}
        for squad in self.squads:
            for member in squad.members:
                found[member.lane].append(member)
        return [members for members in found.values() if members]

    async def disband(self) -> None:
        """Leave every group and close every lane."""
        await asyncio.gather(*(disband(squad) for squad in self.squads))
        for lane in self.lanes:
            lane.close()
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many groups of how many members, how many of them joining at the same time."""

    kind: str
    groups: int
    size: int
    at_once: int
    interval_s: float

    def lanes(self) -> int:
        """The connections that so many joining members need."""
        return self.at_once * self.size


async def assemble(shape: Shape, topic: str, partitions: int, lanes: list[Lane]) -> Crowd:
    """Let all groups join, each member on a lane of its own while it does."""
    crowd = Crowd(lanes)
    await find_coordinator(lanes[0])

    async def fill(slot: int) -> None:
        own = lanes[slot * shape.size : (slot + 1) * shape.size]
        for _ in range(slot, shape.groups, shape.at_once):
            crowd.squads.append(await form(shape, topic, partitions, own))

    async with asyncio.TaskGroup() as slots:
        for slot in range(min(shape.at_once, shape.groups)):
            slots.create_task(fill(slot))
    return crowd


async def form(shape: Shape, topic: str, partitions: int, lanes: Sequence[Lane]) -> Squad:
    """Let one group join and settle."""
    name = f"bench-{shape.kind}-{next(_numbers)}"
    squad = Squad(name, topic, size=shape.size, partitions=partitions)
    squad.members = [KINDS[shape.kind](squad, lane) for lane in lanes]
    await settle(squad, squad.members, interval_s=shape.interval_s)
    return squad


async def settle(squad: Squad, members: Sequence[Member], *, interval_s: float) -> None:
    """Let members live until their group is settled."""
    try:
        async with asyncio.timeout(SETTLE_TIMEOUT_S), asyncio.TaskGroup() as living:
            for member in members:
                living.create_task(member.live(squad.settled, interval_s=interval_s))
    except TimeoutError as error:
        raise KafkaError(f"not settled after {SETTLE_TIMEOUT_S:.0f} s: {squad}") from error


async def find_coordinator(lane: Lane) -> None:
    """Ask for a coordinator until there is one: Kafka makes its offsets topic meanwhile."""
    async with asyncio.timeout(READY_TIMEOUT_S):
        while True:
            body = wire.find_coordinator("bench")
            answer = await lane.ask(wire.FIND_COORDINATOR, wire.FIND_COORDINATOR_VERSION, body)
            code = wire.found_coordinator(answer)
            if code == 0:
                return
            if code not in LATER:
                raise KafkaError(f"FindCoordinator answered {code}")
            await asyncio.sleep(RETRY_S)


async def disband(squad: Squad) -> None:
    """Let all members leave: classic ones in one request, others with one each."""
    ids = [each.member_id for each in squad.members if isinstance(each, ClassicMember)]
    if ids:
        body = wire.leave(squad.group_id, ids)
        await squad.members[0].lane.ask(wire.LEAVE, wire.LEAVE_VERSION, body)
        return
    await asyncio.gather(*(member.leave() for member in squad.members))


class Pulse:
    """All members of a crowd heartbeat, at their pace or as fast as answers come.

    `later_s` counts answers that ask the member to come again, which a broker gives when it was
    stopped for so long that it no longer trusts what it knows.
    """

    def __init__(self, crowd: Crowd, *, interval_s: float) -> None:
        self.count = 0
        self.later = 0
        self.latencies: list[float] = []
        self._lanes = crowd.by_lane()
        self._interval_s = interval_s
        self._is_over = False

    async def run(self, broker: ProcessBroker, seconds: float) -> dict[str, float]:
        """Heartbeat for some seconds; return what one cost."""
        async with asyncio.TaskGroup() as driving:
            for number, members in enumerate(self._lanes):
                driving.create_task(self._drive(members, number / len(self._lanes)))
            await asyncio.sleep(CALM_S)
            before, meter = self.count, Meter(broker)
            self.later = 0
            self.latencies.clear()
            await asyncio.sleep(seconds)
            beats, later = self.count - before, self.later
            cpu_s, wall_s = meter.cpu_seconds(), meter.wall_seconds()
            others = meter.others_cores()
            self._is_over = True
        _, p99, _ = percentiles_ms(self.latencies)
        return {
            "beats_s": beats / wall_s,
            "cpu_us": cpu_s / max(beats, 1) * 1e6,
            "beat_p99_ms": p99,
            "later_s": later / wall_s,
            "others_cores": others,
        }

    async def _drive(self, members: Sequence[Member], phase: float) -> None:
        pause_s = self._interval_s / len(members)
        due = time.perf_counter() + phase * pause_s
        for member in itertools.cycle(members):
            if self._is_over:
                return
            if pause_s:
                await asyncio.sleep(max(due - time.perf_counter(), 0.0))
                due += pause_s
            started = time.perf_counter()
            code = await member.pulse()
            if code in LATER:
                self.later += 1
            elif code:
                raise KafkaError(f"a settled member was answered {code}: {member.squad}")
            self.latencies.append(time.perf_counter() - started)
            self.count += 1


def make_topic(port: int, partitions: int) -> str:
    """Create a topic for groups to share."""
    topic = f"groups-{next(_numbers)}"
    with Client(port) as client:
        client.create_topic(topic, partitions)
    return topic


def warm_up(broker: ProcessBroker, seconds: float) -> float:
    """Join, heartbeat and leave in both protocols until a just-in-time compiler has seen it."""
    topic = make_topic(broker.port, WARM_PARTITIONS)
    run_loop(_warm_up(broker, topic, seconds))
    return seconds


async def _warm_up(broker: ProcessBroker, topic: str, seconds: float) -> None:
    for kind in KINDS:
        until = time.perf_counter() + seconds / len(KINDS)
        while time.perf_counter() < until:
            shape = Shape(kind, groups=4, size=10, at_once=4, interval_s=0.1)
            lanes = await open_lanes(broker.port, shape.lanes())
            crowd = await assemble(shape, topic, WARM_PARTITIONS, lanes)
            await Pulse(crowd, interval_s=0.0).run(broker, seconds / 8)
            await crowd.disband()
