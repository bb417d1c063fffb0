"""A file that the table has and the index has not: what it is, from table, footer and index.

This is for a table that is ahead: a task's record was lost after its commit. The file's footer says
which offsets it stands for, the index how new its records are.
"""

from lakelog.index.ports import StreamRange
from lakelog.log.parquet_source import read_end
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.planning.plan import TableAhead
from lakelog.pipeline.saga.values import DataFile, StreamName
from lakelog.pipeline.shop import Shop
from lakelog.pipeline.waits import reading
from lakelog.records.table_facts import TableFileOrigin
from lakelog.records.table_file import TableFile
from lakelog.streams.objects import FileKind, FileName


async def file_ahead(
    shop: Shop, objects: ObjectStore, name: StreamName, ahead: TableAhead
) -> DataFile | None:
    """The table's file for the first offset that it is ahead by; None when it names none there."""
    table = shop.table_name(name.topic)
    found = await shop.ask_table(
        lambda tables: tables.files(
            table, partition=name.partition, start=ahead.start, end=ahead.end
        )
    )
    for file in found:
        reads = _origin(objects, file.key, file.size_bytes)
        origin = await reading(reads, limit_s=shop.options.table_s)
        if origin.end <= ahead.start:
            continue
        (view,) = await shop.views([StreamRange(name.stream, origin.start, origin.end)])
        newest_ms = [] if view is None else [one.max_timestamp_ms for one in view.entries]
        return DataFile(
            name=FileName(FileKind.PARQUET, file.key),
            start=origin.start,
            end=origin.end,
            row_count=file.row_count,
            size_bytes=file.size_bytes,
            max_timestamp_ms=max(newest_ms, default=-1),
        )
    return None


async def _origin(objects: ObjectStore, key: str, size_bytes: int) -> TableFileOrigin:
    end = await read_end(objects, key, size_bytes)
    return TableFile.open(end, size_bytes=size_bytes).origin
