"""Runs a task: its worker builds a temporary file, which becomes one object, or an answer why not.

An object is complete or not there, so a file is built elsewhere and put whole. What a worker raises
for its input, and what store and disk refuse, is an answer: the tasks beside it go on. Workers are
imported with the first of their tasks: a driver, which has its tasks run elsewhere, does without
them.

`InlineEngine` runs tasks and scans in this process: for tests, the simulation and small systems.
"""

import asyncio
import mmap
from collections.abc import Sequence
from concurrent.futures import Executor
from tempfile import TemporaryFile

from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileAnswer,
    FileFailure,
    FileResult,
    FileTask,
)
from lakelog.pipeline.files.inputs import InputError
from lakelog.pipeline.maintenance.key_scan import ScanAnswer, scan
from lakelog.pipeline.maintenance.log_compaction import CleaningPlan
from lakelog.pipeline.options import together


async def run_task(
    objects: ObjectStore,
    task: FileTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> FileAnswer:
    """Build the task's file in `directory`, in the pool if there is one, and put it.

    What is wrong with its input is its answer; anything else that is raised is a bug.
    """
    from lakelog.pipeline.files.build_file import build_file  # noqa: PLC0415 - a driver does without

    try:
        with TemporaryFile(dir=directory) as file:
            facts, left_out = await build_file(objects, task, file, pool)
            file.flush()
            # Not closed here: a store that was cancelled may still read it.
            content = mmap.mmap(file.fileno(), facts.size_bytes, access=mmap.ACCESS_READ)
            await objects.put(task.key, [memoryview(content)])
    except InputError as error:
        return error.answer(task.task_id, task.attempt)
    except Failure as error:
        return _unavailable(task, task.key, f"{type(error).__name__}: {error}")
    except OSError as error:
        return _unavailable(task, "", f"the temporary file: {error}")
    return FileResult(task.task_id, task.attempt, task.key, facts, task.input_bytes, left_out)


def _unavailable(task: FileTask, key: str, reason: str) -> FileFailure:
    trouble = InputError(FailureKind.UNAVAILABLE, reason, key, task.start, task.end)
    return trouble.answer(task.task_id, task.attempt)


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

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        """The answer to each task, in order."""
        return await together(self._answer(task) for task in tasks)

    async def scan(self, plans: Sequence[CleaningPlan]) -> Sequence[ScanAnswer]:
        """Which rows of each plan stay, for log compaction."""
        return await together(scan(self._objects, plan, pool=self._pool) for plan in plans)

    async def _answer(self, task: FileTask) -> FileAnswer:
        async with self._places:
            return await run_task(self._objects, task, pool=self._pool)
