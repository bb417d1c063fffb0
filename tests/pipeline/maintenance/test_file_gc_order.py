"""G1: the order of looking. Every way in which what happens to a file can fall between the looks.

There is no grace here: one pass finds an object and deletes it, so only the order protects.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import combinations_with_replacement

from tests.pipeline.maintenance.sweep_model import SweepModel

from lakelog.pipeline.saga.steps import AppendSwap, CommitTable, Mark, ReplaceFiles, Step, WriteFile
from lakelog.pipeline.saga.task_record import task_key
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.streams.objects import FileName

LOOKS = 8
"""List, records, pointers, the table, what it names, topics, index, and the deletion."""

Act = Callable[[], Awaitable[None]]


class Scheduled(SweepModel):
    """A model in which what happens before each look is said beforehand."""

    def __init__(self) -> None:
        super().__init__(iter(lambda: 1, 0), grace_s=0)
        self.acts: list[tuple[int, Act]] = []
        self.looked: list[str] = []
        self.passed_over = ["", "names"]

    async def interlude(self, look: str) -> None:
        if look in self.passed_over or look in self.looked:
            return
        self.looked.append(look)
        await self.act_until(len(self.looked))

    async def act_until(self, look: int) -> None:
        """Everything that happens before that look, of those that there are in a pass."""
        while self.acts and self.acts[0][0] < look:
            await self.acts.pop(0)[1]()

    async def has_table(self) -> None:
        """A topic with a table."""
        await self.make_topic()
        await self.make_table()
        await self.finish_table()

    def work_until(self, *ends: type[Step] | str) -> Act:
        """The worker goes on until it has done these steps, or marks of these names."""

        async def act() -> None:
            for end in ends:
                await self._work_until(end)

        return act

    async def _work_until(self, end: type[Step] | str) -> None:
        worker = self.workers[0]
        for _ in range(40):
            step, acts = worker.step, worker.looks == 3
            await self.work(worker)
            is_mark = isinstance(step, Mark) and step.effect == end
            if acts and worker.looks == 0 and (is_mark or type(step) is end):
                return
        raise AssertionError(end)

    def task(self, commit: type[Step]) -> list[Act]:
        """What the worker of a task that was created does until its end."""
        return [
            self.work_until(WriteFile),
            self.work_until("mark written"),
            self.work_until(commit, "mark committed"),
            self.work_until(AppendSwap),
            self.work_until("mark swapped", "mark ready"),
        ]

    async def compacted(self) -> None:
        """Another entry, and a task that made a file of it."""
        await self.produce()
        await self.begin()
        for act in self.task(CommitTable):
            await act()
        self.workers.clear()

    async def begin_replacing(self, target: TaskTarget) -> None:
        """A task that replaces all files of the stream."""
        (stream,) = self.streams.values()
        names = tuple(one.name.key for one in stream.entries if isinstance(one.name, FileName))
        await self.create(self.planned(stream, 0, stream.head, target, names))

    async def trim_all(self) -> None:
        (stream,) = self.streams.values()
        stream.trim(stream.head)

    async def expire(self) -> None:
        """Every snapshot that is there now is forgotten."""
        for name in list(self.catalog.tables):
            for _ in range(2):
                now = self.catalog.tables[name]
                await self.land(await self.stage(now, now.files, now.offset))


async def every_way(
    prepare: Callable[[Scheduled], Awaitable[list[Act]]], *, without: tuple[str, ...] = ("load",)
) -> None:
    """A pass for each way in which the acts can fall, in their order, between looks of a pass.

    After it everything that is named is there, and soon nothing else.
    """
    looks = LOOKS - len(without)
    count = len(await prepare(Scheduled()))
    for way in combinations_with_replacement(range(looks), count):
        model = Scheduled()
        model.passed_over += without
        model.acts = list(zip(way, await prepare(model), strict=True))
        await model.sweep()
        await model.act_until(looks)
        assert not model.guard.violations, way
        assert not await model.guard.missing(), way
        for _ in range(4):
            await model.sweep()
        assert await model.guard.keys() == set(await model.guard.named()), way


def test_a_file_goes_from_record_to_table_to_index_between_any_two_looks() -> None:
    async def prepare(model: Scheduled) -> list[Act]:
        await model.has_table()
        await model.produce()
        await model.begin()
        return [*model.task(CommitTable), model.trim_all]

    asyncio.run(every_way(prepare, without=("topics",)))


def test_files_are_replaced_between_any_two_looks() -> None:
    async def prepare(model: Scheduled) -> list[Act]:
        await model.has_table()
        await model.compacted()
        await model.compacted()
        await model.begin_replacing(TaskTarget.REWRITE)
        await model.task(ReplaceFiles)[0]()
        return [*model.task(ReplaceFiles)[1:], model.expire]

    asyncio.run(every_way(prepare))


def test_a_file_without_rows_is_named_by_the_index_alone() -> None:
    async def prepare(model: Scheduled) -> list[Act]:
        await model.has_table()
        await model.compacted()
        await model.begin_replacing(TaskTarget.CLEAN)
        await model.task(ReplaceFiles)[0]()
        return [*model.task(ReplaceFiles)[1:], model.expire]

    asyncio.run(every_way(prepare))


def test_a_topic_and_its_table_are_made_between_any_two_looks() -> None:
    async def prepare(model: Scheduled) -> list[Act]:
        return [model.make_topic, model.make_table, model.finish_table, model.expire]

    asyncio.run(every_way(prepare))


def test_rows_leave_the_table_and_the_log_between_any_two_looks() -> None:
    async def prepare(model: Scheduled) -> list[Act]:
        await model.has_table()
        await model.compacted()
        await model.compacted()
        return [model.trim_all, model.expire_rows, model.expire, model.change_properties]

    asyncio.run(every_way(prepare, without=("topics",)))


def test_a_file_whose_record_was_lost_is_found_in_the_table_and_swapped_in() -> None:
    """The one way into the index that begins in the table: so tables are looked at first."""

    async def prepare(model: Scheduled) -> list[Act]:
        await model.has_table()
        await model.produce()
        await model.begin()
        for act in model.task(CommitTable)[:3]:
            await act()
        (stream,) = model.streams
        record, version = await model.record(stream)
        assert record is not None
        assert record.file is not None
        model.workers.clear()
        await model.meta.put(task_key(stream), None, expect=version)
        bare = model.planned(model.streams[stream], 0, 2, TaskTarget.TABLE)
        planned = replace(bare, present=record.file, expected=None)

        async def swapped() -> None:
            await model.create(planned)
            await model.work_until(AppendSwap, "mark swapped", "mark ready")()
            model.workers.clear()

        async def replaced() -> None:
            await model.begin_replacing(TaskTarget.REWRITE)
            await model.work_until(WriteFile, "mark written", ReplaceFiles)()

        return [swapped, replaced, model.expire]

    asyncio.run(every_way(prepare))
