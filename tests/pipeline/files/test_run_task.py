"""Every kind of task reaches its worker, and says what it reads."""

from dataclasses import replace

import pytest
from tests.log.tables import table_facts, task_of, wal_inputs
from tests.pipeline.pipeline_place import Place, run

from lakelog.pipeline.files.file_task import (
    FileResult,
    FileTask,
    SegmentInputs,
    SegmentPiece,
    TableInputs,
    TablePiece,
)
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.segment_file import SEGMENT_BYTES_MAX
from lakelog.streams.objects import FileKind


async def done(place: Place, task: FileTask) -> FileResult:
    answer = await run_task(place.objects, task)
    assert isinstance(answer, FileResult), answer
    assert (answer.task_id, answer.attempt, answer.key) == (task.task_id, task.attempt, task.key)
    assert answer.read_bytes == task.input_bytes
    return answer


def test_every_kind_of_task_is_run_by_its_worker() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("t", [1])
        await place.produce(1)
        compaction = task_of(place.node, 1)
        made = await done(place, compaction)
        row_count = table_facts(made).row_count
        assert made.read_bytes == sum(piece.byte_length for piece in wal_inputs(compaction).pieces)

        segment = replace(compaction, output=FileKind.SEGMENT, key="segment", task_id="1-2")
        kept = await done(place, segment)
        assert kept.read_bytes == made.read_bytes

        piece = SegmentPiece("segment", kept.facts.size_bytes, segment.start, segment.end)
        backfill = replace(compaction, inputs=SegmentInputs((piece,)), key="rows", task_id="1-3")
        rows = await done(place, backfill)
        assert (table_facts(rows).row_count, rows.left_out) == (row_count, ())
        assert rows.read_bytes == kept.facts.size_bytes

        size_bytes = made.facts.size_bytes
        file = TablePiece(made.key, size_bytes, segment.start, segment.end, in_table=True)
        rewrite = replace(compaction, inputs=TableInputs((file,)), key="new", task_id="1-4")
        again = await done(place, rewrite)
        assert table_facts(again).row_count == row_count
        assert again.read_bytes == size_bytes

    run(scenario)


def test_a_task_whose_inputs_do_not_fit_its_range_or_output_is_a_bug() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("t", [1])
        await place.produce(1)
        await place.produce(1)
        task = task_of(place.node, 1)
        start, end, wal = task.start, task.end, wal_inputs(task)
        segments = SegmentInputs((SegmentPiece("s", 1, start, end),))
        files = TableInputs((TablePiece("f", 1, start, end, in_table=True),))
        huge = replace(wal.pieces[-1], byte_length=SEGMENT_BYTES_MAX)
        for changes in (
            {"inputs": replace(wal, pieces=wal.pieces[::-1])},
            {"inputs": wal, "end": end + 1},
            {"inputs": wal, "end": end - 1, "output": FileKind.SEGMENT},
            {"inputs": replace(wal, pieces=(*wal.pieces[:-1], huge)), "output": FileKind.SEGMENT},
            {"inputs": segments, "end": end - 1},
            {"inputs": segments, "output": FileKind.SEGMENT},
            {"inputs": files, "end": end + 1},
            {"inputs": files, "start": start + 1},
            {"inputs": files, "output": FileKind.SEGMENT},
            {"inputs": wal, "output": FileKind.WAL},
        ):
            with pytest.raises(AssertionError):
                replace(task, **changes)

    run(scenario)
