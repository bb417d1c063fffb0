"""A log over memory stores with entries of every kind, and its index as a reader asks it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from tests.log.tables import accepted, read_all
from tests.memory_cluster import TOPIC, MemoryCluster, MemoryNode
from tests.records.table_cases import Row, hostile_batches

from lakelog.clock import Clock
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.entries import LocatedRange, packed_range, unpacked_range
from lakelog.index.ports import Bounds, PinnedRange, StreamRange, TopicStreams
from lakelog.lake.read.range_plan import PlannedRange
from lakelog.lake.read.range_reader import RowOptions, read_range
from lakelog.lake.read.read_request import default_columns

ALL = default_columns(include_headers=True)
TOPIC_NAME = "t"


class LogIndex(BrokerIndex):
    """The real index over a log that has no broker around it."""

    def __init__(self, node: MemoryNode, clock: Clock) -> None:
        self._log = node.log
        self._clock = clock


@dataclass
class StageIndex:
    """`ReadIndex` in process, as it comes over HTTP; counts how often ranges were asked for."""

    cluster: MemoryCluster
    node: MemoryNode
    topic_list: list[TopicStreams] = field(default_factory=list)
    asked: list[PinnedRange] = field(default_factory=list)

    @property
    def log(self) -> LogIndex:
        return LogIndex(self.node, self.cluster.clock)

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        return [one for one in self.topic_list if names is None or one.name in names]

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        found = zip(streams, await self.log.bounds(streams), strict=True)
        return {stream: one for stream, one in found if one is not None}

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        return await self.log.first_at(times_ms)

    async def located(self, ranges: Sequence[PinnedRange]) -> Sequence[LocatedRange | None]:
        self.asked += ranges
        wanted = [StreamRange(one.stream, one.start, one.end) for one in ranges]
        found = await self.log.located(wanted, entries_max=1 << 20)
        return [None if one is None else unpacked_range(packed_range(one)) for one in found]

    async def locate(self, wanted: PinnedRange) -> LocatedRange | None:
        (found,) = await self.located([wanted])
        return found

    async def hinted(self, stream: int, start: int, end: int) -> PlannedRange:
        wanted = PinnedRange(TOPIC_NAME, bytes(TOPIC), stream - 1, stream, start, end)
        found = await self.locate(wanted)
        assert found is not None
        return PlannedRange(wanted, found.entries)


async def staged(cluster: MemoryCluster, *streams: int) -> StageIndex:
    node = await cluster.node()
    await node.log.create_streams(TOPIC, first_partition=0, streams=list(streams))
    return StageIndex(cluster, node, [TopicStreams(TOPIC_NAME, bytes(TOPIC), streams)])


async def hostile(cluster: MemoryCluster, node: MemoryNode, stream: int) -> None:
    """Every bound of rule 11, for every codec."""
    for _, data in hostile_batches():
        await node.log.append([stream], [accepted(data)], deadline_s=cluster.soon())


async def table_rows(
    index: StageIndex, hinted: PlannedRange, columns: Sequence[str] = ALL, **changes: Any
) -> pa.Table:
    """The rows of a range, as a reader gets them."""
    options = RowOptions(tuple(columns), **changes)
    rows = read_range(index.cluster.objects, hinted, index.locate, options)
    batches = [batch async for batch in rows]
    assert all(batch.num_rows for batch in batches)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches) if batches else None


def values_of(rows: Sequence[Row], partition: int) -> Iterator[dict[str, object]]:
    """What a reader must give for what a consumer reads."""
    for row in rows:
        headers = [
            {"key": key.decode(errors="replace"), "value": value} for key, value in row.headers
        ]
        yield {
            "key": row.key,
            "value": row.value,
            "topic": TOPIC_NAME,
            "partition": partition,
            "offset": row.offset,
            "timestamp": min(max(row.timestamp_ms, -(1 << 63) // 1000 + 1), ((1 << 63) - 1) // 1000)
            * 1000,
            "timestampType": int(row.log_append_time),
            "headers": headers or None,
        }


def listed(table: pa.Table) -> list[dict[str, object]]:
    """The rows of a table, timestamps as microseconds: Python's dates end with the year 9999."""
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    found: list[dict[str, object]] = table.to_pylist()
    return found


async def consumed(index: StageIndex, stream: int, *, start: int = 0) -> list[dict[str, object]]:
    """What a consumer reads of a stream, as a reader must give it."""
    rows = await read_all(index.cluster, index.node, stream, offset=start)
    return list(values_of(rows, stream - 1))
