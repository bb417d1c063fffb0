"""A stream over a real log in memory, with a clock that is turned by hand."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.lake.stage import StageIndex, staged
from tests.log.segments import fill
from tests.memory_cluster import MemoryCluster, run

from lakelog.index.ports import Bounds, TopicStreams
from lakelog.lake.read.read_options import parse_read
from lakelog.lake.read.topic_source import ReadPlan, TopicSource
from lakelog.model.failures import Unavailable
from lakelog.model.ids import TopicId
from lakelog.spark.stream_offsets import TOPIC_IDS, Document
from lakelog.spark.stream_reader import StreamQuery
from lakelog.spark.topic_poller import TopicPoller

OTHER = TopicId(bytes(15) + b"\1")


class HandClock:
    """Time that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s
        await asyncio.sleep(0)


@dataclass
class CountingIndex(StageIndex):
    """The index of the stage; knows what was asked, and fails when it is told to."""

    questions: list[str] = field(default_factory=list)
    failures_left: int = 0

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        self._count("topics")
        return await super().topics(names)

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        self._count("bounds")
        return await super().bounds(streams)

    def _count(self, name: str) -> None:
        self.questions.append(name)
        if self.failures_left:
            self.failures_left -= 1
            raise Unavailable("nobody is there")


class Theatre:
    """A topic `t` of some partitions, with a stream that reads it."""

    def __init__(self, cluster: MemoryCluster, index: CountingIndex) -> None:
        self.cluster = cluster
        self.index = index
        self.clock = HandClock()
        self.source = TopicSource(index, cluster.objects)

    def query(self, **options: str) -> StreamQuery:
        given = {"lakelog.server": "http://h:1", **options}
        if not {"assign", "subscribePattern"} & options.keys():
            given.setdefault("subscribe", "t")
        request = parse_read(given, streaming=True)
        poller = TopicPoller(self.source, request.topics, self.clock, self.clock.sleep)
        return StreamQuery(self.source, poller, request, self.clock)

    async def fill(self, *counts: int) -> None:
        """So many records more for each partition."""
        for stream, count in enumerate(counts, 1):
            if count:
                await fill(self.cluster, self.index.node, stream, 1, each=count)

    async def add(self, name: str, topic_id: TopicId, *streams: int) -> None:
        log = self.index.node.log
        await log.create_streams(topic_id, first_partition=0, streams=list(streams))
        self.index.topic_list.append(TopicStreams(name, bytes(topic_id), streams))


def play(scenario: Callable[[Theatre], Awaitable[None]], *counts: int) -> None:
    async def played(cluster: MemoryCluster) -> None:
        stage = await staged(cluster, *range(1, len(counts) + 1))
        theatre = Theatre(cluster, CountingIndex(cluster, stage.node, stage.topic_list))
        await theatre.fill(*counts)
        await scenario(theatre)

    run(played)


def offsets(document: Document, topic: str = "t") -> list[object]:
    assert list(document)[-1] == TOPIC_IDS
    return list(document[topic].values())


def ranges_of(plan: ReadPlan) -> list[tuple[str, int, int, int]]:
    pins = [one.pinned for split in plan.splits for one in split.ranges]
    return [(one.topic, one.partition, one.start, one.end) for one in pins]
