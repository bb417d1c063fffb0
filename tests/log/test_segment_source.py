"""What a consumer reads is the same, byte by byte, before and after a segment took over."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.segments import (
    INTERVAL,
    SMALL_PARTS,
    created,
    fill,
    fill_hostile,
    read_bytes,
    segmented,
    unreadable,
)
from tests.log.tables import fetched_rows, read_all, tabled
from tests.memory_cluster import MemoryCluster, MemoryNode, batch, run
from tests.profiles import examples

from lakelog.log import segment_source
from lakelog.log.timestamps import TimestampMatch
from lakelog.log.values import ReadStatus, StreamRead
from lakelog.model.failures import Corrupt
from lakelog.streams.objects import FileKind, WalName


@pytest.fixture(autouse=True)
def small_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are small here: their ends are not the whole of them."""
    monkeypatch.setattr(segment_source, "TAIL_GUESS_BYTES", 1000)


def kinds(node: MemoryNode, stream: int) -> list[FileKind]:
    names = [piece.name for piece in node.log.pieces(stream)]
    return [FileKind.WAL if isinstance(name, WalName) else name.kind for name in names]


def test_hostile_and_unreadable_batches_are_the_same_bytes_after_a_swap() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill_hostile(cluster, node, 1)
        before = await read_bytes(cluster, node, 1)
        assert len(before) > 20
        pieces = node.log.pieces(1)
        await segmented(cluster, node, 1, end=pieces[4].end, index_interval_bytes=INTERVAL)
        assert await read_bytes(cluster, node, 1) == before
        await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        assert kinds(node, 1) == [FileKind.SEGMENT, FileKind.SEGMENT]
        for bytes_max in (1 << 24, 1 << 20, 5000, 1):
            assert await read_bytes(cluster, node, 1, bytes_max=bytes_max) == before
        other = await cluster.node("broker-2")  # with nothing in memory
        now_s = cluster.clock.monotonic_s()
        await other.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
        assert await read_bytes(cluster, other, 1) == before

    run(scenario)


def test_every_offset_of_a_segment_answers_with_its_batch() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 40)
        before = await read_bytes(cluster, node, 1)
        await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        for offset in range(200):
            wanted = [StreamRead(1, offset, 1)]
            (got,) = await node.log.read(wanted, bytes_max=1, deadline_s=cluster.soon())
            assert b"".join(bytes(part) for part in got.parts) == before[offset // 5]
            assert (got.log_start, got.head) == (0, 200)
        end = [StreamRead(1, 200, 100)]
        (got,) = await node.log.read(end, bytes_max=100, deadline_s=cluster.soon())
        assert (got.status, got.size_bytes, got.head) == (ReadStatus.OK, 0, 200)

    run(scenario)


def test_one_answer_crosses_all_three_kinds_of_entries() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 40)
        before = await read_all(cluster, node, 1)
        await tabled(cluster, node, 1, end=50)
        await segmented(cluster, node, 1, start=50, end=100)
        await segmented(cluster, node, 1, start=100, end=120)
        await tabled(cluster, node, 1, end=160)
        expected = [FileKind.PARQUET, FileKind.SEGMENT, FileKind.SEGMENT, FileKind.PARQUET]
        assert kinds(node, 1)[:5] == [*expected, FileKind.WAL]
        for name in ("broker-1", "broker-2"):
            reader = node if name == "broker-1" else await cluster.node(name)
            now_s = cluster.clock.monotonic_s()
            await reader.log.prove([1], arrived_s=now_s, deadline_s=cluster.soon())
            assert await read_all(cluster, reader, 1) == before
            wanted = [StreamRead(1, 20, 1 << 20)]
            (got,) = await reader.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
            rows = fetched_rows(got)
            assert rows == before[rows[0].offset :]
            assert rows[0].offset <= 20

    run(scenario)


@settings(max_examples=examples(12), deadline=None)
@given(
    edges=st.lists(st.integers(1, 29), unique=True, max_size=6).map(sorted),
    choices=st.lists(st.sampled_from(["wal", "segment", "table"]), min_size=7, max_size=7),
    order=st.permutations(range(7)),
    bytes_max=st.sampled_from([1, 700, 3000, 1 << 20]),
    trim=st.integers(0, 149),
)
def test_any_mix_of_entries_reads_like_the_log_that_it_was_made_of(
    edges: list[int], choices: list[str], order: list[int], bytes_max: int, trim: int
) -> None:
    """Random cuts, each range of any kind, swapped in any order, then a log start anywhere."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 30)
        before = await read_all(cluster, node, 1)
        stamps = range(995, 1300, 23)
        found = [await node.log.find_timestamp(1, stamp) for stamp in stamps]
        ranges = list(zip([0, *edges], [*edges, 30], strict=True))
        for place in order:
            if place >= len(ranges) or choices[place] == "wal":
                continue
            start, end = ranges[place][0] * 5, ranges[place][1] * 5
            if choices[place] == "segment":
                await segmented(
                    cluster, node, 1, start=start, end=end, index_interval_bytes=INTERVAL
                )
            elif all(kind is not FileKind.WAL for kind in kinds_before(node, start)):
                await tabled(cluster, node, 1, end=end, row_group_bytes=1500)
            assert await read_all(cluster, node, 1, bytes_max=bytes_max) == before
        assert [await node.log.find_timestamp(1, stamp) for stamp in stamps] == found
        assert await node.log.max_timestamp(1) == TimestampMatch(149, before[149].timestamp_ms)
        await node.log.trim({1: trim})
        assert await read_all(cluster, node, 1, offset=trim, bytes_max=bytes_max) == before[trim:]
        assert await node.log.find_timestamp(1, 0) == TimestampMatch(
            trim, before[trim].timestamp_ms
        )

    run(scenario)


def kinds_before(node: MemoryNode, offset: int) -> list[FileKind]:
    """What lies below an offset: a test's table task takes all WAL entries up to its end."""
    count = sum(piece.end <= offset for piece in node.log.pieces(1))
    return kinds(node, 1)[:count]


def test_a_batch_that_cannot_be_read_is_found_by_its_header() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        sent = [batch(b"a"), unreadable(count=3, stamp_ms=9000), batch(b"b", timestamp_ms=8000)]
        await node.log.append([1, 1, 1], sent, deadline_s=cluster.soon())

        async def check() -> None:
            assert await node.log.find_timestamp(1, 2000) == TimestampMatch(1, 9000)
            assert await node.log.max_timestamp(1) == TimestampMatch(1, 9000)
            assert await node.log.find_timestamp(1, 9001) is None

        await check()
        await segmented(cluster, node, 1)
        await check()
        await node.log.trim({1: 3})
        assert await node.log.find_timestamp(1, 2000) == TimestampMatch(3, 9000)
        await node.log.trim({1: 4})
        assert await node.log.find_timestamp(1, 2000) == TimestampMatch(4, 8000)

    run(scenario)


def flip_batch(content: bytearray) -> None:
    content[32 + 70] ^= 1


def flip_base(content: bytearray) -> None:
    content[32 + 7] ^= 1


def flip_index(content: bytearray) -> None:
    content[-16 - 1] ^= 1


def flip_footer(content: bytearray) -> None:
    content[-1] ^= 1


@pytest.mark.parametrize("harm", [flip_batch, flip_base, flip_index, flip_footer])
def test_damage_is_damage_and_never_the_end(harm: Callable[[bytearray], None]) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill(cluster, node, 1, 10)
        result = await segmented(cluster, node, 1)
        content = bytearray(await cluster.objects.get(result.key))
        harm(content)
        await cluster.objects.put(result.key, [content])
        wanted = [StreamRead(1, 0, 1000)]
        (got,) = await node.log.read(wanted, bytes_max=1000, deadline_s=cluster.soon())
        assert (got.status, got.size_bytes, got.head) == (ReadStatus.DAMAGED, 0, -1)
        with pytest.raises(Corrupt, match=result.key):
            await node.log.find_timestamp(1, 0)

    run(scenario)


def test_a_lost_cut_or_foreign_segment_is_damage_and_its_neighbours_go_on() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        store = cluster.objects
        node = await created(cluster, 1, 2, options=SMALL_PARTS)
        await fill(cluster, node, 1, 20)
        await fill(cluster, node, 2, 3)
        before = await read_bytes(cluster, node, 2)
        one = await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        other = await segmented(cluster, node, 2, index_interval_bytes=INTERVAL)
        wanted = [StreamRead(1, 0, 1000), StreamRead(2, 0, 1 << 20)]
        whole = bytes(await store.get(one.key))
        for content in (whole[:-1], bytes(await store.get(other.key)), b"x"):
            await store.put(one.key, [content])
            got = await node.log.read(wanted, bytes_max=1 << 20, deadline_s=cluster.soon())
            assert got[0].status is ReadStatus.DAMAGED
            data = b"".join(bytes(part) for part in got[1].parts)
            assert data == b"".join(before)
        await store.delete([one.key])
        got = await node.log.read(wanted[:1], bytes_max=1000, deadline_s=cluster.soon())
        assert got[0].status is ReadStatus.DAMAGED
        await store.put(one.key, [whole])
        assert len(await read_all(cluster, node, 1)) == 100

    run(scenario)


def test_damage_in_one_part_leaves_the_others_readable() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1, options=SMALL_PARTS)
        await fill(cluster, node, 1, 40)
        before = await read_bytes(cluster, node, 1)
        result = await segmented(cluster, node, 1, index_interval_bytes=INTERVAL)
        content = bytearray(await cluster.objects.get(result.key))
        content[len(content) // 2] ^= 1
        await cluster.objects.put(result.key, [content])
        statuses = []
        for offset in range(0, 200, 5):
            wanted = [StreamRead(1, offset, 1)]
            (got,) = await node.log.read(wanted, bytes_max=1, deadline_s=cluster.soon())
            statuses.append(got.status)
            if got.status is ReadStatus.OK:
                assert b"".join(bytes(part) for part in got.parts) == before[offset // 5]
        assert 0 < statuses.count(ReadStatus.DAMAGED) < 6

    run(scenario)
