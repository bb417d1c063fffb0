"""Which worker does which kind of task, and an engine in this process that needs no other.

A new kind of task is one more case in `run_task`, and mypy asks for it. `InlineEngine` runs tasks
and scans here: for tests, the simulation and small systems. Workers are imported with the first of
their tasks: a driver, which has its tasks run elsewhere, does without them.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import assert_never

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    Answer,
    CompactionTask,
    RewriteTask,
    RowsTask,
    SegmentTask,
    Task,
)
from lakelog.pipeline.maintenance.key_scan import ScanAnswer, scan
from lakelog.pipeline.maintenance.log_compaction import CleaningPlan
from lakelog.pipeline.options import together


async def run_task(
    objects: ObjectStore, task: Task, *, pool: Executor | None, directory: str | None
) -> Answer:
    """Do it. What is wrong with its input is its answer; anything else that is raised is a bug."""
    match task:
        case CompactionTask():
            from lakelog.pipeline.files.to_parquet import compact  # noqa: PLC0415 - a driver does without

            return await compact(objects, task, pool=pool, directory=directory)
        case RewriteTask():
            from lakelog.pipeline.files.to_parquet import rewrite  # noqa: PLC0415 - a driver does without

            return await rewrite(objects, task, pool=pool, directory=directory)
        case SegmentTask():
            from lakelog.pipeline.files.to_segment import compact_segment  # noqa: PLC0415 - as above

            return await compact_segment(objects, task, pool=pool, directory=directory)
        case RowsTask():
            from lakelog.pipeline.files.to_parquet import compact_rows  # noqa: PLC0415 - as above

            return await compact_rows(objects, task, pool=pool, directory=directory)
        case _:
            assert_never(task)


class InlineEngine:
    """Runs tasks on the loop, or with a pool on its threads; so many at the same time."""

    def __init__(
        self, objects: ObjectStore, pool: Executor | None = None, *, slots: int = 4
    ) -> None:
        assert slots > 0, slots
        self._objects = objects
        self._pool = pool
        self._slots = slots
        self._places = asyncio.Semaphore(slots)

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self._slots

    async def run(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        """The answer to each task, in order."""
        return await together(self._one(task) for task in tasks)

    async def scan(self, plans: Sequence[CleaningPlan]) -> Sequence[ScanAnswer]:
        """Which rows of each plan stay, for log compaction."""
        return await together(scan(self._objects, plan, pool=self._pool) for plan in plans)

    async def _one(self, task: Task) -> Answer:
        async with self._places:
            return await run_task(self._objects, task, pool=self._pool, directory=None)
