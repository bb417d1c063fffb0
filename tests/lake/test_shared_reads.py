"""Objects of several ranges are read once, and nothing is kept longer than it is needed."""

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pytest
from tests.lake.stage import ALL, StageIndex, consumed, listed, staged
from tests.log.segments import fill
from tests.log.tables import tabled
from tests.memory_cluster import MemoryCluster, batch, run

from lakelog.lake.read import shared_reads
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.shared_reads import SharedReads
from lakelog.lake.read.splits import PackOptions, Split, pack
from lakelog.lake.read.topic_source import TopicSource
from lakelog.model.ids import ByteRange

STREAMS = tuple(range(1, 9))


class Counting:
    """A store that counts its reads, by key."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._objects = cluster.objects
        self.reads: list[str] = []

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        self.reads.append(key)
        return await self._objects.get_ranges(key, ranges)


async def wide(cluster: MemoryCluster) -> tuple[StageIndex, Split]:
    """Eight partitions that share ten objects, in one split."""
    index = await staged(cluster, *STREAMS)
    for number in range(10):
        sent = [batch(b"%d-%d" % (number, stream) + bytes(99)) for stream in STREAMS]
        await index.node.log.append(list(STREAMS), sent, deadline_s=cluster.soon())
    (split,) = pack([await index.hinted(one, 0, 10) for one in STREAMS], PackOptions())
    return index, split


async def read_with(index: StageIndex, split: Split, store: Counting) -> list[dict[str, object]]:
    source = TopicSource(index, store)  # type: ignore[arg-type]  # only reads
    rows = source.read(split, RowOptions(ALL))
    return listed(pa.Table.from_batches([one async for one in rows]))


def test_an_object_of_many_ranges_is_read_once() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index, split = await wide(cluster)
        store = Counting(cluster)
        expected = [row for stream in STREAMS for row in await consumed(index, stream)]
        assert await read_with(index, split, store) == expected
        assert len(store.reads) == len(set(store.reads)) == 10

    run(scenario)


def test_what_would_need_too_much_memory_is_read_as_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_reads, "SHARED_BYTES_MAX", 100)

    async def scenario(cluster: MemoryCluster) -> None:
        index, split = await wide(cluster)
        store = Counting(cluster)
        expected = [row for stream in STREAMS for row in await consumed(index, stream)]
        assert await read_with(index, split, store) == expected
        assert len(store.reads) == 80

    run(scenario)


def test_objects_of_one_range_and_files_are_not_kept() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1, 2)
        for stream in (1, 2):
            await fill(cluster, index.node, stream, 3)
        await tabled(cluster, index.node, 2)
        (split,) = pack([await index.hinted(one, 0, 15) for one in (1, 2)], PackOptions())
        assert shared_reads.shared_entries(split) == []

    run(scenario)


def test_bytes_are_let_go_once_everybody_had_theirs() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        _, split = await wide(cluster)
        reads = SharedReads(Counting(cluster), split)
        for hinted in split.ranges:
            for entry in hinted.entries:
                span = ByteRange(entry.byte_start, entry.byte_start + entry.byte_length)
                (data,) = await reads.get_ranges(entry.key, [span])
                assert len(data) == entry.byte_length
        assert not reads._held

    run(scenario)


def test_ranges_that_nobody_planned_and_many_askers_at_once_are_served() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        _, split = await wide(cluster)
        store = Counting(cluster)
        reads = SharedReads(store, split)
        entry = split.ranges[3].entries.entry(0)
        span = ByteRange(entry.byte_start, entry.byte_start + entry.byte_length)
        found = await asyncio.gather(*(reads.get_ranges(entry.key, [span]) for _ in range(5)))
        assert len({bytes(data) for (data,) in found}) == 1
        assert len(store.reads) == 1
        (head,) = await reads.get_ranges(entry.key, [ByteRange(0, 4)])
        assert len(head) == 4

    run(scenario)
