"""The log over memory stores: places, outcomes, reads, faults of the object store, clean-up."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, MemoryNode, batch, run

from lakelog.domain.state import Verdict
from lakelog.log.options import LogOptions
from lakelog.log.retention import Policy, Retention, Sweeper
from lakelog.log.timestamps import TimestampMatch
from lakelog.log.values import Fetched, ReadStatus, StreamRead
from lakelog.model.failures import NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import Buffer
from lakelog.records.build import BatchOptions
from lakelog.records.columns import decode_columns
from lakelog.records.header import parse_header, split_batches

BIG = 1 << 20


def values(fetched: Fetched) -> list[tuple[int, bytes]]:
    """Offsets and values of what was read."""
    data = memoryview(b"".join(bytes(part) for part in fetched.parts))
    found = []
    for one in split_batches(data):
        header = parse_header(one)
        columns = decode_columns(one, decompressed_bytes_max=BIG)
        for index in range(len(columns)):
            offset = header.base_offset + int(columns.offset_deltas[index])
            found.append((offset, bytes(columns.value(index) or b"")))
    return found


async def read(
    cluster: MemoryCluster, node: MemoryNode, stream: int, offset: int, bytes_max: int = BIG
) -> Fetched:
    wanted = [StreamRead(stream, offset, bytes_max)]
    return (await node.log.read(wanted, bytes_max=BIG, deadline_s=cluster.soon()))[0]


def test_offsets_follow_the_order_of_acceptance_whatever_the_object() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        pending = [
            node.log.append([2, 1], [batch(b"%d" % n), batch(b"x")], deadline_s=cluster.soon())
            for n in range(50)
        ]
        outcomes = await asyncio.gather(*pending)
        assert [outcome.offsets[0] for outcome in outcomes] == list(range(50))
        assert values(await read(cluster, node, 2, 0)) == [(n, b"%d" % n) for n in range(50)]

    run(scenario)


def test_a_fetch_inside_a_batch_returns_the_whole_batch() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        await node.log.append([1], [batch(b"a", b"b", b"c")], deadline_s=cluster.soon())
        for offset in range(3):
            assert values(await read(cluster, node, 1, offset)) == [(0, b"a"), (1, b"b"), (2, b"c")]
        at_end = await read(cluster, node, 1, 3)
        assert (at_end.status, at_end.size_bytes, at_end.head) == (ReadStatus.OK, 0, 3)
        for offset in (4, -1):
            assert (await read(cluster, node, 1, offset)).status is ReadStatus.OUT_OF_RANGE
        assert (await read(cluster, node, 9, 0)).status is ReadStatus.UNKNOWN_STREAM

    run(scenario)


def test_the_first_batch_comes_once_however_small_the_limits() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        big = batch(bytes(5000))
        await node.log.append([1, 1, 2], [big, big, big], deadline_s=cluster.soon())
        wanted = [StreamRead(1, 0, 10), StreamRead(2, 0, 10)]
        got = await node.log.read(wanted, bytes_max=10, deadline_s=cluster.soon())
        assert [len(values(one)) for one in got] == [1, 0]

    run(scenario)


def test_another_broker_reads_what_was_acknowledged_at_once() -> None:
    """L7 across brokers: the second one proves itself current before it answers."""

    async def scenario(cluster: MemoryCluster) -> None:
        one, two = await cluster.node("broker-1"), await cluster.node("broker-2")
        await one.log.create_streams(TOPIC, first_partition=0, streams=[1])
        for number in range(20):
            await one.log.append([1], [batch(b"%d" % number)], deadline_s=cluster.soon())
            now_s = cluster.clock.monotonic_s()
            await two.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
            got = await read(cluster, two, 1, number)
            assert values(got) == [(number, b"%d" % number)]

    run(scenario)


def test_a_retry_through_another_broker_is_a_duplicate_with_the_first_offset() -> None:
    """D4 and D2: the window is part of the state, not of a broker."""

    async def scenario(cluster: MemoryCluster) -> None:
        one, two = await cluster.node("broker-1"), await cluster.node("broker-2")
        await one.log.create_streams(TOPIC, first_partition=0, streams=[1])
        options = BatchOptions(producer_id=7, producer_epoch=0, base_sequence=0)
        sent = batch(b"a", b"b", options=options)
        first = await one.log.append([1], [sent], deadline_s=cluster.soon())
        again = await two.log.append([1], [sent], deadline_s=cluster.soon())
        assert (first.verdicts, first.offsets) == ([Verdict.ACCEPTED], [0])
        assert (again.verdicts, again.offsets) == ([Verdict.DUPLICATE], [0])
        assert again.timestamps == [sent.max_timestamp_ms]
        assert len(values(await read(cluster, two, 1, 0))) == 2

    run(scenario)


class Flaky(MemoryObjectStore):
    """A store that fails when it is told to."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster.clock)
        self.failing = 0
        self.lost: set[str] = set()
        self.gets = 0

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self.failing > 0:
            self.failing -= 1
            raise OutcomeUnknown("the store does not answer")
        await super().put(key, parts)

    async def get(self, key: str) -> memoryview:
        self.gets += 1
        if key in self.lost:
            raise NotFound(key)
        return await super().get(key)


def test_a_put_that_fails_is_repeated_and_order_holds() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        flaky.failing = 3
        pending = []
        for number in range(6):
            sent = batch(b"%d" % number)
            pending.append(node.log.append([1], [sent], deadline_s=cluster.soon()))
            await asyncio.sleep(0.003)  # so that several objects are on their way
        outcomes = await asyncio.gather(*pending)
        assert [outcome.offsets[0] for outcome in outcomes] == list(range(6))

    run(scenario)


def test_a_store_that_is_down_ends_in_an_unknown_outcome_and_recovers_by_itself() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        flaky.failing = 1_000_000
        with pytest.raises(OutcomeUnknown):
            await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon(0.05))
        flaky.failing = 0
        outcome = await node.log.append([1], [batch(b"b")], deadline_s=cluster.soon())
        assert outcome.verdicts == [Verdict.ACCEPTED]

    run(scenario)


def test_a_full_buffer_makes_producers_wait_not_grow() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        options = LogOptions(linger_ms=1, put_retry_ms=1, buffer_bytes_max=4000)
        node = await cluster.node(options=options)
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        flaky.failing = 1_000_000
        pending = node.log.append([1], [batch(bytes(3000))], deadline_s=cluster.soon())
        with pytest.raises(Unavailable):
            await node.log.room(3000, deadline_s=cluster.soon(0.02))
        flaky.failing = 0
        await node.log.room(3000, deadline_s=cluster.soon())
        assert (await pending).offsets == [0]

    run(scenario)


def test_a_missing_object_is_damage_and_never_the_end_of_the_data() -> None:
    """E2: the mutant that takes 404 for the end answers OK and empty here."""

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        writer, reader = await cluster.node("broker-1"), await cluster.node("broker-2")
        await writer.log.create_streams(TOPIC, first_partition=0, streams=[1])
        await writer.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        flaky.lost = {info.key async for info in flaky.list("wal/")}
        now_s = cluster.clock.monotonic_s()
        await reader.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        assert (await read(cluster, reader, 1, 0)).status is ReadStatus.DAMAGED

    run(scenario)


def test_a_fresh_object_is_read_once_for_all_its_readers() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        writer, reader = await cluster.node("broker-1"), await cluster.node("broker-2")
        streams = list(range(1, 9))
        await writer.log.create_streams(TOPIC, first_partition=0, streams=streams)
        await writer.log.append(streams, [batch(b"a")] * 8, deadline_s=cluster.soon())
        now_s = cluster.clock.monotonic_s()
        await reader.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        flaky.gets = 0
        reads = [read(cluster, reader, stream, 0) for stream in streams * 3]
        assert all(len(values(got)) == 1 for got in await asyncio.gather(*reads))
        assert flaky.gets == 1

    run(scenario)


def test_a_reader_of_many_streams_reads_every_fresh_object_once() -> None:
    """Each stream brought objects for itself ahead, and pushed out those that others wanted."""

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = flaky = Flaky(cluster)
        writer = await cluster.node("broker-1")
        small = replace(QUICK, tail_cache_bytes=80_000)  # of 240 kB in all
        reader = await cluster.node("broker-2", small)
        streams = list(range(1, 9))
        await writer.log.create_streams(TOPIC, first_partition=0, streams=streams)
        for number in range(30):
            sent = [batch(bytes([number]) * 1000)] * 8
            await writer.log.append(streams, sent, deadline_s=cluster.soon())
        now_s = cluster.clock.monotonic_s()
        await reader.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        flaky.gets = 0
        at = dict.fromkeys(streams, 0)
        while min(at.values()) < 30:
            wanted = [StreamRead(stream, at[stream], 2500) for stream in streams]
            answers = await reader.log.read(wanted, bytes_max=BIG, deadline_s=cluster.soon())
            for stream, got in zip(streams, answers, strict=True):
                for offset, value in values(got):
                    assert (offset, value[0]) == (at[stream], at[stream])
                    at[stream] += 1
        assert flaky.gets == 30

    run(scenario)


def test_timestamps_are_found_from_the_log_start_on() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        for start in (1000, 2000, 1500):
            sent = batch(b"a", b"b", timestamp_ms=start)
            await node.log.append([1], [sent], deadline_s=cluster.soon())
        assert await node.log.find_timestamp(1, 0) == TimestampMatch(0, 1000)
        assert await node.log.find_timestamp(1, 1001) == TimestampMatch(1, 1001)
        assert await node.log.find_timestamp(1, 1002) == TimestampMatch(2, 2000)
        assert await node.log.find_timestamp(1, 2002) is None
        assert await node.log.max_timestamp(1) == TimestampMatch(3, 2001)
        assert await node.log.trim({1: 1}) == {1: 1}
        assert await node.log.find_timestamp(1, 0) == TimestampMatch(1, 1001)
        assert await node.log.max_timestamp(9) is None

    run(scenario)


def test_a_watch_hears_of_new_records() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        with node.log.watch([1]) as watch:
            assert not await watch.wait(0.0)
            await node.log.append([2], [batch(b"a")], deadline_s=cluster.soon())
            assert not await watch.wait(0.0)
            await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
            assert await watch.wait(1.0)

    run(scenario)


async def wal_keys(cluster: MemoryCluster) -> set[str]:
    return {info.key async for info in cluster.objects.list("wal/")}


def test_garbage_goes_in_the_second_pass_and_nothing_else_ever() -> None:
    """C3, G1, G2: an object let go is deleted a grace after it was first seen unreferenced."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1, 2])
        for stream in (1, 2):
            await node.log.append([stream], [batch(b"a")], deadline_s=cluster.soon())
        before = await wal_keys(cluster)
        options = LogOptions(orphan_ttl_ms=0, grace_ms=30)
        sweeper = Sweeper(node.replica, cluster.objects, cluster.clock, options)
        await asyncio.sleep(0.005)  # the objects' ids are then older than the Horizon
        await node.log.drop_streams([1])
        assert await sweeper.sweep_once() == 0
        assert await wal_keys(cluster) == before
        await asyncio.sleep(0.04)
        assert await sweeper.sweep_once() == 1
        assert len(await wal_keys(cluster)) == 1
        assert values(await read(cluster, node, 2, 0)) == [(0, b"a")]

    run(scenario)


def test_a_commit_of_an_id_older_than_the_horizon_is_void_and_never_rewritten() -> None:
    """G4, rule 7: the mutant that rewrites on void makes the record appear here."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node(options=LogOptions(linger_ms=1, orphan_ttl_ms=-10_000))
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        options = LogOptions(orphan_ttl_ms=-1_000_000)
        await Sweeper(node.replica, cluster.objects, cluster.clock, options).sweep_once()
        with pytest.raises(OutcomeUnknown):
            await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        await asyncio.sleep(0.01)
        facts = node.log.facts(1)
        assert facts is not None
        assert facts.head == 0

    run(scenario)


def test_ids_stay_ahead_of_the_horizon_on_a_slow_clock() -> None:
    """C2: without it every commit of a broker whose clock is slow would be void."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        fast = LogOptions(orphan_ttl_ms=-3_600_000)  # a cleaner whose clock is an hour ahead
        await Sweeper(node.replica, cluster.objects, cluster.clock, fast).sweep_once()
        outcome = await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        assert outcome.verdicts == [Verdict.ACCEPTED]

    run(scenario)


def test_retention_trims_whole_entries_and_reads_below_are_out_of_range() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await cluster.node()
        await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
        now_ms = cluster.clock.now_ms()
        for age_ms in (50_000, 40_000, 1_000):
            sent = batch(b"a", b"b", timestamp_ms=now_ms - age_ms)
            await node.log.append([1], [sent], deadline_s=cluster.soon())

        async def policies() -> dict[int, Policy]:
            return {1: Policy(retention_ms=30_000, retention_bytes=-1)}

        retention = Retention(node.replica, cluster.objects, cluster.clock, policies, QUICK)
        await retention.apply_once()
        facts = node.log.facts(1)
        assert facts is not None
        assert (facts.log_start, facts.head) == (4, 6)
        assert (await read(cluster, node, 1, 3)).status is ReadStatus.OUT_OF_RANGE
        assert [offset for offset, _ in values(await read(cluster, node, 1, 4))] == [4, 5]

    run(scenario)
