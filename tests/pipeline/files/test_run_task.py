"""Every kind of task reaches its worker, and says what it reads and whose it is."""

from typing import TypeVar

from tests.log.tables import task_of
from tests.pipeline.pipeline_world import Place, run

from lakelog.pipeline.files.file_task import (
    CompactionResult,
    CompactionTask,
    RewriteTask,
    RowsResult,
    RowsTask,
    SegmentPiece,
    SegmentResult,
    SegmentTask,
    TablePiece,
    Task,
    input_bytes,
    topic_label,
)
from lakelog.pipeline.files.run_task import run_task

ResultT = TypeVar("ResultT")


def segment_task(task: CompactionTask) -> SegmentTask:
    return SegmentTask(
        task_id="1-1",
        attempt="a",
        domain=0,
        stream=1,
        start=task.start,
        end=task.end,
        pieces=task.pieces,
        key="segment",
        created_ms=1,
    )


def rows_task(task: CompactionTask, size_bytes: int) -> RowsTask:
    return RowsTask(
        task_id="1-2",
        attempt="a",
        stream=1,
        topic_id=task.topic_id,
        topic="t",
        partition=0,
        start=task.start,
        end=task.end,
        pieces=(SegmentPiece("segment", size_bytes, task.start, task.end),),
        key="rows",
        batch_bytes_max=1000,
    )


def rewrite_task(task: CompactionTask, size_bytes: int) -> RewriteTask:
    return RewriteTask(
        task_id="1-3",
        attempt="a",
        domain=0,
        stream=1,
        topic_id=task.topic_id,
        topic="t",
        partition=0,
        start=task.start,
        end=task.end,
        pieces=(TablePiece(task.key, size_bytes, task.start, task.end, in_table=True),),
        key="rewritten",
    )


async def done(place: Place, task: Task, kind: type[ResultT]) -> ResultT:
    found = await run_task(place.objects, task, pool=None, directory=None)
    assert isinstance(found, kind), found
    return found


def test_every_kind_of_task_is_run_by_its_worker() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("t", [1])
        await place.produce(1)
        compaction = task_of(place.node, 1)
        made = await done(place, compaction, CompactionResult)
        assert (input_bytes(compaction), topic_label(compaction)) == (made.read_bytes, "t")

        segment = segment_task(compaction)
        kept = await done(place, segment, SegmentResult)
        assert (input_bytes(segment), topic_label(segment)) == (kept.read_bytes, "stream 1")

        rows = rows_task(compaction, kept.facts.size_bytes)
        found = await done(place, rows, RowsResult)
        assert (found.facts.row_count, found.left_out) == (made.facts.row_count, ())
        assert (input_bytes(rows), topic_label(rows)) == (kept.facts.size_bytes, "t")

        rewrite = rewrite_task(compaction, made.facts.size_bytes)
        again = await done(place, rewrite, CompactionResult)
        assert again.facts.row_count == made.facts.row_count
        assert (input_bytes(rewrite), topic_label(rewrite)) == (made.facts.size_bytes, "t")

    run(scenario)
