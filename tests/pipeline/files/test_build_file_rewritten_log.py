"""A log is read over files that were rewritten or cleaned as if they always had been so."""

from collections.abc import Sequence

import numpy as np
from msgspec import structs
from tests.log.tables import accepted, read_all, table_facts, tabled
from tests.memory_cluster import TOPIC, MemoryCluster, MemoryNode, run
from tests.records.table_cases import Row

from lakelog.catalog.port import DataFileView
from lakelog.domain.state import Swapped
from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.log.timestamps import TimestampMatch
from lakelog.pipeline.files.file_task import (
    FileTask,
    TableInputs,
    TablePiece,
    pack_offsets,
)
from lakelog.pipeline.files.run_task import run_task
from lakelog.pipeline.planning.small_files import replacement
from lakelog.pipeline.saga.steps import AppendSwap, Observation, WriteFile, next_step
from lakelog.pipeline.saga.task_record import (
    Lease,
    TaskRecord,
    TaskState,
    create,
    lease_of,
    output_key,
)
from lakelog.pipeline.saga.values import DataFile, PlannedTask, StreamName, TaskTarget
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.streams.objects import FileKind, FileName

NAME = StreamName(1, TOPIC, "t", 0)


async def filled(cluster: MemoryCluster, *, files: int) -> MemoryNode:
    """A stream of data files, of four records each, and a tail that is not compacted."""
    node = await cluster.node()
    await node.log.create_streams(TOPIC, first_partition=0, streams=[1])
    for number in range(files + 1):
        records = [Record(b"k%d" % at, b"%d" % number, 1000 + 4 * number + at) for at in range(4)]
        sent = accepted(memoryview(build_batch(records, BatchOptions())))
        await node.log.append([1], [sent], deadline_s=cluster.soon())
        if number < files:
            await tabled(cluster, node, 1)
    return node


def view_of(node: MemoryNode) -> StreamView:
    entries = tuple(
        Entry(
            piece.start,
            piece.end,
            piece.name,
            piece.byte_start,
            piece.byte_length,
            piece.max_timestamp_ms,
            domain=0,
        )
        for piece in node.log.pieces(1)
    )
    return StreamView(1, entries[0].start, entries[0].start, entries)


def files_of(entries: Sequence[Entry]) -> list[DataFileView]:
    return [
        DataFileView(one.name.key, 0, one.start, one.end, one.end - one.start, one.byte_length)
        for one in entries
        if isinstance(one.name, FileName)
    ]


async def replaced(
    cluster: MemoryCluster,
    node: MemoryNode,
    *,
    count: int,
    kept: list[int] | None = None,
    attempt: str = "a",
) -> TaskRecord:
    """Make one file of the first entries, as the saga does it, and swap it in."""
    view = view_of(node)
    entries = view.entries[:count]
    target = TaskTarget.REWRITE if kept is None else TaskTarget.CLEAN
    planned = replacement(NAME, entries, files_of(entries), target=target, now_ms=1)
    assert isinstance(planned, PlannedTask), planned
    record = create(None, planned, Lease("one", 1))
    step = next_step(Observation(None, view, record), held=lease_of(record))
    assert step == WriteFile(record, entries)
    packed = None if kept is None else pack_offsets(np.array(kept, np.int64))
    pieces = tuple(
        TablePiece(file.key, file.size_bytes, entry.start, entry.end, file.key in record.inputs)
        for file, entry in zip(files_of(entries), entries, strict=True)
    )
    task = FileTask(
        task_id=record.name,
        attempt=attempt,
        stream=1,
        topic_id=bytes(TOPIC),
        topic="t",
        partition=0,
        start=record.start,
        end=record.end,
        inputs=TableInputs(pieces, packed),
        output=FileKind.PARQUET,
        key=output_key(record, attempt=attempt),
    )
    facts = table_facts(await run_task(cluster.objects, task))
    numbers = facts.row_count, facts.size_bytes, facts.max_timestamp_ms
    file = DataFile(task.key, FileKind.PARQUET, record.start, record.end, *numbers)
    committed = structs.replace(record, state=TaskState.ICEBERG_COMMITTED, file=file)
    swap = next_step(Observation(None, view, committed), held=lease_of(committed))
    assert isinstance(swap, AppendSwap), swap
    outcome = await node.replica.submit(swap.swap)
    assert outcome == Swapped(True)
    return committed


def offsets_of(rows: Sequence[Row]) -> list[int]:
    return [row.offset for row in rows]


def test_a_rewritten_log_is_read_as_before() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, files=5)
        before = await read_all(cluster, node, 1)
        assert len(before) == 24
        record = await replaced(cluster, node, count=4)
        assert [(one.start, one.end) for one in view_of(node).entries] == [
            (0, 16),
            (16, 20),
            (20, 24),
        ]
        assert await read_all(cluster, node, 1) == before
        assert await read_all(cluster, node, 1, offset=13) == before[13:]
        done = next_step(Observation(None, view_of(node), record), held=lease_of(record))
        assert getattr(done, "effect", "") == "mark swapped"

    run(scenario)


def test_a_cleaned_log_is_read_over_its_gaps() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, files=3)
        before = await read_all(cluster, node, 1)
        await replaced(cluster, node, count=2, kept=[2, 5])
        found = await read_all(cluster, node, 1)
        assert found == [before[2], before[5], *before[8:]]
        for offset in range(16):
            rows = await read_all(cluster, node, 1, offset=offset)
            assert offsets_of(rows) == [one for one in offsets_of(found) if one >= offset]

    run(scenario)


def test_a_range_without_rows_is_passed_and_found_empty_by_time() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        node = await filled(cluster, files=3)
        before = await read_all(cluster, node, 1)
        await replaced(cluster, node, count=2, kept=[])
        assert await read_all(cluster, node, 1) == before[8:]
        assert await read_all(cluster, node, 1, offset=3) == before[8:]
        assert view_of(node).entries[0].max_timestamp_ms == -1
        found = await node.log.find_timestamp(1, 1001)
        assert found == TimestampMatch(8, 1008)
        await replaced(cluster, node, count=2, kept=[], attempt="b")
        assert await read_all(cluster, node, 1) == before[12:]
        greatest = await node.log.max_timestamp(1)
        assert greatest == TimestampMatch(15, 1015)

    run(scenario)
