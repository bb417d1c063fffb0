"""What turns entries of a log into data files, for tests: a task, its file, and the Swap."""

from dataclasses import replace

from tests.memory_cluster import TOPIC, MemoryCluster, MemoryNode
from tests.records.table_cases import ROOMY, Row, rows_of

from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.log.plan import Piece
from lakelog.log.values import Fetched, ReadStatus, StreamRead
from lakelog.pipeline.files.file_task import (
    FileAnswer,
    FileResult,
    FileTask,
    WalInputs,
    WalPiece,
)
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.columns import decode_columns
from lakelog.records.header import parse_header, split_batches
from lakelog.records.table_schema import TableFileFacts
from lakelog.streams.objects import FileKind, FileName, WalName, digest


def accepted(batch: memoryview) -> AcceptedBatch:
    """The batch as a broker stores it that looks at no timestamp."""
    columns = decode_columns(batch, decompressed_bytes_max=ROOMY)
    header = columns.header
    return AcceptedBatch(
        batch,
        header.record_count,
        header.last_offset_delta + 1,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        int(columns.timestamps_ms.min()),
        int(columns.timestamps_ms.max()),
        header.max_timestamp_ms if header.log_append_time else -1,
        header.transactional,
    )


def wal_pieces(node: MemoryNode, stream: int) -> list[Piece]:
    return [one for one in node.log.pieces(stream) if isinstance(one.name, WalName)]


def wal_task(
    node: MemoryNode,
    stream: int,
    output: FileKind,
    *,
    start: int = 0,
    end: int | None = None,
    **changes: int,
) -> FileTask:
    """A task over the stream's WAL entries that lie in [start, end)."""
    pieces = []
    for entry in wal_pieces(node, stream):
        assert isinstance(entry.name, WalName)
        if entry.start >= start and (end is None or entry.end <= end):
            name, span = entry.name, (entry.byte_start, entry.byte_length)
            pieces.append(WalPiece(name.zone, bytes(name.wal_id), *span, entry.start, entry.end))
    suffix = "kfs" if output is FileKind.SEGMENT else "parquet"
    task = FileTask(
        task_id=f"task-{stream}-{pieces[0].start}",
        attempt="a1",
        stream=stream,
        topic_id=bytes(TOPIC),
        topic="t",
        partition=stream - 1,
        start=pieces[0].start,
        end=pieces[-1].end,
        inputs=WalInputs(0, tuple(pieces)),
        output=output,
        key=f"compaction/v1/topic=t/{stream}-{pieces[0].start}-a1.{suffix}",
        created_ms=1_700_000_000_000,
    )
    return replace(task, **changes)  # type: ignore[arg-type]  # numbers are what tests change


def task_of(node: MemoryNode, stream: int, *, end: int | None = None, **changes: int) -> FileTask:
    """A data file's task over the stream's WAL entries that end at or before `end`."""
    return wal_task(node, stream, FileKind.PARQUET, end=end, **changes)


def wal_inputs(task: FileTask) -> WalInputs:
    """The task's inputs, which are WAL objects."""
    assert isinstance(task.inputs, WalInputs), task
    return task.inputs


def table_facts(answer: FileAnswer) -> TableFileFacts:
    """What is known of the data file that was made."""
    assert isinstance(answer, FileResult), answer
    assert isinstance(answer.facts, TableFileFacts), answer
    return answer.facts


async def swap(node: MemoryNode, task: FileTask, result: FileResult) -> Swapped:
    """Put the file in the place of the entries that it was made of."""
    names = {piece.name for piece in wal_pieces(node, task.stream)}
    event = Swap(
        task.stream,
        task.start,
        task.end,
        FileName(task.output, result.key),
        result.facts.size_bytes,
        result.facts.max_timestamp_ms,
        tuple(sorted(digest(name) for name in names)),
    )
    outcome = await node.replica.submit(event)
    assert isinstance(outcome, Swapped)
    return outcome


async def swapped_in(cluster: MemoryCluster, node: MemoryNode, task: FileTask) -> FileResult:
    """Make the task's file and swap it in."""
    result = await run_task(cluster.objects, task)
    assert isinstance(result, FileResult), result
    assert (await swap(node, task, result)).accepted
    return result


async def tabled(
    cluster: MemoryCluster, node: MemoryNode, stream: int, *, end: int | None = None, **changes: int
) -> FileResult:
    """Compact a prefix of the stream's WAL entries and swap it in."""
    return await swapped_in(cluster, node, task_of(node, stream, end=end, **changes))


def fetched_rows(fetched: Fetched) -> list[Row]:
    """What a consumer reads of an answer."""
    assert fetched.status is ReadStatus.OK, fetched
    data = memoryview(b"".join(bytes(part) for part in fetched.parts))
    return rows_of([(parse_header(one).base_offset, one) for one in split_batches(data)])


async def read_all(
    cluster: MemoryCluster,
    node: MemoryNode,
    stream: int,
    *,
    offset: int = 0,
    bytes_max: int = 1 << 20,
) -> list[Row]:
    """Read like a consumer, from the offset to the end; every answer advances."""
    found: list[Row] = []
    while True:
        wanted = [StreamRead(stream, offset, bytes_max)]
        (got,) = await node.log.read(wanted, bytes_max=bytes_max, deadline_s=cluster.soon())
        data = memoryview(b"".join(bytes(part) for part in got.parts))
        batches = split_batches(data)
        if not batches:
            assert offset == got.head, (offset, got)
            return found
        found += [row for row in fetched_rows(got) if row.offset >= offset]
        last = parse_header(batches[-1])
        after = last.base_offset + last.last_offset_delta + 1
        assert after > offset
        offset = after
