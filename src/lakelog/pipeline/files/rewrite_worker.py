"""One rewriting task: data files in, one data file out, with all rows or those that are kept.

Rows go over row group by row group and keep their offsets and everything else; the new file's row
groups are cut anew. Where some rows are kept, each of them must be found: a file that lacks one is
not what was looked at when the rows were chosen. Like every worker, this one answers and never
raises for its input (`lakelog.pipeline.files.table_input`).
"""

from concurrent.futures import Executor
from typing import TYPE_CHECKING, BinaryIO

from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.kept import mark_kept, unpack_offsets
from lakelog.pipeline.files.output import make_file, table_writer
from lakelog.pipeline.files.table_input import Group, Source, feed_groups
from lakelog.pipeline.files.tasks import (
    CompactionAnswer,
    CompactionFailure,
    CompactionResult,
    RewriteTask,
    Trouble,
)
from lakelog.pipeline.files.wal_input import TroubleError, run_in
from lakelog.records.table_facts import TableFileFacts
from lakelog.records.table_schema import table_schema

if TYPE_CHECKING:
    import pyarrow as pa


async def rewrite(
    objects: ObjectStore,
    task: RewriteTask,
    *,
    pool: Executor | None = None,
    directory: str | None = None,
) -> CompactionAnswer:
    """Make the task's file, by way of a temporary one in `directory`.

    With a pool the loop stays free, and the next row group is read while rows are written.
    """
    facts = await make_file(
        objects, task, lambda file: _build(objects, task, file, pool), directory=directory
    )
    if isinstance(facts, CompactionFailure):
        return facts
    read_bytes = sum(piece.size_bytes for piece in task.pieces)
    return CompactionResult(task.task_id, task.attempt, task.key, facts, read_bytes)


async def _build(
    objects: ObjectStore, task: RewriteTask, file: BinaryIO, pool: Executor | None
) -> TableFileFacts:
    work = _Work(task, file)
    source = Source(task.stream, task.topic_id, task.partition)
    try:
        await feed_groups(objects, source, task.pieces, work.add, pool=pool)
        return await run_in(pool, work.close)
    except BaseException:
        work.abandon()
        raise


class _Work:
    """The part that computes: rows to the file. One thread at a time."""

    def __init__(self, task: RewriteTask, file: BinaryIO) -> None:
        self._task = task
        self._kept = None if task.kept is None else unpack_offsets(task.kept)
        self._columns = table_schema().names
        self._reached = task.start
        self._row_count = 0
        self._writer = table_writer(file, task)

    def add(self, group: Group) -> None:
        """Take in the rows of a row group."""
        rows = group.rows(self._columns)
        offsets = rows["offset"].to_numpy()
        first, last = offsets.item(0), offsets.item(-1)
        if first < self._reached:
            reason = f"rows of {group.piece.key} begin at {first}, others reach to {self._reached}"
            raise TroubleError(
                Trouble.CORRUPT, reason, group.piece.key, group.piece.start, group.piece.end
            )
        self._reached = last + 1
        if self._kept is not None:
            rows = _chosen(rows, mark_kept(offsets, self._kept))
        self._row_count += rows.num_rows
        # Views, as the writer holds them; what was read is large, for it may be anybody's file.
        self._writer.write(rows.cast(table_schema(views=True)))

    def close(self) -> TableFileFacts:
        """Write what is left and the footer."""
        if self._kept is not None and self._row_count != len(self._kept):
            task = self._task
            reason = f"{len(self._kept)} rows were to be kept, {self._row_count} of them are there"
            raise TroubleError(Trouble.CORRUPT, reason, "", task.start, task.end)
        return self._writer.close()

    def abandon(self) -> None:
        """Make no file of what was taken in."""
        self._writer.abandon()


def _chosen(rows: "pa.Table", mask: object) -> "pa.Table":
    import pyarrow as pa  # noqa: PLC0415 - slow to import, and an extra

    return rows.filter(pa.array(mask))
