"""Rows of a range: the same that a consumer reads, in whatever objects they lie and move to."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from tests.lake.stage import (
    ALL,
    StageIndex,
    consumed,
    hostile,
    listed,
    staged,
    table_rows,
)
from tests.log.segments import fill, segmented, unreadable
from tests.log.tables import tabled
from tests.memory_cluster import MemoryCluster, batch, run

from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.read.range_reader import RowOptions, read_range
from lakelog.lake.read.read_request import TYPES, arrow_schema
from lakelog.model.failures import Corrupt, NotFound
from lakelog.model.ids import ByteRange
from lakelog.objects.port import ObjectStore

END = 1 << 20


async def head(index: StageIndex, stream: int) -> int:
    bounds = await index.bounds([stream])
    return bounds[stream].head


async def whole(index: StageIndex, stream: int) -> list[dict[str, object]]:
    hinted = await index.hinted(stream, 0, await head(index, stream))
    return listed(await table_rows(index, hinted))


def test_rows_are_what_a_consumer_reads_in_wal_objects() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await hostile(cluster, index.node, 1)
        assert await whole(index, 1) == await consumed(index, 1)

    run(scenario)


def test_rows_are_what_a_consumer_reads_in_data_files() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await hostile(cluster, index.node, 1)
        expected = await consumed(index, 1)
        await tabled(cluster, index.node, 1)
        assert await whole(index, 1) == expected

    run(scenario)


def test_rows_are_what_a_consumer_reads_in_segments() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await hostile(cluster, index.node, 1)
        expected = await consumed(index, 1)
        await segmented(cluster, index.node, 1)
        assert await whole(index, 1) == expected

    run(scenario)


@pytest.mark.parametrize("order", ["tsw", "stw", "wsw", "sts", "tts", "sww"])
def test_any_part_of_a_mix_of_files_has_its_rows(order: str) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 12)
        expected = await consumed(index, 1)
        for number, kind in enumerate(order):
            if kind == "s":
                await segmented(cluster, index.node, 1, start=number * 20, end=number * 20 + 20)
            elif kind == "t":
                await tabled(cluster, index.node, 1, end=number * 20 + 20, row_group_bytes=400)
        for start in (0, 1, 7, 19, 20, 21, 40, 58, 59):
            for end in (start + 1, start + 22, 60):
                if end <= 60:
                    hinted = await index.hinted(1, start, end)
                    assert listed(await table_rows(index, hinted)) == expected[start:end]

    run(scenario)


def test_columns_come_alone_and_in_any_order() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await hostile(cluster, index.node, 1)
        expected = await consumed(index, 1)
        for kind in ("wal", "table"):
            if kind == "table":
                await tabled(cluster, index.node, 1)
            hinted = await index.hinted(1, 0, len(expected))
            for columns in (*((name,) for name in TYPES), ("value", "offset"), ALL[::-1]):
                table = await table_rows(index, hinted, columns)
                assert table.schema == arrow_schema(columns)
                assert listed(table) == [{name: row[name] for name in columns} for row in expected]

    run(scenario)


def test_a_swap_and_a_sweep_in_the_middle_of_a_read_change_nothing() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        value = bytes(range(256)) * 4000
        for number in range(40):
            await index.node.log.append(
                [1], [batch(b"%d" % number + value)], deadline_s=cluster.soon()
            )
        expected = await consumed(index, 1)
        old = await index.hinted(1, 0, 40)
        keys = [entry.key for entry in old.entries]
        found: list[pa.RecordBatch] = []
        rows = read_range(cluster.objects, old, index.locate, RowOptions(ALL))
        async for one in rows:
            found.append(one)
            if len(found) == 1:
                await tabled(cluster, index.node, 1, end=36)
                await cluster.objects.delete(keys[:36])
        assert len(index.asked) == 2
        assert 0 < index.asked[1].start < 36
        assert listed(pa.Table.from_batches(found)) == expected

    run(scenario)


def test_a_plan_whose_files_are_all_gone_finds_the_rows_again_and_again() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 4)
        expected = await consumed(index, 1)
        old = await index.hinted(1, 3, 17)
        await segmented(cluster, index.node, 1, end=10)
        between = await index.hinted(1, 3, 17)
        await cluster.objects.delete([entry.key for entry in old.entries.part(0, 2)])
        assert listed(await table_rows(index, old)) == expected[3:17]
        assert listed(await table_rows(index, between)) == expected[3:17]

    run(scenario)


def test_an_object_that_is_lost_is_named_with_its_range() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 2)
        hinted = await index.hinted(1, 0, 10)
        key = hinted.entries.entry(1).key
        await cluster.objects.delete([key])
        with pytest.raises(NotFound, match=key) as caught:
            await table_rows(index, hinted)
        assert "t-0 [0, 10)" in str(caught.value)

    run(scenario)


def test_what_retention_took_is_an_error_or_left_out() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 4)
        expected = await consumed(index, 1)
        hinted = await index.hinted(1, 0, 20)
        await index.node.log.trim({1: 12})
        assert listed(await table_rows(index, hinted)) == expected, "pinned: the files are there"
        await cluster.objects.delete([entry.key for entry in hinted.entries.part(0, 2)])
        with pytest.raises(DataLoss, match=r"t-0 \[0, 20\).*begins at 12"):
            await table_rows(index, hinted)
        notes: list[str] = []
        table = await table_rows(index, hinted, fail_on_data_loss=False, note=notes.append)
        assert listed(table) == expected[12:]
        assert len(notes) == 1

    run(scenario)


def test_a_topic_that_was_deleted_is_an_error_or_ends() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 2)
        hinted = await index.hinted(1, 0, 10)
        await index.node.log.drop_streams([1])
        await cluster.objects.delete([entry.key for entry in hinted.entries])
        with pytest.raises(DataLoss, match="deleted"):
            await table_rows(index, hinted)
        assert await table_rows(index, hinted, fail_on_data_loss=False) is None

    run(scenario)


class Damaged:
    """A store in which one byte of every read of some objects is another one."""

    def __init__(self, objects: ObjectStore, at: int) -> None:
        self._objects = objects
        self._at = at

    async def get_ranges(self, key: str, ranges: list[ByteRange]) -> list[memoryview]:
        found = []
        for data in await self._objects.get_ranges(key, ranges):
            changed = bytearray(data)
            changed[self._at % len(changed)] ^= 0x10
            found.append(memoryview(bytes(changed)))
        return found


@pytest.mark.parametrize("at", [0, 5, 30, 70, 99, 200, -1, -9, -30, -60])
@pytest.mark.parametrize("kind", ["wal", "segment", "table"])
def test_a_damaged_object_is_named_and_gives_no_row(kind: str, at: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        await fill(cluster, index.node, 1, 2)
        expected = await consumed(index, 1)
        if kind == "segment":
            await segmented(cluster, index.node, 1)
        elif kind == "table":
            await tabled(cluster, index.node, 1)
        hinted = await index.hinted(1, 0, 10)
        objects: object = Damaged(cluster.objects, at)
        rows = read_range(objects, hinted, index.locate, RowOptions(ALL))  # type: ignore[arg-type]  # only reads
        found: list[pa.RecordBatch] = []
        said = ""
        try:
            found = [batch async for batch in rows]
        except Corrupt as error:
            said = str(error)
        if said:
            assert hinted.entries.entry(0).key in said
        else:  # a bit that nothing depends on
            assert listed(pa.Table.from_batches(found)) == expected

    run(scenario)


@pytest.mark.parametrize("kind", ["wal", "segment"])
def test_a_batch_that_nobody_can_read_is_an_error_or_left_out(kind: str) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        sent = [batch(b"a"), unreadable(), batch(b"b")]
        await index.node.log.append([1] * 3, sent, deadline_s=cluster.soon())
        if kind == "segment":
            await segmented(cluster, index.node, 1)
        hinted = await index.hinted(1, 0, 5)
        with pytest.raises(Corrupt, match="failOnDataLoss") as caught:
            await table_rows(index, hinted)
        assert hinted.entries.entry(0).key in str(caught.value)
        notes: list[str] = []
        table = await table_rows(index, hinted, fail_on_data_loss=False, note=notes.append)
        assert table["value"].to_pylist() == [b"a", b"b"]
        assert table["offset"].to_pylist() == [0, 4]
        assert len(notes) == 1

    run(scenario)


def test_batches_are_of_some_mebibytes_whatever_the_entries_are() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1, 2)
        for _ in range(100):
            small = [batch(bytes(100_000)), batch(bytes(1000))]
            await index.node.log.append([1, 2], small, deadline_s=cluster.soon())
        await index.node.log.append([1], [batch(bytes(900_000))], deadline_s=cluster.soon())
        for stream, count in ((1, 2), (2, 1)):  # 11 MB and 100 kB
            hinted = await index.hinted(stream, 0, await head(index, stream))
            with ThreadPoolExecutor(1) as pool:
                rows = read_range(cluster.objects, hinted, index.locate, RowOptions(ALL, pool=pool))
                sizes = [one.nbytes async for one in rows]
            assert len(sizes) == count
            assert all(4 << 20 <= size <= 16 << 20 for size in sizes[:-1])

    run(scenario)


def test_a_read_that_nobody_goes_on_with_leaves_nothing_behind() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        for _ in range(20):
            sent = [batch(bytes(1_000_000))]
            await index.node.log.append([1], sent, deadline_s=cluster.soon())
        before = len(asyncio.all_tasks())
        hinted = await index.hinted(1, 0, 20)
        rows = read_range(cluster.objects, hinted, index.locate, RowOptions(ALL))
        assert (await anext(rows)).num_rows
        await rows.aclose()
        assert len(asyncio.all_tasks()) == before

    run(scenario)
