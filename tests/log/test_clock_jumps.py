"""A clock that jumps on the embedded store: nothing is deleted by it, and nothing stays ahead."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, batch
from tests.objects.test_local_clock import BEGAN_MS, DAY_MS, Machine

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.domain.replica import Replica
from lakelog.log.log import Log
from lakelog.log.retention import Policy, Retention, Sweeper
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.wal.layout import parse_object_key, wal_id_time_ms


class RunningMachine(Machine):
    """Its loop runs on real time; the rest is what a test sets."""

    def monotonic_s(self) -> float:
        return SystemClock().monotonic_s() + self.up_s


class Place:
    """A log over a directory, with its clean-up in hand."""

    def __init__(self, machine: Machine, replica: Replica, log: Log, objects: ObjectStore) -> None:
        self.machine = machine
        self.replica = replica
        self.log = log
        self.objects = objects
        self.sweeper = Sweeper(replica, objects, machine, QUICK)
        self.retention = Retention(replica, objects, machine, self._policies, QUICK)

    async def _policies(self) -> dict[int, Policy]:
        return {7: Policy(retention_ms=7 * DAY_MS, retention_bytes=-1)}

    async def produce(self) -> None:
        made = batch(b"x", timestamp_ms=self.machine.right_ms)
        await self.log.append([7], [made], deadline_s=self.machine.monotonic_s() + 5)

    async def clean_up(self) -> None:
        await self.sweeper.sweep_once()
        await self.retention.apply_once()

    def log_start(self) -> int:
        facts = self.log.facts(7)
        assert facts is not None
        return facts.log_start

    async def id_times_ms(self) -> list[int]:
        places = [parse_object_key(info.key) async for info in self.objects.list("wal/v1/")]
        return sorted(wal_id_time_ms(place.wal_id) for place in places if place is not None)


def run(tmp_path: Path, scenario: Callable[[Place], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            machine = RunningMachine()
            entropy = SystemEntropy()
            objects = await LocalObjectStore.open(tmp_path, machine, entropy, uptime=machine)
            cluster = MemoryCluster(machine, objects=objects)
            replica = cluster.replica()
            await replica.start(found=True)
            place = Place(machine, replica, cluster.log([replica], entropy), objects)
            await place.log.create_streams(TOPIC, first_partition=0, streams=[7])
            await scenario(place)
            await place.log.close(timeout_s=5)
            await replica.close()
            await objects.close()

    asyncio.run(bounded())


def test_a_jump_of_a_month_deletes_nothing_and_leaves_nothing_ahead(tmp_path: Path) -> None:
    """It trimmed every topic, and ids, sweeps and expiry stayed a month ahead afterwards."""

    async def scenario(place: Place) -> None:
        await place.produce()
        await place.clean_up()
        horizon_ms = place.replica.state.horizon_ms
        assert horizon_ms == BEGAN_MS - QUICK.orphan_ttl_ms
        place.machine.run(4)
        place.machine.wrong_ms = 30 * DAY_MS
        await place.clean_up()
        place.machine.run(4)
        place.machine.wrong_ms = 0
        assert (place.replica.state.horizon_ms, place.log_start()) == (horizon_ms, 0)
        await place.produce()
        assert (await place.id_times_ms())[-1] == place.machine.right_ms
        await place.clean_up()
        assert place.replica.state.horizon_ms == horizon_ms + 8_000

    run(tmp_path, scenario)


def test_time_that_passed_while_the_machine_slept_is_used_at_once(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        await place.produce()
        await place.clean_up()
        place.machine.run(8 * 86_400)
        await place.clean_up()
        assert place.log_start() == 1

    run(tmp_path, scenario)
