"""What a table has of a segment: all rows that can be read, and a note of the rest."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.log.segments import created, fill_hostile, read_bytes, segmented, unreadable
from tests.log.tables import table_facts, tabled, task_of, wal_pieces
from tests.memory_cluster import TOPIC, MemoryCluster, MemoryNode, batch, run
from tests.pipeline.files.test_build_file_wal import Failing
from tests.records.table_cases import rows_of

from lakelog.index.entries import StreamColumns
from lakelog.model.failures import Unavailable
from lakelog.objects.memory import MemoryObjectStore
from lakelog.pipeline.files import inputs
from lakelog.pipeline.files.file_task import (
    FailureKind,
    FileFailure,
    FileResult,
    FileTask,
    SegmentInputs,
    SegmentPiece,
)
from lakelog.pipeline.files.run_task import run_task
from lakelog.pipeline.planning.backfill import plan_backfill
from lakelog.pipeline.planning.wal_ranges import PlanOptions, plan_stream
from lakelog.pipeline.saga.values import PlannedTask, StreamName, TaskTarget
from lakelog.records.header import parse_header
from lakelog.streams.objects import FileKind, FileName, WalName

NAME = StreamName(1, TOPIC, "t", 0)
EAGER = PlanOptions(freshness_ms=0)


def rows_task(node: MemoryNode, *, start: int = 0, end: int | None = None) -> FileTask:
    """A task over the segments of stream 1 that lie in [start, end)."""
    pieces = []
    for one in node.log.pieces(1):
        is_inside = one.start >= start and (end is None or one.end <= end)
        if is_inside and isinstance(one.name, FileName) and one.name.kind is FileKind.SEGMENT:
            pieces.append(SegmentPiece(one.name.key, one.object_bytes, one.start, one.end))
    return FileTask(
        task_id="1-9",
        attempt="a1",
        stream=1,
        topic_id=bytes(TOPIC),
        topic="t",
        partition=0,
        start=pieces[0].start,
        end=pieces[-1].end,
        inputs=SegmentInputs(tuple(pieces)),
        output=FileKind.PARQUET,
        key="compaction/v1/topic=t/partition=0/1-9-9-a1.parquet",
        batch_bytes_max=1 << 20,
    )


def columns_of(node: MemoryNode) -> StreamColumns:
    """The stream's entries as a planner sees them."""
    pieces = node.log.pieces(1)
    kinds = [FileKind.WAL if isinstance(one.name, WalName) else one.name.kind for one in pieces]
    return StreamColumns(
        starts=np.array([one.start for one in pieces], dtype=np.int64),
        ends=np.array([one.end for one in pieces], dtype=np.int64),
        kinds=np.array(kinds, dtype=np.int64),
        byte_lengths=np.array([one.byte_length for one in pieces], dtype=np.int64),
        object_times_ms=np.zeros(len(pieces), dtype=np.int64),
    )


async def table_of(cluster: MemoryCluster, key: str) -> pa.Table:
    return pq.read_table(pa.BufferReader(await cluster.objects.get(key)))


@pytest.mark.parametrize("log_start", [1, 3, 4])
def test_records_of_a_segment_below_the_log_start_become_no_rows(log_start: int) -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        for _ in range(2):
            await node.log.append([1], [batch(b"a", b"b", b"c")], deadline_s=cluster.soon())
        await segmented(cluster, node, 1)
        task = replace(rows_task(node), log_start=log_start)
        result = await run_task(cluster.objects, task)
        assert isinstance(result, FileResult)
        rows = (await table_of(cluster, task.key))["offset"].to_pylist()
        assert rows == list(range(log_start, 6))
        origin = table_facts(result).origin
        assert (origin.start, origin.end) == (0, 6)

    run(scenario)


@pytest.mark.parametrize("slice_bytes", [1, 8 << 20])
def test_the_file_holds_every_row_that_can_be_read(
    slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "READ_BYTES", slice_bytes)

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await fill_hostile(cluster, node, 1)
        served = [memoryview(one) for one in await read_bytes(cluster, node, 1)]
        half = node.log.pieces(1)[8].end
        await segmented(cluster, node, 1, end=half, index_interval_bytes=300)
        await segmented(cluster, node, 1, index_interval_bytes=300)
        task = pickle.loads(pickle.dumps(rows_task(node)))
        assert len(task.inputs.pieces) == 2
        with ThreadPoolExecutor(1) as pool:
            result = await run_task(cluster.objects, task, pool=pool)
        assert isinstance(result, FileResult)
        assert pickle.loads(pickle.dumps(result)) == result
        assert len(result.left_out) == 5  # one for each codec
        bad = {start for start, _ in result.left_out}
        good = [(parse_header(one).base_offset, one) for one in served]
        rows = rows_of([pair for pair in good if pair[0] not in bad])
        table = await table_of(cluster, result.key)
        assert table["offset"].to_pylist() == [row.offset for row in rows]
        assert table["value"].to_pylist() == [row.value for row in rows]
        assert table["key"].to_pylist() == [row.key for row in rows]
        facts = table_facts(result)
        assert (facts.origin.start, facts.origin.end) == (task.start, task.end)
        assert facts.row_count == len(rows)
        assert facts.size_bytes == len(await cluster.objects.get(result.key))

    run(scenario)


def test_rows_of_good_batches_are_those_that_compaction_would_have_made() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        for number in range(30):
            sent = batch(b"%d" % number, b"x" * 50, timestamp_ms=1000 + number)
            await node.log.append([1], [sent], deadline_s=cluster.soon())
        straight = await run_task(cluster.objects, task_of(node, 1))
        assert isinstance(straight, FileResult)
        await segmented(cluster, node, 1)
        result = await run_task(cluster.objects, rows_task(node))
        assert isinstance(result, FileResult)
        assert result.left_out == ()
        assert await table_of(cluster, result.key) == await table_of(cluster, straight.key)
        assert table_facts(result).columns == table_facts(straight).columns

    run(scenario)


def test_a_segment_without_a_row_is_a_file_without_rows() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await node.log.append([1], [unreadable()], deadline_s=cluster.soon())
        await segmented(cluster, node, 1)
        result = await run_task(cluster.objects, rows_task(node))
        assert isinstance(result, FileResult)
        assert (table_facts(result).row_count, result.left_out) == (0, ((0, 3),))

    run(scenario)


def test_damage_and_loss_name_the_segment() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        made = await segmented(cluster, node, 1)
        task = rows_task(node)
        whole = bytes(await cluster.objects.get(made.key))
        for content in (whole[:-1], whole[:40] + b"\xff" + whole[41:], b"x" * len(whole), b"x"):
            await cluster.objects.put(made.key, [content])
            answer = await run_task(cluster.objects, task)
            assert isinstance(answer, FileFailure)
            assert (answer.trouble, answer.object_key) == (FailureKind.CORRUPT, made.key)
        await cluster.objects.put(made.key, [whole])
        longer = SegmentPiece(made.key, len(whole), 0, 2)
        other = replace(task, end=2, inputs=SegmentInputs((longer,)))
        answer = await run_task(cluster.objects, other)
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.CORRUPT
        await cluster.objects.delete([made.key])
        answer = await run_task(cluster.objects, task)
        assert isinstance(answer, FileFailure)
        assert (answer.trouble, answer.start, answer.end) == (FailureKind.MISSING, 0, 1)

    run(scenario)


def test_a_store_or_a_disk_that_fails_is_an_answer() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        await node.log.append([1], [batch(b"a")], deadline_s=cluster.soon())
        await segmented(cluster, node, 1)
        task, inner = rows_task(node), cluster.objects
        assert isinstance(inner, MemoryObjectStore)
        for put, get in ((Unavailable("503"), None), (None, Unavailable("503"))):
            answer = await run_task(Failing(inner, put=put, get=get), task)
            assert isinstance(answer, FileFailure)
            assert answer.trouble is FailureKind.UNAVAILABLE
        answer = await run_task(inner, task, directory=str(Path(__file__) / "nowhere"))
        assert isinstance(answer, FileFailure)
        assert answer.trouble is FailureKind.UNAVAILABLE

    run(scenario)


def test_a_table_lacks_nothing_but_the_batch_that_cannot_be_read() -> None:
    """From the worker's first answer to the vector at the end, with hundreds of good neighbours."""

    async def scenario(cluster: MemoryCluster) -> None:
        node = await created(cluster, 1)
        before, after = [batch(b"a")] * 20, [batch(b"c")] * 20
        beside = [batch(b"b")] * 200
        middle = [*beside, unreadable(count=3), *beside]
        for some in (before, middle, after):
            await node.log.append([1] * len(some), some, deadline_s=cluster.soon())
        assert len(node.log.pieces(1)) == 3  # the bad batch shares its entry with 400 good ones
        served = await read_bytes(cluster, node, 1)

        failed = await run_task(cluster.objects, task_of(node, 1))
        assert isinstance(failed, FileFailure)
        assert (failed.trouble, failed.start, failed.end) == (FailureKind.UNREADABLE, 220, 223)
        quarantine = ((failed.start, failed.end),)
        offsets: list[int] = []
        vector: int | None = None
        targets = []
        for _ in range(10):
            columns = columns_of(node)
            planned = plan_backfill(NAME, columns, vector=vector, options=EAGER, now_ms=1)
            if planned is not None:
                assert isinstance(planned, PlannedTask)
                task = rows_task(node, start=planned.start, end=planned.end)
                rows = await run_task(cluster.objects, task)
                assert isinstance(rows, FileResult)
                assert rows.left_out == quarantine
                offsets += (await table_of(cluster, rows.key))["offset"].to_pylist()
                vector = planned.end
                targets.append("rows")
                continue
            step = plan_stream(
                NAME, columns, vector=vector, quarantine=quarantine, options=EAGER, now_ms=1
            )
            if not isinstance(step, PlannedTask):
                break
            targets.append(step.target.value)
            if step.target is TaskTarget.LOG:
                await segmented(cluster, node, 1, start=step.start, end=step.end)
                continue
            made = await tabled(cluster, node, 1, end=step.end)
            offsets += (await table_of(cluster, made.key))["offset"].to_pylist()
            vector = step.end
        assert targets == ["table", "log", "rows", "table"]
        assert offsets == [*range(220), *range(223, 443)]
        assert vector == 443
        assert not wal_pieces(node, 1)
        assert b"".join(await read_bytes(cluster, node, 1)) != b"".join(served)  # rebuilt from rows
        assert served[220] in await read_bytes(cluster, node, 1)

    run(scenario)
