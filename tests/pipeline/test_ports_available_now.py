"""A run that ends: everything is due, and what comes later is not its business."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import StreamColumns, StreamIndex
from lakelog.index.ports import IndexedTopic, StreamRange, StreamView
from lakelog.model.ids import TopicId
from lakelog.pipeline.ports import AvailableNowIndex
from lakelog.streams.objects import FileKind

TOPIC = IndexedTopic("t", TopicId(bytes(16)), (1, 2), True, 60_000, 1000, -1, False, 0, 0, 0, 0.5)


def index_of(*entries: tuple[int, int, FileKind]) -> StreamIndex:
    starts, ends, kinds = (np.array(column, np.int64) for column in zip(*entries, strict=True))
    zeros = np.zeros(len(entries), np.int64)
    return StreamIndex(0, int(ends[-1]), StreamColumns(starts, ends, kinds, zeros, zeros))


class Given:
    """An index that answers what it was given."""

    def __init__(self) -> None:
        self.found: dict[int, StreamIndex] = {}

    async def cluster_id(self) -> str:
        return "c"

    async def topics(self) -> Sequence[IndexedTopic]:
        return [TOPIC]

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        return {at: self.found[at] for at in streams if at in self.found}

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        return await self.backlog(streams)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        return [None for _ in ranges]

    async def swap(self, swap: Swap) -> Swapped:
        return Swapped(True, "")

    async def named_files(self) -> frozenset[str]:
        return frozenset({"f"})


def test_every_backlog_is_due_at_once() -> None:
    (topic,) = asyncio.run(AvailableNowIndex(Given()).topics())
    assert (topic.freshness_ms, topic.name, topic.streams) == (0, "t", (1, 2))


def test_a_stream_is_left_out_once_it_is_compacted_up_to_where_it_ended_at_first() -> None:
    async def scenario() -> None:
        given = Given()
        index = AvailableNowIndex(given)
        given.found[1] = index_of((0, 5, FileKind.WAL), (5, 9, FileKind.WAL))
        assert list(await index.backlog([1, 2])) == [1]
        given.found[1] = index_of((0, 5, FileKind.PARQUET), (5, 12, FileKind.WAL))
        assert list(await index.backlog([1])) == [1]
        given.found[1] = index_of((5, 9, FileKind.PARQUET), (9, 20, FileKind.WAL))
        assert await index.backlog([1]) == {}
        assert list(await index.columns([1])) == [1]

    asyncio.run(scenario())


def test_a_stream_that_had_nothing_at_first_is_left_alone() -> None:
    async def scenario() -> None:
        given = Given()
        index = AvailableNowIndex(given)
        assert await index.backlog([2]) == {}
        given.found[2] = index_of((0, 3, FileKind.WAL))
        assert await index.backlog([2]) == {}

    asyncio.run(scenario())


def test_everything_else_is_passed_on() -> None:
    async def scenario() -> None:
        index = AvailableNowIndex(Given())
        assert await index.cluster_id() == "c"
        assert await index.named_files() == {"f"}
        assert await index.views([StreamRange(1, 0, 5)]) == [None]

    asyncio.run(scenario())
