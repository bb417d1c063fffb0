"""The saga of a compaction task: what its holder does next, whatever happened before. Pure.

A holder loops: look, decide (`next_step`), do the one step, look again. It keeps nothing between
rounds but its lease (`LeaseId`) and the last `Fact` that a reply told it for certain: a successor,
a holder after an unknown outcome and one in the ordinary course are the same code. The effects:

    claim task     CAS of the record to epoch + 1; from here on older holders can mark nothing
    create task    CAS of the key from absent, or from an ended record, to CREATED
    put file       the worker writes the range to a key that holds epoch and attempt
    mark written   CAS CREATED -> PARQUET_WRITTEN with the file; from here on its name is final
    commit table   CAS of the table, on the snapshot looked at, from vector `expected` to `end`; of
                   a replacing task, from its inputs to its file
    mark committed CAS PARQUET_WRITTEN (or ABORTED) -> ICEBERG_COMMITTED
    append swap    Swap in the domain log; `apply` checks that the range still is what it was
    mark swapped   CAS ICEBERG_COMMITTED -> INDEX_SWAPPED
    mark ready     CAS INDEX_SWAPPED -> WAL_GC_READY; WAL objects are freed by being unnamed
    mark aborted   CAS PARQUET_WRITTEN -> ABORTED
    move table     CAS of the table to a new snapshot without rows: stale commits fail from here on
                   (a new snapshot, for an external catalog compares nothing else)
    mark closed    CAS CREATED or ABORTED -> CLOSED
    forget task    deletion of an ended record whose stream is gone
    mark clean     CAS of an ended record: how far log compaction has come (`with_cleaned`)

Order of looking: **table, then index, then the record, last**. A holder that read "written" and
only then loaded the table could be overtaken by an abort in between and commit a file that is
already swept; with the record read last, an abort comes after that snapshot was taken and moves
the table (C5), so the commit fails. All views are taken after the lease was won, and are current as
of that moment: the index after a proof (rule 16), the table by its catalog pointer.

What a successor finds, and does:

    CREATED            nothing of the former holder counts: it writes a file under its own epoch
    PARQUET_WRITTEN    the vector decides: `expected` -> commit that file; `end` or more -> it is
                       there already, mark; anything else -> stuck, report, change nothing
    ICEBERG_COMMITTED  the index decides: WAL entries left -> Swap them; none left (swapped,
                       trimmed, the stream dropped, or the range was segments, which stay) -> mark
    INDEX_SWAPPED      mark
    ABORTED            the vector decides again: `end` or more -> the commit had landed, so the task
                       goes on as ICEBERG_COMMITTED; else move the table, then mark closed

Every outcome of an effect leads back to looking: done, `Conflict`, `OutcomeUnknown`. An unknown
outcome is never taken for a failure. A stream that was dropped before the commit is aborted; after
it, there is nothing to swap and the task ends. Files are deleted by the sweeper alone
(`pipeline.saga.task_record`); an aborted file becomes its garbage when the record is closed.

A replacing task (`REWRITE`, `CLEAN`) goes the same way, with PARQUET entries in the place of WAL
entries. What the vector decides above, the live files of its range decide: they are its inputs ->
replace them; its file, or none where that has no rows -> it is there already; anything else
(retention of the table took an input) -> abort. The index names files without rows, a table not.

Many tasks of one topic commit at once: the driver loads the table once, then reads all records,
takes every `CommitTable` of this round into one commit, and the vector judges each again later:
how a round was composed is nowhere durable and need not be.
"""

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from msgspec.structs import replace

from lakelog.domain.events import Swap
from lakelog.index.entries import Entry
from lakelog.index.ports import StreamView
from lakelog.pipeline.saga.table_view import CommitStatus, PartitionTableView, judge_task
from lakelog.pipeline.saga.task_record import (
    PROBLEM_LENGTH_MAX,
    LeaseId,
    TaskRecord,
    TaskState,
    is_made_for,
    is_open,
    lease_of,
)
from lakelog.pipeline.saga.values import (
    DataFile,
    Fact,
    FileWritten,
    InputNotFound,
    TableMoved,
    TaskTarget,
    Unreadable,
)
from lakelog.streams.objects import FileKind, FileName, digest


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write these entries, but no row below the log start (W5), to a new key of this epoch."""

    record: TaskRecord
    pieces: tuple[Entry, ...]
    log_start: int = 0
    effect: str = "put file"


@dataclass(frozen=True, slots=True)
class CommitTable:
    """Append the file on exactly this snapshot and move the vector from `before` to `after`."""

    record: TaskRecord
    file: DataFile
    token: str
    before: int | None
    after: int
    effect: str = "commit table"


@dataclass(frozen=True, slots=True)
class ReplaceFiles:
    """Put the file, or nothing where it has no rows, in the place of the inputs on this snapshot.

    Rows vanish if the record's target is `CLEAN`, and are the same if it is `REWRITE`.
    """

    record: TaskRecord
    file: DataFile
    token: str
    inputs: tuple[str, ...]
    effect: str = "commit table"


@dataclass(frozen=True, slots=True)
class AppendSwap:
    """Append this event to the domain log of the stream."""

    swap: Swap
    effect: str = "append swap"


@dataclass(frozen=True, slots=True)
class MoveTable:
    """Commit a new snapshot without rows on exactly this one."""

    token: str
    effect: str = "move table"


@dataclass(frozen=True, slots=True)
class Mark:
    """Put this record with the version of the one that was read."""

    record: TaskRecord
    effect: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Delete the record with the version that was read: its stream is gone."""

    effect: str = "forget task"


@dataclass(frozen=True, slots=True)
class Finished:
    """The task is at its end; plan the stream's next one."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The lease is another's: stop, and change nothing."""


@dataclass(frozen=True, slots=True)
class TaskBlocked:
    """What was found cannot be; report it, let go of the lease, change nothing."""

    reason: str


Step: TypeAlias = (
    WriteFile
    | CommitTable
    | ReplaceFiles
    | AppendSwap
    | MoveTable
    | Mark
    | Forget
    | Finished
    | LeaseLost
    | TaskBlocked
)

EFFECTS = (
    "claim task",
    "create task",
    "put file",
    "mark written",
    "commit table",
    "mark committed",
    "append swap",
    "mark swapped",
    "mark ready",
    "mark aborted",
    "move table",
    "mark closed",
    "forget task",
    "mark clean",
)
"""Every side effect of the saga by name, for failpoints."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a holder looked at, in this order; None: no such table (or not ours), stream, record."""

    table: PartitionTableView | None
    stream: StreamView | None
    record: TaskRecord | None


def next_step(seen: Observation, *, held: LeaseId, fact: Fact | None = None) -> Step:
    """What the holder of a lease does next; `fact` is what its last step achieved for certain."""
    record = seen.record
    if record is None or lease_of(record) != held:
        return LeaseLost()
    if not is_open(record):
        return Forget() if seen.stream is None else Finished()
    match record.state:
        case TaskState.CREATED:
            return _write(record, seen.stream, fact)
        case TaskState.PARQUET_WRITTEN if record.target is not TaskTarget.LOG:
            return _commit(record, seen)
        case TaskState.ABORTED:
            return _fence(record, seen, fact)
        case _:
            return _swap(record, seen.stream)


def abandon(record: TaskRecord, problem: str) -> Mark | None:
    """Give the task up, if that is still possible: after the table has it, it must be finished."""
    if record.state is TaskState.CREATED:
        return _closed(record, problem)
    if record.state is TaskState.PARQUET_WRITTEN and record.target is not TaskTarget.LOG:
        aborted = replace(record, state=TaskState.ABORTED, problem=problem[:PROBLEM_LENGTH_MAX])
        return Mark(aborted, "mark aborted")
    return None


def _write(record: TaskRecord, stream: StreamView | None, fact: Fact | None) -> Step:
    if stream is None:
        return _closed(record, "the stream is gone")
    match fact:
        case FileWritten(file=file) if is_made_for(record, file):
            written = replace(record, state=TaskState.PARQUET_WRITTEN, file=file, failures=0)
            return Mark(written, "mark written")
        case InputNotFound(problem=problem) if stream.first_start > record.start:
            return _closed(record, problem)  # trimmed meanwhile: the next plan begins later
        case InputNotFound(problem=problem):
            return _failed(record, problem)
        case Unreadable(problem=problem, quarantine=quarantine):
            return _failed(record, problem, quarantine)
        case _:
            return _begin(record, stream)


def _begin(record: TaskRecord, stream: StreamView) -> Step:
    pieces = stream.overlapping(start=record.start, end=record.end)
    if not pieces or _is_trimmed(record, pieces):
        return _closed(record, "the range was trimmed")
    if pieces[-1].end != record.end or {piece.kind for piece in pieces} not in record.input_kinds:
        return TaskBlocked(
            f"the index no longer has [{record.start}, {record.end}) as it was planned"
        )
    return WriteFile(record, pieces, stream.log_start)


def _is_trimmed(record: TaskRecord, pieces: tuple[Entry, ...]) -> bool:
    """Whether entries of the range are gone.

    The first file of a replacing task may begin before its entry, where trimming has been before;
    and an input without rows, which the record does not name, is no loss.
    """
    if not record.is_replacing:
        return pieces[0].start != record.start
    keys = [piece.name.key for piece in pieces if isinstance(piece.name, FileName)]
    return [key for key in keys if key in record.inputs] != list(record.inputs)


def _commit(record: TaskRecord, seen: Observation) -> Step:
    file = record.file
    assert file is not None, record
    table = seen.table
    if table is None or table.topic_id != record.topic_id:
        gone = seen.stream is None
        return _aborted(record, "all is gone") if gone else TaskBlocked("the topic has no table")
    match judge_task(record, table):
        case CommitStatus.PRESENT:
            return _committed(record, file)
        case CommitStatus.MISFIT:
            return _misfit(record, table)
        case CommitStatus.APPEND if seen.stream is None:
            return _aborted(record, "the stream is gone")
        case CommitStatus.APPEND if record.is_replacing:
            return ReplaceFiles(record, file, table.token, record.inputs)
        case CommitStatus.APPEND:
            return CommitTable(record, file, table.token, before=table.offset, after=record.end)
        case _ as never:
            assert_never(never)


def _misfit(record: TaskRecord, table: PartitionTableView) -> Step:
    if record.is_replacing:
        return _aborted(record, "the table no longer has the files that were to be replaced")
    return TaskBlocked(
        f"the table reaches to {table.offset}, not to {record.expected},"
        f" where [{record.start}, {record.end}) was planned from"
    )


def _swap(record: TaskRecord, stream: StreamView | None) -> Step:
    """Swap what is left to swap; with nothing left, say so, and once more when proved again."""
    file = record.file
    assert file is not None, record
    inside = () if stream is None else stream.overlapping(start=record.start, end=record.end)
    kind = FileKind.PARQUET if record.is_replacing else FileKind.WAL
    left = [entry for entry in inside if entry.kind is kind and entry.name != file.name]
    swapped = record.state is TaskState.INDEX_SWAPPED
    if stream is None or not left:
        if swapped:
            return Mark(replace(record, state=TaskState.WAL_GC_READY), "mark ready")
        return Mark(replace(record, state=TaskState.INDEX_SWAPPED), "mark swapped")
    if swapped:
        return TaskBlocked("the index went back: it names objects whose place a file took")
    begin = left[0].start
    # A Swap also covers what trimming left of its range: refused, it would double rows (T4).
    begins = begin == record.start or record.start < begin == stream.first_start
    if len(left) != len(inside) or not begins or left[-1].end != record.end:
        return TaskBlocked(
            f"the index holds [{record.start}, {record.end}) in pieces that do not fit"
        )
    return AppendSwap(
        Swap(
            stream=record.stream,
            start=record.start,
            end=record.end,
            file=file.name,
            size_bytes=file.size_bytes,
            max_timestamp_ms=file.max_timestamp_ms,
            replaces=tuple(sorted({digest(entry.name) for entry in left})),
        )
    )


def _fence(record: TaskRecord, seen: Observation, fact: Fact | None) -> Step:
    table = seen.table
    if table is None or table.topic_id != record.topic_id:
        return _closed(record, record.problem)  # no table that a stale commit could reach
    assert record.file is not None, record
    if judge_task(record, table) is CommitStatus.PRESENT:
        return _committed(record, record.file)  # it had landed before the abort: it counts
    if isinstance(fact, TableMoved):
        return _closed(record, record.problem)
    return MoveTable(table.token)


def _committed(record: TaskRecord, file: DataFile) -> Mark:
    """The table has the file: what only a commit needs to know of it is dropped."""
    kept = replace(file, facts=None)
    return Mark(replace(record, state=TaskState.ICEBERG_COMMITTED, file=kept), "mark committed")


def _aborted(record: TaskRecord, problem: str) -> Mark:
    mark = abandon(record, problem)
    assert mark is not None, record
    return mark


def _closed(record: TaskRecord, problem: str) -> Mark:
    closed = replace(
        record, state=TaskState.CLOSED, file=None, problem=problem[:PROBLEM_LENGTH_MAX]
    )
    return Mark(closed, "mark closed")


def _failed(record: TaskRecord, problem: str, quarantine: tuple[int, int] | None = None) -> Mark:
    """Closed with a count, so that the next try waits longer, and with what cannot be rows.

    A range that could not be replaced is not tried again and counts for nothing, so that what waits
    for the table is not held up.
    """
    if record.is_replacing:
        left_alone = (*record.quarantine, quarantine or (record.start, record.end))
        return _closed(replace(record, quarantine=left_alone), problem)
    added = () if quarantine is None else (quarantine,)
    counted = replace(record, failures=record.failures + 1, quarantine=(*record.quarantine, *added))
    return _closed(counted, problem)
