"""What reads of segments cost: how often the store is asked, and whose memory they take."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.log.segments import (
    INTERVAL,
    SMALL_PARTS,
    created,
    fill,
    read_bytes,
    segmented,
)
from tests.log.tables import read_all
from tests.memory_cluster import MemoryCluster, run

from lakelog.log import segment_source
from lakelog.log.options import LogOptions
from lakelog.log.values import StreamRead
from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.records.header import parse_header


@pytest.fixture(autouse=True)
def small_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are small here: their ends are not the whole of them."""
    monkeypatch.setattr(segment_source, "TAIL_GUESS_BYTES", 1000)


class Counting(MemoryObjectStore):
    """Counts the ranges that are read."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster.clock)
        self.ranges: list[tuple[str, ByteRange]] = []

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        self.ranges += [(key, one) for one in ranges]
        return await super().get_ranges(key, ranges)


def test_only_the_parts_that_are_needed_are_read_and_each_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 40)
        result = await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        store.ranges.clear()
        wanted = [StreamRead(1, 100, 1)]
        await asyncio.gather(
            *(node.log.read(wanted, bytes_max=1, deadline_s=cluster.soon()) for _ in range(5))
        )
        size = result.facts.size_bytes
        ends = {ByteRange(0, 32), ByteRange(size - 1000, size)}
        middle = [span for _, span in store.ranges if span not in ends]
        assert len(middle) == 1
        assert 500 <= len(middle[0]) < 2000 < size
        await read_bytes(cluster, node, 1)
        store.ranges.clear()
        await read_bytes(cluster, node, 1)
        assert not store.ranges

    run(scenario)


def test_many_small_segments_are_read_together_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One read brings a small segment whole, and one answer holds all of them."""
    monkeypatch.setattr(segment_source, "TAIL_GUESS_BYTES", 16 << 10)

    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 20)
        before = await read_bytes(cluster, node, 1)
        for end in range(10, 101, 10):
            await segmented(cluster, node, 1, end=end)
        assert len(node.log.pieces(1)) == 10
        store.ranges.clear()
        wanted = [StreamRead(1, 0, 1 << 20)]
        (got,) = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
        assert b"".join(bytes(part) for part in got.parts) == b"".join(before)
        assert len({key for key, _ in store.ranges}) == 10
        assert len(store.ranges) == 20  # head and tail of each

    run(scenario)


def test_a_large_request_does_not_push_out_what_it_brought() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(
            linger_ms=1, segment_cache_bytes=6000, segment_part_bytes=500, read_ahead_bytes=1 << 20
        )
        node = await created(cluster, 1, options=options)
        await fill(cluster, node, 1, 60)
        before = await read_bytes(cluster, node, 1)
        result = await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        store.ranges.clear()
        assert await read_bytes(cluster, node, 1, bytes_max=1 << 24) == before
        read = sum(len(span) for _, span in store.ranges)
        assert read < result.facts.size_bytes + 500

    run(scenario)


def test_what_is_read_ahead_comes_with_one_read() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(linger_ms=1, segment_part_bytes=500, read_ahead_bytes=1 << 20)
        node = await created(cluster, 1, options=options)
        await fill(cluster, node, 1, 40)
        await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        store.ranges.clear()
        await read_bytes(cluster, node, 1, bytes_max=600)
        assert len(store.ranges) == 3  # both ends, and all parts together

    run(scenario)


def test_cold_reads_leave_the_tail_in_memory() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(
            linger_ms=1, segment_cache_bytes=3000, segment_part_bytes=500, read_ahead_bytes=1
        )
        node = await created(cluster, 1, 2, options=options)
        await fill(cluster, node, 1, 40)
        await fill(cluster, node, 2, 1)
        before = await read_bytes(cluster, node, 1)
        await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        assert await read_bytes(cluster, node, 1, bytes_max=100) == before
        store.ranges.clear()
        assert len(await read_all(cluster, node, 2)) == 5
        assert not store.ranges

    run(scenario)


def test_many_cold_streams_take_turns_when_memory_is_short_and_all_come_to_their_end() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        cluster.objects = store = Counting(cluster)
        options = LogOptions(
            linger_ms=1, segment_cache_bytes=9000, segment_part_bytes=900, read_ahead_bytes=1
        )
        streams = list(range(1, 13))
        node = await created(cluster, *streams, options=options)
        for stream in streams:
            await fill(cluster, node, stream, 20)
            await segmented(cluster, node, stream, index_interval_bytes=INTERVAL)
        store.ranges.clear()
        places = dict.fromkeys(streams, 0)
        requests = 0
        while any(place < 100 for place in places.values()):
            wanted = [StreamRead(stream, place, 500) for stream, place in places.items()]
            got = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
            assert any(one.size_bytes for one in got)
            requests += 1
            for stream, one in zip(list(places), got, strict=True):
                data = b"".join(bytes(part) for part in one.parts)
                while data:
                    header = parse_header(memoryview(data))
                    places[stream] = header.base_offset + header.last_offset_delta + 1
                    data = data[header.size_bytes :]
                if one.size_bytes:  # as a client does, so that nobody is always last
                    places[stream] = places.pop(stream)
        assert requests < 12 * 20
        parts = [span for _, span in store.ranges if span.start != 0 or span.end == 32]
        assert len(parts) < 12 * 14  # of about nine parts a stream, few are read twice

    run(scenario)
