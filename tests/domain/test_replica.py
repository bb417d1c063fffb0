"""A replica over real (memory) stores: birth, proofs, holes, going back, poison, checkpoints."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest
from tests.memory_cluster import CLUSTER_ID, MemoryCluster

from lakelog.domain.checkpoint_store import CheckpointStore
from lakelog.domain.envelope import DomainRecord, Stamp, encode_record
from lakelog.domain.events import Barrier, Create, Genesis, Trim
from lakelog.domain.options import DomainOptions
from lakelog.domain.replica import Replica
from lakelog.domain.state import Done, Trimmed
from lakelog.meta import keys
from lakelog.meta.port import LogPage, MetadataLog
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable, WentBack, WriterFenced
from lakelog.model.ids import TopicId

TOPIC = TopicId(bytes(range(16)))
SMALL = DomainOptions(checkpoint_records=4, idle_read_s=0.01, retry_s=0.001, retry_max_s=0.01)


class DomainCluster(MemoryCluster):
    """Replicas without logs on them, whose checkpoints come often."""

    @property
    def domain_log(self) -> MetadataLog:
        return self.metadata.log(keys.domain_log(0))

    def replica(
        self,
        name: str = "broker-1",
        options: DomainOptions = SMALL,
        *,
        cluster_id: str = CLUSTER_ID,
        domain: int = 0,
    ) -> Replica:
        return super().replica(name, options, cluster_id=cluster_id, domain=domain)

    async def born(self, name: str, options: DomainOptions = SMALL) -> Replica:
        replica = self.replica(name, options)
        await replica.start(found=True)
        return replica


def run(scenario: Callable[[DomainCluster], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario(DomainCluster())

    asyncio.run(bounded())


def create(*streams: int) -> Create:
    return Create(TOPIC, 0, np.array(streams, dtype=np.int64))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_two_replicas_apply_the_same_log_and_prove_it() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        one, two = await cluster.born("broker-1"), await cluster.born("broker-2")
        assert await one.submit(create(7)) == Done()
        await two.prove(arrived_s=cluster.clock.monotonic_s())
        assert two.state.streams.facts(7) is not None
        await one.close()
        await two.close()

    run(scenario)


def test_a_new_incarnation_fences_the_records_of_the_old_one() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        old = await cluster.born("broker-1")
        new = await cluster.born("broker-1")
        outcome = old.submit(create(7))
        with pytest.raises(OutcomeUnknown):
            await outcome
        assert old.stopped is not None  # F1: it must not go on as if nothing had happened
        with pytest.raises(Unavailable):
            old.check_fresh()
        await new.prove(arrived_s=cluster.clock.monotonic_s())
        assert new.state.streams.facts(7) is None
        with pytest.raises(WriterFenced):
            await old.failed()
        with pytest.raises(WriterFenced):
            await old.close()
        await new.close()

    run(scenario)


def test_f2_a_process_that_lost_its_name_while_it_loads_fences_nobody() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        rightful = await cluster.born("broker-1")
        zombie = cluster.replica("broker-1")
        asked: list[None] = []

        def holds_name() -> bool:
            asked.append(None)
            return False

        zombie.holds_name = holds_name
        starting = asyncio.ensure_future(zombie.start(found=False))
        await until(lambda: len(asked) > 3)
        assert await rightful.submit(create(7)) == Done()
        zombie.holds_name = lambda: True  # its session was won back: now it may be the broker
        await starting
        with pytest.raises(OutcomeUnknown):
            await rightful.submit(create(8))
        assert await zombie.submit(create(9)) == Done()
        await zombie.close()
        with pytest.raises(WriterFenced):
            await rightful.close()

    run(scenario)


def test_what_is_withdrawn_while_it_waits_is_never_written() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        first = replica.submit(create(7))
        await asyncio.sleep(0)  # the first one is on its way; the others wait behind it
        second, third = replica.submit(create(8)), replica.submit(create(9))
        replica.withdraw(first)
        replica.withdraw(second)
        assert await first == Done()
        assert await third == Done()
        with pytest.raises(Unavailable, match="withdrawn"):
            await second
        assert [stream in replica.state.streams.row_of for stream in (7, 8, 9)] == [
            True,
            False,
            True,
        ]
        await replica.close()

    run(scenario)


def test_a_replica_behind_a_trim_reloads_and_is_reborn() -> None:
    """A1: the mutant that skips the check for holes serves a wrong state here."""

    async def scenario(cluster: DomainCluster) -> None:
        busy = await cluster.born("broker-1")
        behind = await cluster.born("broker-2", DomainOptions(idle_read_s=3600, retry_s=0.001))
        position, first = behind.state.position, behind.state.writers["broker-2"]
        await behind.close()  # stands for a long pause: it stops following
        count = await write_until_trimmed(cluster, busy, position + 1)
        late = cluster.replica("broker-2")
        late.state = behind.state
        await late.start(found=False)
        assert late.state.writers["broker-2"] > first
        assert late.state.streams.facts(0) is not None
        assert late.state.streams.facts(count - 1) is not None
        await late.close()
        await busy.close()

    run(scenario)


async def write_until_trimmed(cluster: DomainCluster, replica: Replica, position: int) -> int:
    """Create streams 0, 1, 2, … until the log no longer holds this position; returns how many."""
    for stream in range(10_000):
        if (await cluster.domain_log.read(after=0)).start > position:
            return stream
        await replica.submit(create(stream))
    raise AssertionError("the log was never trimmed")


class GatedLog:
    """A log whose reads wait at a gate: what a stopped process looks like from outside."""

    def __init__(self, inner: MetadataLog, gate: asyncio.Event) -> None:
        self._inner = inner
        self._gate = gate

    async def append(self, record: bytes) -> int:
        return await self._inner.append(record)

    async def read(self, *, after: int) -> LogPage:
        await self._gate.wait()
        return await self._inner.read(after=after)

    async def wait(self, *, after: int, timeout_s: float) -> None:
        await self._inner.wait(after=after, timeout_s=timeout_s)

    async def trim(self, *, before: int) -> None:
        await self._inner.trim(before=before)


def test_a_following_replica_that_meets_a_hole_loads_again() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        gate = asyncio.Event()
        gate.set()
        busy = await cluster.born("broker-1")
        reader = cluster.replica("broker-2")
        reader._log = GatedLog(reader._log, gate)
        await reader.start(found=False)
        reloads: list[int] = []
        reader.on_reload.append(lambda: reloads.append(reader.state.position))
        gate.clear()
        count = await write_until_trimmed(cluster, busy, reader.state.position + 1)
        gate.set()
        await until(lambda: bool(reloads))
        await until(lambda: reader.state.streams.facts(count - 1) is not None)
        await until(lambda: reader._serving)
        assert reader.state.writers["broker-2"].incarnation == 2
        await reader.close()
        await busy.close()

    run(scenario)


def test_a_log_that_went_back_is_fatal() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        replica.state.position += 5
        with pytest.raises(WentBack):
            await replica.failed()
        with pytest.raises(WentBack):
            await replica.close()

    run(scenario)


def test_a_record_that_cannot_be_understood_stops_the_domain_and_nothing_else() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        await cluster.domain_log.append(b"not a record at all, but long enough to be one")
        await until(lambda: replica.stopped is not None)
        with pytest.raises(Unavailable):
            replica.submit(Barrier())
        with pytest.raises(Unavailable):
            replica.check_fresh()
        with pytest.raises(Refused):
            await cluster.born("broker-2")
        await replica.close()

    run(scenario)


def test_an_empty_log_is_refused_unless_a_cluster_is_being_founded() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        with pytest.raises(Refused, match="empty although the cluster exists"):
            await cluster.replica("broker-1").start(found=False)

    run(scenario)


def test_a_log_of_another_cluster_is_refused() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        await replica.close()
        stranger = cluster.replica("broker-2", cluster_id="other")
        with pytest.raises(Refused, match="wrong metadata store"):
            await stranger.start(found=False)
        await stranger.close()

    run(scenario)


def test_a_second_genesis_of_the_same_cluster_means_nothing() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        again = DomainRecord("genesis", Stamp(0, 0), 1, (Genesis("c", 0, 1),))
        await cluster.domain_log.append(encode_record(again))
        await replica.prove(arrived_s=cluster.clock.monotonic_s())
        assert replica.stopped is None
        await replica.close()

    run(scenario)


def test_checkpoints_are_kept_in_threes_and_the_log_is_trimmed_to_the_oldest() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        await write_until_trimmed(cluster, replica, 20)
        pointer = await CheckpointStore(
            cluster.metadata, cluster.objects, domain=0, options=SMALL
        ).pointer()
        assert pointer is not None
        assert len(pointer.kept) == 3
        assert (await cluster.domain_log.read(after=0)).start <= pointer.kept[-1].position + 1
        archived = [info.key async for info in cluster.objects.list("archive/v1/domain=0/")]
        assert archived
        await replica.close()

    run(scenario)


def test_a_state_reloaded_from_a_checkpoint_goes_on_like_the_live_one() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1")
        await write_until_trimmed(cluster, replica, 5)
        other = await cluster.born("broker-2")
        trim = Trim(np.array([3, 999_999]), np.array([5, 5]))
        outcome = await replica.submit(trim)
        assert isinstance(outcome, Trimmed)
        assert outcome.log_starts.tolist() == [0, -1]  # never beyond the head; unknown stream
        await other.prove(arrived_s=cluster.clock.monotonic_s())
        assert other.state.writers == replica.state.writers
        assert len(other.state.streams) == len(replica.state.streams)
        await replica.close()
        await other.close()

    run(scenario)


def test_one_read_proves_for_all_who_wait() -> None:
    async def scenario(cluster: DomainCluster) -> None:
        replica = await cluster.born("broker-1", DomainOptions(idle_read_s=3600))
        reads = 0
        inner = replica.catch_up

        async def counted() -> None:
            nonlocal reads
            reads += 1
            await inner()

        replica.catch_up = counted  # type: ignore[method-assign]  # counts reads, changes nothing
        now_s = cluster.clock.monotonic_s()
        await asyncio.gather(*(replica.prove(arrived_s=now_s) for _ in range(100)))
        assert reads <= 2
        await replica.close()

    run(scenario)


def test_a_metadata_store_that_went_back_is_refused_at_start_and_nothing_is_written() -> None:
    """A5: a restored copy would give the offsets of acknowledged records to others."""

    async def scenario(cluster: DomainCluster) -> None:
        first = await cluster.born("broker-1")
        await first.close()
        old = cluster.metadata
        copy = DomainCluster(objects=cluster.objects)
        page = await old.log(keys.domain_log(0)).read(after=0)
        for record in page.records[:1]:  # what a copy from before the first Hello would hold
            await copy.domain_log.append(record)
        before = [info.key async for info in copy.objects.list("")]
        with pytest.raises(Refused, match="went back in time"):
            await copy.replica("broker-1").start(found=True)
        assert [info.key async for info in copy.objects.list("")] == before
        assert (await copy.domain_log.read(after=0)).end == 1

    run(scenario)


class BlindLog(GatedLog):
    """A log whose first reply is lost, and that cannot be read for a while after the second."""

    def __init__(self, inner: MetadataLog) -> None:
        gate = asyncio.Event()
        gate.set()
        super().__init__(inner, gate)
        self._appends = 0
        self._blind_reads = 0

    async def append(self, record: bytes) -> int:
        position = await super().append(record)
        self._appends += 1
        if self._appends == 1:
            raise OutcomeUnknown("the reply is lost")
        self._blind_reads = 3
        return position

    async def read(self, *, after: int) -> LogPage:
        if self._appends == 1 or self._blind_reads:
            self._blind_reads -= 1
            raise Unavailable("no answer")
        return await super().read(after=after)


def test_a_broker_whose_hello_was_written_unseen_looks_until_it_sees_it() -> None:
    """Simulation seed 1028: nobody follows the log yet while a replica is being born."""

    async def scenario(cluster: DomainCluster) -> None:
        await (await cluster.born("broker-2")).close()
        replica = cluster.replica("broker-1")
        replica._log = BlindLog(replica._log)
        await replica.start(found=False)
        replica.check_fresh()
        await replica.close()

    run(scenario)
