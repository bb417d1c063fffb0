"""Plans over a whole log, and the ways to reach it."""

import asyncio
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.index.stub_server import answering, server
from tests.lake.stage import ALL, StageIndex, consumed, listed, staged
from tests.log.segments import fill, segmented
from tests.log.tables import tabled
from tests.memory_cluster import MemoryCluster, batch, run

from lakelog.config.named_options import ClusterOptions
from lakelog.index.entries import LocatedRange
from lakelog.index.messages import StoreAnswer
from lakelog.index.ports import Bounds, PinnedRange
from lakelog.lake.read.range_plan import DataLoss
from lakelog.lake.read.range_reader import RowOptions
from lakelog.lake.read.read_options import parse_read
from lakelog.lake.read.read_request import Filters, ReadRequest
from lakelog.lake.read.topic_source import (
    ClusterAddress,
    ReadPlan,
    TopicSource,
    find_cluster,
    open_source,
)
from lakelog.model.failures import Refused, Unavailable
from lakelog.records.build import BatchOptions
from lakelog.records.codecs import Codec


def request(**options: str) -> ReadRequest:
    given = {"lakelog.server": "http://h:1", "subscribe": "t", **options}
    return parse_read(given, streaming=False)


async def rows_of(
    source: TopicSource, plan: ReadPlan, options: RowOptions
) -> list[dict[str, object]]:
    batches = []
    for split in pickle.loads(pickle.dumps(plan.splits)):
        batches += [one async for one in source.read(split, options)]
    return listed(pa.Table.from_batches(batches)) if batches else []


async def three(cluster: MemoryCluster) -> StageIndex:
    """Three partitions: one in WAL objects, one in segments and one in data files."""
    index = await staged(cluster, 1, 2, 3)
    for stream in (1, 2, 3):
        await fill(cluster, index.node, stream, 6)
    await segmented(cluster, index.node, 2, end=20)
    await tabled(cluster, index.node, 3, end=25, row_group_bytes=400)
    return index


@pytest.mark.parametrize("count", [1, 2, 5, 13, 90])
def test_a_plan_of_any_number_of_splits_reads_everything_once(count: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await three(cluster)
        source = TopicSource(index, cluster.objects)
        plan = await source.plan(request(minPartitions=str(count)))
        assert len(plan.splits) <= count
        assert len(plan.splits) >= min(count, 5)
        expected = [row for stream in (1, 2, 3) for row in await consumed(index, stream)]
        assert await rows_of(source, plan, RowOptions(ALL)) == expected
        assert set(plan.vector.values()) == {(0, 30)}

    run(scenario)


def test_filters_leave_out_what_cannot_hold_a_row_and_nothing_else() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await three(cluster)
        source = TopicSource(index, cluster.objects)
        since_us = 1_030_000
        filters = Filters(partitions=frozenset({0, 2}), offset_start=3, timestamp_start_us=since_us)
        plan = await source.plan(request(), filters=filters)
        options = RowOptions(ALL, since_us=since_us)
        found = await rows_of(source, plan, options)
        everything = [row for stream in (1, 3) for row in await consumed(index, stream)]
        wanted = [row for row in everything if int(str(row["timestamp"])) >= since_us]
        assert [row for row in found if row in wanted] == wanted
        assert len(found) < len(everything)
        whole = await source.plan(request())
        assert sum(one.offset_count for one in plan.splits) < sum(
            one.offset_count for one in whole.splits
        )

    run(scenario)


class Trimming(StageIndex):
    """An index of a log that is trimmed between two questions."""

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        found = await super().bounds(streams)
        await self.node.log.trim({1: 12})
        return found


def test_what_is_trimmed_while_a_read_is_planned_is_an_error_or_left_out() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        first = await staged(cluster, 1)
        await fill(cluster, first.node, 1, 4)
        expected = await consumed(first, 1)
        source = TopicSource(Trimming(cluster, first.node, first.topic_list), cluster.objects)
        with pytest.raises(DataLoss, match="begins at 12 now"):
            await source.plan(request())
        await fill(cluster, first.node, 1, 1)
        lenient = request(failOnDataLoss="false", startingOffsets='{"t":{"0":3}}')
        plan = await source.plan(lenient)
        found = await rows_of(source, plan, RowOptions(ALL))
        assert [row["offset"] for row in found] == list(range(12, 25))
        assert found[:8] == expected[12:]
        assert len(plan.notes) == 1

    run(scenario)


class Hiding(StageIndex):
    """An index that has lost entries."""

    async def located(self, ranges: Sequence[PinnedRange]) -> Sequence[LocatedRange | None]:
        found = await super().located(ranges)
        return [
            one and replace(one, entries=one.entries.part(1, len(one.entries))) for one in found
        ]


def test_an_index_that_does_not_cover_a_range_is_an_error() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        first = await staged(cluster, 1)
        await fill(cluster, first.node, 1, 4)
        source = TopicSource(Hiding(cluster, first.node, first.topic_list), cluster.objects)
        with pytest.raises(Exception, match=r"no entries for all of t-0 \[0, 20\)"):
            await source.plan(request())

    run(scenario)


def test_a_topic_without_records_is_an_empty_plan() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        source = TopicSource(await staged(cluster, 1), cluster.objects)
        plan = await source.plan(request())
        assert plan.splits == ()
        assert set(plan.vector.values()) == {(0, 0)}

    run(scenario)


def test_values_that_are_larger_than_a_batch_of_rows_should_be_are_read() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        index = await staged(cluster, 1)
        large = bytes(16 << 20)
        sent = batch(large, b"x", large, options=BatchOptions(codec=Codec.LZ4))
        await index.node.log.append([1], [sent], deadline_s=cluster.soon(30))
        source = TopicSource(index, cluster.objects)
        plan = await source.plan(request())
        found = await rows_of(source, plan, RowOptions(("value",)))
        assert [row["value"] for row in found] == [large, b"x", large]

    run(scenario)


@asynccontextmanager
async def told(url: str) -> AsyncIterator[str]:
    """A broker that says where its objects are."""
    async with server(answering(200, msgspec.msgpack.encode(StoreAnswer("c", url, {})))) as at:
        yield at


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory:", "in its own memory"),
        ("file:///no/such/directory/here", "not on this machine"),
        ("gopher://x", "objects.url"),
    ],
)
def test_objects_that_cannot_be_reached_are_refused_with_the_reason(url: str, said: str) -> None:
    async def scenario() -> None:
        async with told(url) as broker:
            reached = await find_cluster(ClusterOptions((broker,)), {})
            with pytest.raises(Refused, match=said):
                await open_source(reached)

    asyncio.run(scenario())


def test_a_directory_with_spaces_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "my objects ü"
    folder.mkdir()

    async def scenario() -> None:
        async with told(folder.as_uri()) as broker:
            source = await open_source(await find_cluster(ClusterOptions((broker,)), {}))
            assert source.objects.url == folder.as_uri()
            await source.close()

    asyncio.run(scenario())


def test_a_configuration_without_a_broker_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "lakelog.toml"
    file.write_text(f'[broker]\ndata = "{tmp_path}"\n')
    with pytest.raises(Unavailable, match=r"set lakelog\.server"):
        asyncio.run(find_cluster(ClusterOptions((), str(file)), {}))


def test_what_is_reached_travels_and_shows_no_secret() -> None:
    found = ClusterAddress(("h:1",), "s3://b", (("secret_access_key", "hidden"),))
    assert pickle.loads(pickle.dumps(found)) == found
    assert "hidden" not in repr(found)
