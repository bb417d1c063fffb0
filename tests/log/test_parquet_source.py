"""What a consumer reads is the same before and after a file took the place of WAL entries."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.log.segments import created, fill
from tests.log.tables import accepted, fetched_rows, read_all, table_facts, tabled
from tests.memory_cluster import MemoryCluster, batch, run
from tests.records.table_cases import hostile_batches

from lakelog.log.options import LogOptions
from lakelog.log.timestamps import TimestampMatch
from lakelog.log.values import ReadStatus, StreamRead
from lakelog.model.failures import NotFound
from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.codecs import Codec
from lakelog.records.header import parse_header, split_batches

SMALL_GROUPS = 2000


@pytest.mark.parametrize("threads", [0, 2])
def test_hostile_records_read_the_same_after_a_swap(threads: int) -> None:
    """Every codec, CreateTime and LogAppendTime, every bound of rule 11, a prefix then the rest."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=LogOptions(linger_ms=1, table_threads=threads))
        for _, data in hostile_batches():
            await node.log.append([1], [accepted(data)], deadline_s=cluster.soon())
        before = await read_all(cluster, node, 1)
        assert len(before) > 2000
        pieces = node.log.pieces(1)
        await tabled(cluster, node, 1, end=pieces[4].end, row_group_bytes=100_000)
        assert await read_all(cluster, node, 1) == before
        await tabled(cluster, node, 1, row_group_bytes=100_000)
        assert len(node.log.pieces(1)) == 2
        assert await read_all(cluster, node, 1) == before
        assert await read_all(cluster, node, 1, bytes_max=1) == before

    run(scenario)


@pytest.mark.parametrize("codec", Codec)
def test_rebuilt_batches_are_compressed_as_they_were_sent(codec: Codec) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        records = [Record(b"k", b"v" * 100, 1000)] * 50
        sent = accepted(memoryview(build_batch(records, BatchOptions(codec=codec))))
        await node.log.append([1], [sent], deadline_s=cluster.soon())
        await tabled(cluster, node, 1)
        wanted = [StreamRead(1, 0, 1 << 20)]
        (got,) = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
        (one,) = split_batches(memoryview(b"".join(bytes(part) for part in got.parts)))
        assert parse_header(one).codec == codec
        assert parse_header(one).partition_leader_epoch == 0

    run(scenario)


def test_every_offset_of_a_file_answers_with_its_record_first_or_after_earlier_ones() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 40)
        before = await read_all(cluster, node, 1)
        result = await tabled(cluster, node, 1, row_group_bytes=SMALL_GROUPS)
        assert len(table_facts(result).row_groups) > 3
        for offset in range(200):
            wanted = [StreamRead(1, offset, 1)]
            (got,) = await node.log.read(wanted, bytes_max=1, deadline_s=cluster.soon())
            rows = fetched_rows(got)
            assert offset in {row.offset for row in rows}
            assert rows == before[rows[0].offset : rows[-1].offset + 1]
        (at_end,) = await node.log.read(
            [StreamRead(1, 200, 100)], bytes_max=100, deadline_s=cluster.soon()
        )
        assert (at_end.status, at_end.size_bytes, at_end.head) == (ReadStatus.OK, 0, 200)

    run(scenario)


def test_one_answer_crosses_from_a_file_into_the_tail() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 10)
        before = await read_all(cluster, node, 1)
        await tabled(cluster, node, 1, end=25)
        (got,) = await node.log.read(
            [StreamRead(1, 20, 1 << 20)], bytes_max=1 << 20, deadline_s=cluster.soon()
        )
        assert fetched_rows(got) == before

    run(scenario)


def test_timestamps_are_found_in_files_as_in_the_tail() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 40)
        jump = batch(b"a", b"b", b"c", timestamp_ms=9000)
        await node.log.append([1], [jump], deadline_s=cluster.soon())
        await fill(cluster, node, 1, 3)
        stamps = [*range(995, 1420, 7), 8999, 9001, 9002, 9003]
        before = [await node.log.find_timestamp(1, stamp) for stamp in stamps]
        greatest = await node.log.max_timestamp(1)
        assert greatest == TimestampMatch(202, 9002)
        await tabled(cluster, node, 1, row_group_bytes=SMALL_GROUPS)
        assert [await node.log.find_timestamp(1, stamp) for stamp in stamps] == before
        assert await node.log.max_timestamp(1) == greatest
        await node.log.trim({1: 203})
        assert await node.log.max_timestamp(1) == TimestampMatch(217, 1024)

    run(scenario)


class Counting(MemoryObjectStore):
    """Counts the ranges that are read, and loses objects when told to."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster.clock)
        self.ranges: list[tuple[str, ByteRange]] = []
        self.lost = False

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        if self.lost:
            raise NotFound(key)
        self.ranges += [(key, one) for one in ranges]
        return await super().get_ranges(key, ranges)


def test_only_the_row_groups_that_are_needed_are_read_and_each_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 40)
        result = await tabled(cluster, node, 1, row_group_bytes=SMALL_GROUPS)
        store.ranges.clear()
        reads = [
            node.log.read([StreamRead(1, 100, 1)], bytes_max=1, deadline_s=cluster.soon())
            for _ in range(5)
        ]
        await asyncio.gather(*reads)
        (group,) = [one for one in table_facts(result).row_groups if one.start <= 100 < one.end]
        spans = [span for _, span in store.ranges if span.end <= group.byte_end]
        assert spans == [ByteRange(group.byte_start, group.byte_end)]

    run(scenario)


def test_cold_reads_leave_the_tail_in_memory() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(linger_ms=1, table_cache_bytes=3000, table_group_bytes=1000)
        node = await created(cluster, 1, 2, options=options)
        await fill(cluster, node, 1, 40)
        await fill(cluster, node, 2, 1)
        await tabled(cluster, node, 1, row_group_bytes=SMALL_GROUPS)
        await read_all(cluster, node, 1, bytes_max=100)
        store.ranges.clear()
        assert len(await read_all(cluster, node, 2)) == 5
        assert not store.ranges

    run(scenario)


@pytest.mark.parametrize(("thought_bytes", "wasted"), [(3000, 0), (500, 24)])
def test_many_cold_streams_take_turns_when_memory_is_short_and_all_come_to_their_end(
    thought_bytes: int, wasted: int
) -> None:
    """Groups that are larger than thought are read again at first, and not any more then."""

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(linger_ms=1, table_cache_bytes=9000, table_group_bytes=thought_bytes)
        streams = list(range(1, 13))
        node = await created(cluster, *streams, options=options)
        groups = 0
        for stream in streams:
            await fill(cluster, node, stream, 20)
            result = await tabled(cluster, node, stream, row_group_bytes=SMALL_GROUPS)
            groups += len(table_facts(result).row_groups)
        store.ranges.clear()
        places = dict.fromkeys(streams, 0)
        requests = 0
        while any(place < 100 for place in places.values()):
            wanted = [StreamRead(stream, place, 500) for stream, place in places.items()]
            got = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
            assert any(one.size_bytes for one in got)
            requests += 1
            for stream, one in zip(list(places), got, strict=True):
                for row in fetched_rows(one):
                    places[stream] = max(places[stream], row.offset + 1)
                if one.size_bytes:  # as a client does, so that nobody is always last
                    places[stream] = places.pop(stream)
        once = groups + len(streams)  # each group and each footer
        assert once <= len(store.ranges) <= once + wasted
        assert requests < 12 * 14  # of about 14 answers each, several come together

    run(scenario)


def test_a_lost_or_damaged_file_is_damage_and_never_the_end() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 40)
        result = await tabled(cluster, node, 1, row_group_bytes=SMALL_GROUPS)
        other = await cluster.node("broker-2")
        now_s = cluster.clock.monotonic_s()
        await other.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        store.lost = True
        wanted = [StreamRead(1, 0, 1000)]
        (got,) = await other.log.read(wanted, bytes_max=1000, deadline_s=cluster.soon())
        assert got.status is ReadStatus.DAMAGED
        store.lost = False
        content = bytearray(await store.get(result.key))
        content[table_facts(result).row_groups[0].byte_start + 9] ^= 1
        await store.put(result.key, [content])
        (got,) = await other.log.read(wanted, bytes_max=1000, deadline_s=cluster.soon())
        assert got.status is ReadStatus.DAMAGED
        last = [StreamRead(1, 199, 1000)]
        (got,) = await other.log.read(last, bytes_max=1000, deadline_s=cluster.soon())
        assert 199 in {row.offset for row in fetched_rows(got)}
        await store.put(result.key, [bytes(len(content))])
        third = await cluster.node("broker-3")
        now_s = cluster.clock.monotonic_s()
        await third.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        (got,) = await third.log.read(last, bytes_max=1000, deadline_s=cluster.soon())
        assert got.status is ReadStatus.DAMAGED

    run(scenario)


def test_who_is_first_in_line_waits_while_others_are_served() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(
            linger_ms=1, table_cache_bytes=6000, table_group_bytes=3000, table_batch_bytes=400
        )
        node = await created(cluster, 1, 2, 3, options=options)
        for stream in (1, 2, 3):
            await fill(cluster, node, stream, 20)
            await tabled(cluster, node, stream, row_group_bytes=SMALL_GROUPS)
        some = [StreamRead(1, 0, 500), StreamRead(2, 0, 500)]
        await node.log.read(some, bytes_max=1 << 20, deadline_s=cluster.soon())
        store.ranges.clear()
        for _ in range(3):
            wanted = [StreamRead(3, 0, 500), *some]
            first, *others = await node.log.read(
                wanted, bytes_max=1 << 20, deadline_s=cluster.soon()
            )
            assert not first.size_bytes
            assert all(one.size_bytes for one in others)
        assert len(store.ranges) == 1  # the footer of the third

    run(scenario)
