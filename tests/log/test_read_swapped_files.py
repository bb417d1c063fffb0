"""What holds of reads whatever kind of file took the place of WAL entries: data file or segment."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.log.segments import INTERVAL, SMALL_PARTS, created, fill, read_bytes
from tests.log.tables import accepted, read_all, swap, swapped_in, wal_task
from tests.memory_cluster import MemoryCluster, run
from tests.records.table_cases import TIMESTAMPS_MS

from lakelog.log import segment_source
from lakelog.log.timestamps import TimestampMatch
from lakelog.log.values import ReadStatus, StreamRead
from lakelog.pipeline.files.file_task import FileResult
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.streams.objects import FileKind, FileName

SMALL_GROUPS = 2000
KINDS = pytest.mark.parametrize("kind", [FileKind.PARQUET, FileKind.SEGMENT])


@pytest.fixture(autouse=True)
def small_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are small here: their ends are not the whole of them."""
    monkeypatch.setattr(segment_source, "TAIL_GUESS_BYTES", 1000)


@KINDS
def test_a_trim_into_a_file_leaves_what_is_behind_it(kind: FileKind) -> None:
    """DeleteRecords into the middle of a file, before and after the swap."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 40)
        before = await read_all(cluster, node, 1)
        cuts = {"row_group_bytes": SMALL_GROUPS, "index_interval_bytes": INTERVAL}
        task = wal_task(node, 1, kind, **cuts)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        assert await node.log.trim({1: 33}) == {1: 33}
        assert (await swap(node, task, result)).accepted
        assert node.log.pieces(1)[0].start == 30  # what the trim left, of a file that has more
        assert await read_all(cluster, node, 1, offset=33) == before[33:]
        assert await node.log.trim({1: 151}) == {1: 151}
        below = await node.log.read([StreamRead(1, 150, 1)], bytes_max=1, deadline_s=cluster.soon())
        assert below[0].status is ReadStatus.OUT_OF_RANGE
        assert await read_all(cluster, node, 1, offset=151) == before[151:]
        assert await node.log.find_timestamp(1, 0) == TimestampMatch(151, before[151].timestamp_ms)
        assert await node.log.max_timestamp(1) == TimestampMatch(199, before[199].timestamp_ms)
        assert await node.log.trim({1: 200}) == {1: 200}
        assert node.log.pieces(1) == []

    run(scenario)


@KINDS
@pytest.mark.parametrize("stamp_ms", TIMESTAMPS_MS)
def test_timestamps_are_found_in_files_as_in_the_tail(stamp_ms: int, kind: FileKind) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        for at in (0, 1000, stamp_ms, 7, stamp_ms, 0, 500):
            data = build_batch([Record(b"k", b"v" * 300, at)] * 2, BatchOptions())
            await node.log.append([1], [accepted(memoryview(data))], deadline_s=cluster.soon())
        wanted = [stamp_ms, max(stamp_ms, 1), -(1 << 63), 501, 7]
        before = [await node.log.find_timestamp(1, stamp) for stamp in wanted]
        greatest = await node.log.max_timestamp(1)
        cuts = {"row_group_bytes": 100, "index_interval_bytes": INTERVAL}
        result = await swapped_in(cluster, node, wal_task(node, 1, kind, **cuts))
        assert result.facts.max_timestamp_ms >= stamp_ms
        for _ in range(2):  # the second time with what the first learned of the parts
            assert [await node.log.find_timestamp(1, stamp) for stamp in wanted] == before
            assert await node.log.max_timestamp(1) == greatest

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "read"), [(FileKind.PARQUET, read_all), (FileKind.SEGMENT, read_bytes)]
)
def test_a_reader_during_swaps_sees_no_gap(
    kind: FileKind, read: Callable[..., Awaitable[Sequence[object]]]
) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 30)
        expected = await read(cluster, node, 1)

        async def reading() -> None:
            for _ in range(20):
                assert await read(cluster, node, 1, bytes_max=300) == expected
                await asyncio.sleep(0)

        async def swapping() -> None:
            cuts = {"row_group_bytes": SMALL_GROUPS, "index_interval_bytes": INTERVAL}
            for end in (25, 60, 100, 150):
                await swapped_in(cluster, node, wal_task(node, 1, kind, end=end, **cuts))
                await asyncio.sleep(0.002)

        await asyncio.gather(reading(), swapping())
        names = [piece.name for piece in node.log.pieces(1)]
        assert all(isinstance(name, FileName) and name.kind is kind for name in names)
        assert len(names) == 4

    run(scenario)
