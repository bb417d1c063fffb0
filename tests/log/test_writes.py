"""Writes through a log: looked at first, visible at once, once, and only where all brokers can."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.log.placing import RULE, made, placed, put, request
from tests.memory_cluster import QUICK, TOPIC, MemoryCluster, MemoryNode, batch, run

from lakelog.domain import machine as domain_writes
from lakelog.domain.envelope import DomainRecord, Stamp, decode_record, encode_record
from lakelog.domain.events import Genesis, Hello, Horizon
from lakelog.domain.state import LEVEL_MAX
from lakelog.log import writes as writes_module
from lakelog.log.options import LogOptions
from lakelog.log.retention import Sweeper
from lakelog.log.values import ReadStatus, StreamRead
from lakelog.log.writes import IdempotentWrite, WrittenDomain
from lakelog.meta import keys
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import LogPage, MetadataLog
from lakelog.model.failures import Failure, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.testing.conformance_meta import ManualClock

MINUTE_MS = 60_000


async def created(cluster: MemoryCluster, *streams: int, options: LogOptions = QUICK) -> MemoryNode:
    node = await cluster.node(options=options)
    await node.log.create_streams(TOPIC, first_partition=0, streams=streams)
    return node


async def fetched(
    node: MemoryNode, cluster: MemoryCluster, stream: int, offset: int = 0
) -> tuple[int, int]:
    """Head and how many bytes came."""
    wanted = [StreamRead(stream, offset, 1 << 20)]
    (found,) = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
    assert found.status is ReadStatus.OK
    return found.head, found.size_bytes


def test_objects_of_others_become_visible_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, 2)
        await node.log.append([1], [batch(b"ours")], deadline_s=cluster.soon())
        first, second = await placed(cluster, 1, 2), await placed(cluster, 2, values=3)
        asked = request(first, second)
        (done,) = await node.log.write(asked, deadline_s=cluster.soon())
        assert done == WrittenDomain(0, is_new=True, offsets=((1, 1, 3), (2, 0, 5)))
        assert (await fetched(node, cluster, 1))[0] == 3
        head, size_bytes = await fetched(node, cluster, 2)
        assert (head, size_bytes > 0) == (5, True)
        # X1: the same again, and the same version with other objects, from another broker too.
        other = await cluster.node("broker-2")
        assert await node.log.write(asked, deadline_s=cluster.soon()) == (WrittenDomain(0, False),)
        again = request(await placed(cluster, 1))
        assert await other.log.write(again, deadline_s=cluster.soon()) == (WrittenDomain(0, False),)
        assert (await fetched(other, cluster, 2))[0] == 5

    run(scenario)


def test_who_waits_at_the_end_hears_of_a_write_at_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        other = await cluster.node("broker-2")
        with node.log.watch([1]) as here, other.log.watch([1]) as there:
            commit = await placed(cluster, 1)
            await node.log.write(request(commit), deadline_s=cluster.soon())
            assert await here.wait(5)
            assert await there.wait(5)
        assert (await fetched(other, cluster, 1))[0] == 2

    run(scenario)


async def _refused(
    node: MemoryNode, cluster: MemoryCluster, asked: IdempotentWrite, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        await node.log.write(asked, deadline_s=cluster.soon())


def test_x2_what_is_refused_leaves_nothing_behind() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        good = await placed(cluster, 1)
        missing = made([(1, batch(b"x"))], now_ms=cluster.clock.now_ms()).commit
        gone = await placed(cluster, 99)
        old = await placed(cluster, 1, age_ms=20 * MINUTE_MS)
        await node.replica.submit(Horizon(cluster.clock.now_ms() - 15 * MINUTE_MS))
        early = await placed(cluster, 1, age_ms=-25 * 60 * MINUTE_MS)
        longer = replace(good, size_bytes=good.size_bytes + 1)
        producer = replace(good, producer=np.array([5], dtype=np.int64))
        for bad, says in (
            (missing, "not taken in"),
            (gone, "no stream 99: the topic was deleted"),
            (old, "older than 15 minutes"),
            (early, "ahead of the broker's time"),
            (good, "stands twice"),
        ):
            await _refused(node, cluster, request(good, bad), says)
        await _refused(node, cluster, request(longer), "do not fill the object")
        await _refused(node, cluster, request(producer), "a batch of a producer")
        await _refused(node, cluster, request(good, rules={}), "no stream 1")
        await _refused(node, cluster, request(good, application=""), "1 to 255 bytes")
        await _refused(node, cluster, request(good, application="ä" * 128), "1 to 255 bytes")
        await _refused(node, cluster, request(good, version=-1), "not a version")
        await _refused(node, cluster, request(good, version=1 << 63), "not a version")
        await _refused(node, cluster, request(), "without objects")
        elsewhere = IdempotentWrite("job", 0, {1: [good]}, {1: RULE})
        await _refused(node, cluster, elsewhere, "no domain 1")
        assert (await fetched(node, cluster, 1))[0] == 0
        assert node.replica.state.writes == {}
        (done,) = await node.log.write(request(good), deadline_s=cluster.soon())
        assert done.is_new

    run(scenario)


def test_rule_25_a_write_that_fits_into_no_record_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writes_module, "EVENT_BYTES_MAX", 200)

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        small, large = await placed(cluster, 1), await placed(cluster, *[1] * 10)
        await _refused(node, cluster, request(large), "10 batches for domain 0 take .* bytes")
        (done,) = await node.log.write(request(small), deadline_s=cluster.soon())
        assert done.is_new

    run(scenario)


def test_an_application_too_many_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_writes, "APPLICATIONS_MAX", 1)

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        first, second = await placed(cluster, 1), await placed(cluster, 1)
        await node.log.write(request(first), deadline_s=cluster.soon())
        await _refused(node, cluster, request(second, application="b"), "as many applications")

    run(scenario)


class Counting(MemoryObjectStore):
    """Counts what is read of it, and can be made to fail."""

    read_bytes = 0
    failure: Failure | None = None

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        if self.failure is not None:
            raise self.failure
        self.read_bytes += sum(map(len, ranges))
        return await super().get_ranges(key, ranges)


def test_the_broker_reads_some_kilobytes_of_many_megabytes() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        objects = Counting(cluster.clock)
        cluster.objects = objects
        node = await created(cluster, 1, 2)
        rows = [(1 + number % 2, batch(bytes(500_000))) for number in range(20)]
        commits = [await put(objects, made(rows, now_ms=cluster.clock.now_ms())) for _ in range(3)]
        await node.log.write(request(*commits), deadline_s=cluster.soon())
        assert objects.read_bytes < 10_000 < 29_000_000 < sum(one.size_bytes for one in commits)

    run(scenario)


def test_a_store_that_cannot_be_read_means_try_again() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        objects = Counting(cluster.clock)
        cluster.objects = objects
        node = await created(cluster, 1)
        commit = await placed(cluster, 1)
        objects.failure = Unavailable("down")
        with pytest.raises(Unavailable):
            await node.log.write(request(commit), deadline_s=cluster.soon())
        objects.failure = None
        (done,) = await node.log.write(request(commit), deadline_s=cluster.soon())
        assert done.is_new

    run(scenario)


class Deaf(MemoryMetadataStore):
    """Takes every record, and for a while tells nobody."""

    deaf = False

    def log(self, name: str) -> Any:
        return DeafLog(self, super().log(name))


class DeafLog:
    """A log of such a store."""

    def __init__(self, store: Deaf, inner: MetadataLog) -> None:
        self.store, self.inner = store, inner
        self.trim = inner.trim
        self.wait = inner.wait

    async def append(self, record: bytes) -> int:
        position = await self.inner.append(record)
        if self.store.deaf:
            raise OutcomeUnknown("the reply was lost")
        return position

    async def read(self, *, after: int) -> LogPage:
        page = await self.inner.read(after=after)
        if self.store.deaf and page.records:
            raise Unavailable("not now")
        return page


def test_a_write_past_its_deadline_is_unknown_and_a_repeat_settles_it() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.metadata = stores = Deaf(cluster.clock)
        node = await created(cluster, 1)
        commit = await placed(cluster, 1)
        stores.deaf = True
        with pytest.raises(OutcomeUnknown, match="domain 0"):
            await node.log.write(request(commit), deadline_s=cluster.soon(0.2))
        stores.deaf = False
        await node.log.write(request(commit), deadline_s=cluster.soon())
        assert (await fetched(node, cluster, 1))[0] == 2

    run(scenario)


# Levels (rule 12)


async def old_broker(cluster: MemoryCluster, name: str) -> None:
    """A broker of an older version says Hello."""
    log = cluster.metadata.log(keys.domain_log(0))
    await log.append(encode_record(DomainRecord(name, Stamp(1, 1), 1, (Hello(1),))))


def founded_at_level_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lakelog.domain.start.Genesis",
        lambda cluster, domain, _level: Genesis(cluster, domain, 1),
    )


async def records(cluster: MemoryCluster) -> list[bytes]:
    return list((await cluster.metadata.log(keys.domain_log(0)).read(after=0)).records)


def test_rule_12_nothing_that_older_brokers_cannot_read_is_written_before_all_support_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    founded_at_level_1(monkeypatch)

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await old_broker(cluster, "broker-7")

        async def registered() -> list[str]:
            return ["broker-1", "broker-7"]

        node.log.writes.registered = registered
        await node.log.append([1], [batch(b"x")], deadline_s=cluster.soon())
        sweeper = Sweeper(node.replica, cluster.objects, cluster.clock, QUICK)
        await sweeper.sweep_once()
        commit = await placed(cluster, 1)
        with pytest.raises(Unavailable, match="broker-7 does not support it yet"):
            await node.log.write(request(commit), deadline_s=cluster.soon())
        assert node.replica.state.level == 1
        # The founding record aside, which is patched above, all can be read by level 1.
        for data in (await records(cluster))[1:]:
            decode_record(data, level_max=1)

        # It comes back as a newer version: the first write raises the level, lazily.
        log = cluster.metadata.log(keys.domain_log(0))
        await log.append(encode_record(DomainRecord("broker-7", Stamp(2, 1), 1, (Hello(2),))))
        (done,) = await node.log.write(request(commit), deadline_s=cluster.soon())
        assert (done.is_new, node.replica.state.level) == (True, 2)

    run(scenario)


def test_rule_12_a_broker_that_has_a_session_and_no_hello_yet_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    founded_at_level_1(monkeypatch)

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await old_broker(cluster, "broker-9")  # of old: it has no session any more

        async def registered() -> list[str]:
            return ["broker-1", "broker-2"]

        node.log.writes.registered = registered
        commit = await placed(cluster, 1)
        with pytest.raises(Unavailable, match="broker-2"):
            await node.log.write(request(commit), deadline_s=cluster.soon())
        await cluster.node("broker-2")
        (done,) = await node.log.write(request(commit), deadline_s=cluster.soon())
        assert done.is_new

    run(scenario)


def test_a_new_log_begins_at_the_newest_level() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        assert node.replica.state.level == LEVEL_MAX

    run(scenario)


# Garbage and memory


def test_rule_19_objects_without_a_commit_are_swept_and_versions_are_forgotten() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        clock = ManualClock(now_ms=1_700_000_000_000)
        cluster.clock = clock
        cluster.objects = MemoryObjectStore(clock)
        options = replace(QUICK, grace_ms=MINUTE_MS)
        node = await created(cluster, 1, options=options)
        orphan, kept = await placed(cluster, 1), await placed(cluster, 1)
        await node.log.write(request(kept), deadline_s=cluster.soon())
        sweeper = Sweeper(node.replica, cluster.objects, clock, options)
        days = options.write_expiry_ms // (24 * 60 * MINUTE_MS)
        assert days == 7
        for minutes, left in ((14, 2), (2, 2), (2, 1), (2, 1)):
            clock.advance(minutes * 60.0)
            await sweeper.sweep_once()
            assert len(await _keys(cluster.objects)) == left
        assert str(orphan.wal_id.hex()) not in "".join(await _keys(cluster.objects))
        assert "job" in node.replica.state.writes
        clock.advance(days * 86_400.0)
        await sweeper.sweep_once()
        assert node.replica.state.writes == {}
        # Its objects are void by now, so the repeat that nobody remembers lands nowhere.
        await _refused(node, cluster, request(kept), "older than 15 minutes")

    run(scenario)


async def _keys(objects: ObjectStore) -> list[str]:
    return [info.key async for info in objects.list("wal/v1/")]


def test_ids_are_told_to_stay_ahead_of_the_horizon() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        place = node.log.writes.place("z")
        assert (place.zone, place.id_time_ms_min, place.object_ttl_ms) == ("z", 0, 900_000)
        await node.replica.submit(Horizon(5_000_000))
        assert node.log.writes.place("z").id_time_ms_min == 5_900_000

    run(scenario)


def test_two_writers_of_one_application_are_put_in_order_by_the_log() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        other = await cluster.node("broker-2")
        nodes: list[Any] = [node, other] * 4
        commits = [await placed(cluster, 1) for _ in nodes]
        writes = [
            one.log.write(request(commit, version=5), deadline_s=cluster.soon())
            for one, commit in zip(nodes, commits, strict=True)
        ]
        done = await asyncio.gather(*writes)
        assert sum(domain.is_new for (domain,) in done) == 1
        assert (await fetched(node, cluster, 1))[0] == 2

    run(scenario)
