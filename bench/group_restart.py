"""B13: a group of a thousand members whose broker is killed and started again on the same port.

Timed from the kill until every member has been answered without an error in one generation and
all partitions are held again. Members notice by the loss of their connections and come back as
clients do, with pauses of 50 ms to a second; one that is told so joins again.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from bench import groups
from bench.arena import Arena
from bench.broker import BROKER_CORE, ProcessBroker, free_ports
from bench.group_lane import connect_patiently, open_lanes
from bench.group_members import ConsumerMember, Member, Squad
from bench.ours import launch_ours
from bench.peer import find_peer, launch_peer
from bench.pipeline import run_loop
from bench.raw import KafkaError
from bench.results import OURS, Metric, Sample

NAME = "b13"
SIZE = 1_000
JOIN_INTERVAL_S = 1.0
RESTART_TIMEOUT_S = 120.0
METRICS = (
    Metric("form_s", "s", more_is_better=False),
    Metric("stable_s", "s", more_is_better=False),
    Metric("ready_s", "s", more_is_better=False),
    Metric("rejoins", "members", more_is_better=False),
    Metric("cpu_s", "broker-cpu-s", more_is_better=False),
    Metric("others_cores", "cores", more_is_better=False),
)
Launcher = Callable[[], ProcessBroker]


def run(arena: Arena) -> None:
    """Measure both protocols in turns, each on a fresh directory."""
    with groups.equal_settings():
        for number in range(arena.scale.rounds):
            for kind in groups.KINDS:
                for arm in arena.arms:
                    with arena.folder() as folder:
                        values = measure(launcher(arm.name, folder / arm.name), kind)
                    cell = f"{SIZE:,} members, {kind}"
                    arena.recorder.add(Sample(NAME, cell, arm.name, number, values))


def launcher(name: str, data: Path) -> Launcher:
    """Return what starts this broker, always on the same ports and directory."""
    port, other = free_ports(2)
    if name == OURS:
        return lambda: launch_ours(data, port=port, http_port=other, core=BROKER_CORE)
    peer = find_peer()
    return lambda: launch_peer(peer, data, port=port, controller_port=other, core=BROKER_CORE)


def measure(launch: Launcher, kind: str) -> dict[str, float]:
    """Form the group, kill, start, and wait for all."""
    broker = launch()
    try:
        broker.wait_ready()
        topic = groups.make_topic(broker.port, SIZE)
        return run_loop(Restart(launch, broker, kind, topic).run())
    finally:
        broker.kill()


class Restart:
    """One group through the death of its broker."""

    def __init__(self, launch: Launcher, broker: ProcessBroker, kind: str, topic: str) -> None:
        self._launch = launch
        self._broker = broker
        self._topic = topic
        self._shape = groups.Shape(kind, 1, SIZE, 1, JOIN_INTERVAL_S)
        self._ready = asyncio.Event()

    async def run(self) -> dict[str, float]:
        """Return what was measured; the second broker is ended here."""
        lanes = await open_lanes(self._broker.port, SIZE)
        started = time.perf_counter()
        crowd = await groups.assemble(self._shape, self._topic, SIZE, lanes)
        values = {"form_s": time.perf_counter() - started}
        (squad,) = crowd.squads
        squad.forget()
        squad.rejoins = 0
        squad.expect(SIZE, after=squad.generation - 1)
        killed = time.perf_counter()
        self._broker.kill()
        again = self._launch()
        try:
            return values | await self._recover(squad, again, killed)
        finally:
            again.kill()

    async def _recover(
        self, squad: Squad, broker: ProcessBroker, killed: float
    ) -> dict[str, float]:
        meter = groups.Meter(broker)
        try:
            async with asyncio.timeout(RESTART_TIMEOUT_S), asyncio.TaskGroup() as living:
                for member in squad.members:
                    living.create_task(self._come_back(member, broker.port))
                await self._ready.wait()
                ready_s = time.perf_counter() - killed
                await squad.settled.wait()
                stable_s = time.perf_counter() - killed
        except TimeoutError as error:
            raise KafkaError(f"not stable after {RESTART_TIMEOUT_S:.0f} s: {squad}") from error
        for member in squad.members:
            member.lane.close()
        await asyncio.sleep(0)
        return {
            "stable_s": stable_s,
            "ready_s": ready_s,
            "rejoins": float(squad.rejoins),
            "cpu_s": broker.cpu_seconds(),
            "others_cores": meter.others_cores(),
        }

    async def _come_back(self, member: Member, port: int) -> None:
        """Connect, ask for the coordinator, and live until the group is settled."""
        while not member.squad.settled.is_set():
            try:
                member.lane = await connect_patiently(port)
                self._ready.set()
                await groups.find_coordinator(member.lane)
                if isinstance(member, ConsumerMember):
                    member.is_new_connection = True
                await member.live(
                    member.squad.settled, interval_s=groups.HEARTBEAT_S, is_inside=True
                )
            except ConnectionError:
                # The old process's port may still accept, or the new one close what came early.
                continue
