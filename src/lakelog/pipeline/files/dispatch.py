"""Which worker does which kind of task. A new kind is one more case here, and mypy asks for it."""

from concurrent.futures import Executor
from typing import assert_never

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.segment_tasks import RowsTask, SegmentTask
from lakelog.pipeline.files.tasks import Answer, CompactionTask, RewriteTask, Task


async def run_task(
    objects: ObjectStore, task: Task, *, pool: Executor | None, directory: str | None
) -> Answer:
    """Do it. What is wrong with its input is its answer; anything else that is raised is a bug."""
    match task:
        case CompactionTask():
            from lakelog.pipeline.files.worker import compact  # noqa: PLC0415 - loads pyarrow

            return await compact(objects, task, pool=pool, directory=directory)
        case RewriteTask():
            from lakelog.pipeline.files.rewrite_worker import rewrite  # noqa: PLC0415 - loads pyarrow

            return await rewrite(objects, task, pool=pool, directory=directory)
        case SegmentTask():
            from lakelog.pipeline.files.to_segment import compact_segment  # noqa: PLC0415 - as above

            return await compact_segment(objects, task, pool=pool, directory=directory)
        case RowsTask():
            from lakelog.pipeline.files.segment_rows import compact_rows  # noqa: PLC0415 - as above

            return await compact_rows(objects, task, pool=pool, directory=directory)
        case _:
            assert_never(task)


def input_bytes(task: Task) -> int:
    """What it reads, about."""
    match task:
        case CompactionTask() | SegmentTask():
            return sum(piece.byte_length for piece in task.pieces)
        case RewriteTask() | RowsTask():
            return sum(piece.size_bytes for piece in task.pieces)
        case _:
            assert_never(task)


def topic_of(task: Task) -> str:
    """The topic as people know it, or the stream where the task does not say."""
    return f"stream {task.stream}" if isinstance(task, SegmentTask) else task.topic
