"""Data files of one stream in a store, for tests of what reads and rewrites them."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from tests.records.table_cases import ROOMY, Row, rows_of

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import FileTask, TableInputs, TablePiece
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import parse_header, split_batches
from lakelog.records.table_batches import batches_from_rows
from lakelog.records.table_file import TableFileWriter
from lakelog.records.table_rows import rows_from_batches
from lakelog.records.table_schema import TableFileOrigin
from lakelog.streams.objects import FileKind

STREAM = 7
TOPIC_ID = bytes(range(16))
Batches = Sequence[tuple[int, memoryview]]


def file_bytes(batches: Batches, *, start: int, end: int, row_group_bytes: int = 1 << 20) -> bytes:
    """The data file of these batches, which stands for the offsets [start, end)."""
    origin = TableFileOrigin(STREAM, TOPIC_ID, 3, "7-1", start, end, 1 << 20)
    file = io.BytesIO()
    writer = TableFileWriter(file, origin, row_group_bytes=row_group_bytes)
    writer.write(rows_from_batches(batches, partition=3, decompressed_bytes_max=ROOMY))
    writer.close()
    return file.getvalue()


async def put_file(
    objects: ObjectStore,
    batches: Batches,
    *,
    start: int,
    end: int,
    row_group_bytes: int = 1 << 20,
    key: str = "",
) -> TablePiece:
    """Store the data file of these batches."""
    data = file_bytes(batches, start=start, end=end, row_group_bytes=row_group_bytes)
    key = key or f"compaction/v1/topic=t/partition=3/7-1-1-f{start}.parquet"
    await objects.put(key, [data])
    return TablePiece(key, len(data), start, end, bool(batches))


def one_by_one(records: Sequence[tuple[int, Record]]) -> list[tuple[int, memoryview]]:
    """Each record in a batch of its own, at its offset."""
    return [
        (offset, memoryview(build_batch([record], BatchOptions(base_offset=offset))))
        for offset, record in records
    ]


def rewriting(pieces: Sequence[TablePiece], *, start: int | None = None) -> FileTask:
    """The task that makes one file of these."""
    return FileTask(
        task_id="7-2",
        attempt="a",
        stream=STREAM,
        topic_id=TOPIC_ID,
        topic="t",
        partition=3,
        start=pieces[0].start if start is None else start,
        end=pieces[-1].end,
        inputs=TableInputs(tuple(pieces)),
        output=FileKind.PARQUET,
        key="compaction/v1/topic=t/partition=3/7-2-2-a.parquet",
    )


async def table_of(objects: ObjectStore, key: str) -> pa.Table:
    """All rows of a file, as any reader of Parquet sees them."""
    return pq.read_table(pa.BufferReader(await objects.get(key)))


async def consumed(objects: ObjectStore, piece: TablePiece) -> list[Row]:
    """What a consumer sees of a file."""
    table = await table_of(objects, piece.key)
    if not table.num_rows:
        return []
    made = batches_from_rows(table, start=piece.start, end=piece.end, batch_bytes_max=1 << 20)
    batches = split_batches(memoryview(b"".join(made)))
    return rows_of([(parse_header(one).base_offset, one) for one in batches])


def outside_of_the_table(piece: TablePiece) -> TablePiece:
    return replace(piece, in_table=False)
