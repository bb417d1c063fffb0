"""Pipelines of a simulated cluster: their stores, the catalog and the brokers as they see them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from tests.sim.log_cluster import LogBroker, LogCluster
from tests.simulated_cluster import SimulatedProcess

from lakelog.catalog.port import (
    Advance,
    AppendResult,
    DataFileView,
    Replacement,
    TableDefinition,
    TableName,
    TableView,
)
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.entries import StreamIndex
from lakelog.index.ports import IndexedTopic, StreamRange, StreamView
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.pipeline.files.run_task import InlineEngine
from lakelog.pipeline.options import PipelineOptions
from lakelog.pipeline.round_report import RoundReport
from lakelog.pipeline.rounds import Pipeline
from lakelog.testing.faulty import Faults, FaultyLink
from lakelog.testing.memory_tables import MemoryTables

T = TypeVar("T")
PAUSE_S = 0.3


class OneBroker(BrokerIndex):
    """A simulated broker's index; topics are the scenario's."""

    def __init__(self, broker: LogBroker) -> None:
        self._log = broker.log
        self._clock = broker.clock


class FaultyIndex:
    """The index over a network: some broker answers, or nobody does."""

    def __init__(
        self, cluster: LogCluster, link: FaultyLink, topics: Callable[[], Sequence[IndexedTopic]]
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._topics = topics

    async def cluster_id(self) -> str:
        return self._cluster.cluster_id

    async def topics(self) -> Sequence[IndexedTopic]:
        return list(self._topics())

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        return await self._ask(lambda index: index.backlog(streams))

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        return await self._ask(lambda index: index.columns(streams))

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        return await self._ask(lambda index: index.views(ranges))

    async def swap(self, swap: Swap) -> Swapped:
        swapped = await self._ask(lambda index: index.swap(swap), lost=OutcomeUnknown)
        if not swapped.accepted:
            self._cluster.reached.add("a swap was refused")
        return swapped

    async def named_files(self) -> frozenset[str]:
        return await self._ask(lambda index: index.named_files())

    async def _ask(
        self,
        work: Callable[[BrokerIndex], Coroutine[Any, Any, T]],
        *,
        lost: type[Unavailable] | type[OutcomeUnknown] = Unavailable,
    ) -> T:
        running = self._cluster.running()
        if not running:
            raise Unavailable("no broker serves")
        broker = self._link.dice.pick(running)
        request = broker.spawn(work(OneBroker(broker)))
        await asyncio.wait([request])  # for ever, when the broker is dead: whoever asked has limits
        if self._link.dice.chance(self._link.faults.lost_reply):
            raise lost("a fault: the reply was lost")
        return request.result()


class FaultyTables:
    """A catalog over a link."""

    def __init__(self, link: FaultyLink, inner: MemoryTables) -> None:
        self._link = link
        self._inner = inner

    async def create(self, definition: TableDefinition) -> TableView:
        return await self._link.write(lambda: self._inner.create(definition))

    async def load(self, name: TableName) -> TableView | None:
        return await self._link.read(lambda: self._inner.load(name))

    async def names(self, namespace: str) -> list[TableName]:
        return await self._link.read(lambda: self._inner.names(namespace))

    async def append(
        self,
        name: TableName,
        advances: Sequence[Advance],
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> AppendResult:
        async def act() -> AppendResult:
            done = await self._inner.append(
                name, advances, topic_id=topic_id, commit_id=commit_id, expect=expect
            )
            self._link.note("table", str(name), position=done.table.snapshot_id or 0)
            return done

        return await self._link.write(act)

    async def move(self, name: TableName, *, topic_id: str, expect: str) -> TableView:
        return await self._link.write(
            lambda: self._inner.move(name, topic_id=topic_id, expect=expect)
        )

    async def replace(
        self,
        name: TableName,
        replacement: Replacement,
        *,
        topic_id: str,
        commit_id: str,
        expect: str,
    ) -> TableView:
        return await self._link.write(
            lambda: self._inner.replace(
                name, replacement, topic_id=topic_id, commit_id=commit_id, expect=expect
            )
        )

    async def files(
        self, name: TableName, *, partition: int, start: int, end: int
    ) -> list[DataFileView]:
        return await self._link.read(
            lambda: self._inner.files(name, partition=partition, start=start, end=end)
        )

    async def reachable(self, name: TableName) -> frozenset[str]:
        return await self._link.read(lambda: self._inner.reachable(name))

    async def drop(self, name: TableName, *, topic_id: str) -> None:
        await self._link.write(lambda: self._inner.drop(name, topic_id=topic_id))

    async def close(self) -> None:
        pass


class Worker(SimulatedProcess):
    """One life of a pipeline process."""

    def __init__(
        self,
        cluster: LogCluster,
        name: str,
        tables: MemoryTables,
        table_faults: Faults,
        options: PipelineOptions,
        topics: Callable[[], Sequence[IndexedTopic]],
    ) -> None:
        dice = cluster.loop.dice(name)
        start_s, skew_ms = dice.between(0, 1000), dice.number(-2_000, 2_000)
        super().__init__(cluster, name, start_s=start_s, skew_ms=skew_ms)
        self.reports: list[RoundReport] = []
        objects = self.object_store(cluster.object_faults)
        self.pipeline = Pipeline(
            self.metadata_store(cluster.meta_faults),
            objects,
            FaultyIndex(cluster, self.link("index", table_faults), topics),
            FaultyTables(self.link("tables", table_faults), tables),
            InlineEngine(objects),
            clock=self.clock,
            entropy=dice.entropy,
            options=options,
        )

    def start(self) -> None:
        """Run rounds for as long as the process lives."""
        self._cluster.loop.spawn(self._live(), process=self.process, name=self.name)

    async def _live(self) -> None:
        try:
            while True:
                report = await self.pipeline.round()
                self.reports.append(report)
                self._note(report)
                await asyncio.sleep(PAUSE_S)
        except Exception as error:  # noqa: BLE001 - a bug, which the story reports
            self.died = error

    def _note(self, report: RoundReport) -> None:
        loop, reached = self._cluster.loop, self._cluster.reached
        loop.note(self.name, "round", report.created, report.adopted, len(report.all_obstacles))
        if report.adopted:
            reached.add("a task was taken over")
        if report.forgotten:
            reached.add("a record was forgotten")
        if report.all_obstacles:
            reached.add("a round met an obstacle")
        if any(topic.replaced for topic in report.topics):
            reached.add("files were replaced")
        if any(topic.ended for topic in report.topics):
            reached.add("a task came to its end")
