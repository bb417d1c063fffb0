"""A model in which workers run the real saga step by step, while a sweeper looks around.

Each look of the sweeper first lets others go on: a script of numbers says who, so that any order of
small steps between any two looks can happen. What workers decide comes from `next_step`.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

from tests.pipeline.maintenance.sweep_ground import SPACE
from tests.pipeline.maintenance.sweep_tables import born, topic_view
from tests.pipeline.maintenance.sweep_workers import Worker, Workshop

from lakelog.catalog.port import TableName, TableView
from lakelog.index.ports import IndexedTopic
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Conflict, NotFound
from lakelog.objects.port import ObjectInfo
from lakelog.pipeline.maintenance.file_gc import FileSweeper, SweepOptions, SweepReport
from lakelog.pipeline.saga.task_record import TASKS, claim, decode_record, lease_of, task_key

GRACE_S = 600.0
BURSTS = (0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 5, 15)
"""How many steps happen between two looks: mostly none, at times a whole task."""


class SweepModel(Workshop):
    """The index, the catalog and the stores that the sweeper looks at."""

    def __init__(self, script: Iterator[int], *, grace_s: float) -> None:
        super().__init__(script)
        self.grace_s = grace_s
        self.sweeper = self.new_sweeper()

    def new_sweeper(self) -> FileSweeper:
        options = SweepOptions(namespaces=(SPACE,), grace_ms=int(self.grace_s * 1000))
        stores = InterruptedStores(self)
        return FileSweeper(stores, stores, self, self, self.clock, options)  # type: ignore[arg-type]  # the parts that a sweeper uses

    # What the sweeper asks; others go on before each answer and after it.

    async def interlude(self, look: str) -> None:
        """What happens around a look of that name; a test may say it, else the script does."""
        for _ in range(BURSTS[next(self.script, 0) % len(BURSTS)]):
            await self.random_step()

    async def topics(self) -> Sequence[IndexedTopic]:
        await self.interlude("topics")
        found = [topic_view(name, topic_id) for name, topic_id in self.topics_alive.items()]
        await self.interlude("")
        return found

    async def named_files(self) -> frozenset[str]:
        await self.interlude("index")
        found = frozenset(self._indexed())
        await self.interlude("")
        return found

    async def names(self, namespace: str) -> list[TableName]:
        await self.interlude("names")
        found = sorted(name for name in self.catalog.tables if name.namespace == namespace)
        await self.interlude("")
        return found

    async def load(self, name: TableName) -> TableView | None:
        await self.interlude("load")
        table = self.catalog.tables.get(name)
        await self.interlude("")
        return None if table is None else table.view()

    async def reachable(self, name: TableName) -> frozenset[str]:
        await self.interlude("reachable")
        table = self.catalog.tables.get(name)
        await self.interlude("")
        return frozenset() if table is None else frozenset(table.named())

    async def move(self, name: TableName, *, topic_id: str, expect: str) -> TableView:
        await self.interlude("move")
        table = self.catalog.tables.get(name)
        if table is None or table.topic_id != topic_id:
            raise NotFound("no such table")
        if table.token != expect:
            raise Conflict("not the token")
        change = await self.stage(table, table.files, table.offset)
        await self.interlude("")
        await self.land(change)
        return self.catalog.tables[name].view()

    async def random_step(self) -> None:
        choice = next(self.script, None)
        if choice is None:
            return
        self.clock.seconds += (choice >> 8) % 3 * GRACE_S / 4
        choice &= 255
        if self.workers and choice < 200:
            worker = self.workers[choice % len(self.workers)]
            if not worker.sleeps:
                await self.work(worker)
            return
        acts = (
            *(self.produce, self.begin, self.begin_rewrite) * 4,
            *(self.take_over, self.trim, self.expire_rows, self.change_properties) * 2,
            *(self.crash, self.wake, self.abandon, self.make_topic, self.make_table),
            *(self.finish_table, self.finish_properties),
            *(self.delete_topic, self.drop_streams, self.drop_table),
        )
        await acts[choice % len(acts)]()

    async def settle(self) -> None:
        """Everything under way ends: the crashed are succeeded, the deleted go."""
        self.workers.clear()
        self.properties.clear()
        self.script = iter(lambda: 1, 0)
        await self.drop_streams()
        await self.drop_table()
        for name in sorted(self.topics_alive):
            self.born = [born(TableName(SPACE, name), self.topics_alive[name].hex(), self.number())]
            await self.guard.put(self.born[0].metadata, [b"x"])
            await self.finish_table()
        for one in await self.meta.range(task_key(0)[:-1]):
            record = decode_record(one.value)
            claimed = claim(record, self.lease())
            await self.put(claimed, one.version)
            worker = Worker(record.stream, lease_of(claimed))
            self.workers.append(worker)
            for _ in range(200):
                if worker in self.workers:
                    await self.work(worker)
            assert worker not in self.workers, (record, worker)
        self.script = iter(())

    async def sweep(self) -> SweepReport:
        report = await self.sweeper.sweep_once()
        assert not report.problems, report
        return report


class InterruptedStores:
    """The stores as the sweeper sees them: others go on around each of its looks."""

    def __init__(self, model: SweepModel) -> None:
        self._model = model

    async def range(self, prefix: str) -> list[KeyValue]:
        await self._model.interlude("records" if prefix == TASKS else "pointers")
        found = await self._model.meta.range(prefix)
        await self._model.interlude("")
        return found

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        await self._model.interlude("list")
        async for info in self._model.guard.list(prefix):
            yield info
        await self._model.interlude("")

    async def delete(self, keys: Sequence[str]) -> None:
        await self._model.interlude("delete")
        await self._model.guard.delete(keys)
