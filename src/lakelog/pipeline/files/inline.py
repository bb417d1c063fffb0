"""An engine in this process: tests, the simulation and small systems need no other."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import assert_never

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.rewrite_worker import rewrite
from lakelog.pipeline.files.segment_rows import compact_rows
from lakelog.pipeline.files.segment_tasks import RowsTask, SegmentTask
from lakelog.pipeline.files.tasks import Answer, CompactionTask, RewriteTask, Task
from lakelog.pipeline.files.to_segment import compact_segment
from lakelog.pipeline.files.worker import compact
from lakelog.pipeline.maintenance.key_scan import ScanAnswer, scan
from lakelog.pipeline.maintenance.log_compaction import CleaningPlan
from lakelog.pipeline.waits import together


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
            match task:
                case CompactionTask():
                    return await compact(self._objects, task, pool=self._pool)
                case RewriteTask():
                    return await rewrite(self._objects, task, pool=self._pool)
                case SegmentTask():
                    return await compact_segment(self._objects, task, pool=self._pool)
                case RowsTask():
                    return await compact_rows(self._objects, task, pool=self._pool)
                case _:
                    assert_never(task)
