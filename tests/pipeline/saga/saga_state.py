"""What surrounds the saga: metadata store, table, index, object store, workers, a sweeper.

Everything is a value, so that a search can hash it. What workers decide comes from the code under
test (`next_step`, `plan_stream`, `may_be_named`, …), bundled as `Rules` so that a mutant can change
one of them. The index behaves as `apply` does on Trim, Drop and Swap; a test compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from lakelog.catalog.port import DataFileView
from lakelog.domain.events import Swap
from lakelog.index.entries import Entry, StreamColumns
from lakelog.index.ports import StreamView
from lakelog.model.ids import TopicId
from lakelog.pipeline.planning.backfill import plan_backfill
from lakelog.pipeline.planning.small_files import replacement
from lakelog.pipeline.planning.wal_ranges import (
    BackfillDue,
    NothingDue,
    PendingSwap,
    PlanOptions,
    Problem,
    plan_present,
    plan_stream,
)
from lakelog.pipeline.saga.steps import Observation, Step, next_step
from lakelog.pipeline.saga.table_view import PartitionTableView
from lakelog.pipeline.saga.task_record import (
    Lease,
    LeaseId,
    TaskRecord,
    may_be_named,
    parse_output_key,
)
from lakelog.pipeline.saga.values import DataFile, Fact, PlannedTask, StreamName, TaskTarget
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName, digest
from lakelog.wal.layout import make_wal_id

TOPIC: Final = TopicId(bytes(range(16)))
NAME: Final = StreamName(stream=1, topic_id=TOPIC, topic="t", partition=0)
LEASE: Final = Lease("worker", 0)
EMPTY: Final = "0"
"""What the attempt of a file without rows begins with."""
NOW_MS: Final = 1 << 40
Planned = PlannedTask | NothingDue | PendingSwap | BackfillDue | Problem


class Stored(NamedTuple):
    """An object in the store: its name and the offsets [start, end) that it holds."""

    name: ObjectName
    start: int
    end: int


class Table(NamedTuple):
    """The table: every commit gives it a new token; `ids` are the commit ids still to be found."""

    token: int
    vector: int | None
    files: tuple[Stored, ...]
    ids: frozenset[str] = frozenset()


class Index(NamedTuple):
    """The stream's entries, as `apply` keeps them."""

    alive: bool
    log_start: int
    head: int
    entries: tuple[Stored, ...]


class Put(NamedTuple):
    file: DataFile


class Cas(NamedTuple):
    version: int
    record: TaskRecord | None


class Commit(NamedTuple):
    token: int
    file: DataFile
    before: int | None
    after: int
    id: str


class Exchange(NamedTuple):
    token: int
    inputs: tuple[str, ...]
    file: DataFile


class Move(NamedTuple):
    token: int


class Append(NamedTuple):
    swap: Swap


Request = Put | Cas | Commit | Exchange | Move | Append


class Worker(NamedTuple):
    """One worker: where it is in its loop and all that it remembers."""

    at: str = "idle"
    held: LeaseId | None = None
    table: Table | None = None
    stream: Index | None = None
    record: TaskRecord | None = None
    version: int = 0
    request: Request | None = None
    fact: Fact | None = None
    attempt: int = 0


class Budget(NamedTuple):
    """How often each fault may still happen."""

    crash: int = 0
    lost: int = 0
    rival: int = 0
    abort: int = 0
    foreign: int = 0
    drop: int = 0
    trim: int = 0
    wipe: int = 0
    retire: int = 0
    """Retention of the table takes what the log start has passed."""


@dataclass(frozen=True)
class Setup:
    """How much to search; entries hold two offsets each.

    The first `files` entries are files of the table already, which `replaces` makes one of, with
    their rows or, when cleaned, without any.
    """

    entries: int = 3
    files: int = 0
    replaces: TaskTarget | None = None
    workers: int = 2
    budget: Budget = field(default_factory=Budget)
    pieces_max: int = 2
    tracks_ids: bool = False
    quarantine: tuple[tuple[int, int], ...] = ()
    """What becomes a segment before its rows are in the table."""
    states_max: int = 1_500_000


class SagaState(NamedTuple):
    """Everything at one moment of the search."""

    record: TaskRecord | None
    version: int
    table: Table
    stream: Index
    files: frozenset[Stored]
    workers: tuple[Worker, ...]
    flying: frozenset[Request]
    sweep: tuple[str, Stored] | None
    budget: Budget


def columns_of(index: Index) -> StreamColumns:
    kinds = [entry_of(one).kind for one in index.entries]
    return StreamColumns(
        starts=np.array([one.start for one in index.entries], dtype=np.int64),
        ends=np.array([one.end for one in index.entries], dtype=np.int64),
        kinds=np.array(kinds, dtype=np.int64),
        byte_lengths=np.full(len(kinds), 1, dtype=np.int64),
        object_times_ms=np.zeros(len(kinds), dtype=np.int64),
    )


def has_rows(one: Stored) -> bool:
    """Whether the table names this file; the key of one without rows says so."""
    assert isinstance(one.name, FileName)
    return not one.name.key.rpartition("-")[2].startswith(EMPTY)


def replaceable(index: Index, setup: Setup) -> tuple[Stored, ...]:
    """The files at the front of the stream, if there is something to make of them."""
    run = []
    for one in index.entries:
        if entry_of(one).kind is not FileKind.PARQUET:
            break
        run.append(one)
    if setup.replaces is TaskTarget.REWRITE:
        return tuple(run) if len(run) > 1 else ()
    return tuple(run) if setup.replaces and any(has_rows(one) for one in run) else ()


def _replacement(chosen: tuple[Stored, ...], table: Table, setup: Setup) -> Planned:
    files = []
    for one in table.files:
        assert isinstance(one.name, FileName)
        if one.start < chosen[-1].end:
            files.append(DataFileView(one.name.key, 0, one.start, one.end, 2, 1))
    assert setup.replaces is not None
    entries = [entry_of(one) for one in chosen]
    return replacement(NAME, entries, files, target=setup.replaces, now_ms=NOW_MS)


def plan_entries(index: Index, table: Table, setup: Setup) -> Planned:
    """What is due of the WAL entries."""
    return plan_stream(
        NAME,
        columns_of(index),
        vector=table.vector,
        quarantine=setup.quarantine,
        options=PlanOptions(pieces_max=setup.pieces_max),
        now_ms=NOW_MS,
    )


def _plan(index: Index, table: Table, setup: Setup, wiped: bool) -> Planned:
    """As the pipeline plans: when the table is ahead, with the file that the table has."""
    chosen = replaceable(index, setup)
    if chosen:
        return _replacement(chosen, table, setup)
    columns = columns_of(index)
    found = plan_entries(index, table, setup)
    if isinstance(found, BackfillDue | NothingDue):
        options = PlanOptions(pieces_max=setup.pieces_max)
        vector = table.vector
        return plan_backfill(NAME, columns, vector=vector, options=options, now_ms=NOW_MS) or found
    if not isinstance(found, PendingSwap) or not wiped:
        return found
    (file,) = [one for one in table.files if one.start <= found.start < one.end]
    assert isinstance(file.name, FileName)
    present = data_file(file.name.key, start=file.start, end=file.end)
    return plan_present(NAME, columns, present, now_ms=NOW_MS)


def _swap_fits(entries: tuple[Stored, ...], swap: Swap) -> range | None:
    """The places of the entries that `apply` would replace, None when it refuses."""
    inside = [
        place
        for place, one in enumerate(entries)
        if one.start >= swap.start and one.end <= swap.end
    ]
    if not inside or entries[inside[-1]].end != swap.end:
        return None
    if entries[inside[0]].start != swap.start and inside[0] != 0:
        return None
    if not {digest(entries[place].name) for place in inside} <= set(swap.replaces):
        return None
    return range(inside[0], inside[-1] + 1)


def _named(file: Stored, record: TaskRecord | None) -> bool:
    assert isinstance(file.name, FileName)
    origin = parse_output_key(file.name.key)
    assert origin is not None
    return may_be_named(origin, file.name.key, record)


@dataclass(frozen=True)
class Rules:
    """The code under test and the few places where a driver could go wrong."""

    next_step: Callable[[Observation, LeaseId, Fact | None, Table], Step] = (
        lambda seen, held, fact, _: next_step(seen, held=held, fact=fact)
    )
    plan: Callable[[Index, Table, Setup, bool], Planned] = _plan
    may_be_named: Callable[[Stored, TaskRecord | None], bool] = _named
    swap_fits: Callable[[tuple[Stored, ...], Swap], range | None] = _swap_fits
    looks: tuple[str, ...] = ("table", "index", "record")
    plan_looks: tuple[str, ...] = ("record", "table", "index")
    checks_versions: bool = True
    commit_fits: Callable[[Table, Commit | Exchange], bool] | None = None
    unknown_fact: Fact | None = None
    fences: bool = True


def wal(number: int, *, start: int, end: int) -> Stored:
    """The WAL object that holds [start, end) of the stream."""
    return Stored(WalName(make_wal_id(number, bytes(10)), "z"), start, end)


def stored(file: DataFile) -> Stored:
    return Stored(file.name, file.start, file.end)


@cache
def entry_of(one: Stored) -> Entry:
    return Entry(one.start, one.end, one.name, 0, 1, 0, domain=0)


@cache
def stream_view(index: Index) -> StreamView | None:
    if not index.alive:
        return None
    first = index.entries[0].start if index.entries else index.head
    entries = tuple(entry_of(one) for one in index.entries)
    return StreamView(1, index.log_start, first, entries)


@cache
def table_view(table: Table, record: TaskRecord | None) -> PartitionTableView:
    """The table as the holder of a task sees it."""
    view = PartitionTableView(TOPIC, str(table.token), table.vector)
    if record is None or not record.is_replacing:
        return view
    inside = [one for one in table.files if one.end > record.start and one.start < record.end]
    return replace(view, files=tuple(key_of(one) for one in inside))


def key_of(one: Stored) -> str:
    assert isinstance(one.name, FileName)
    return one.name.key


def begin(setup: Setup) -> SagaState:
    """A stream of so many entries, of two offsets each, and a table with the first of them."""
    edges = [(2 * at, 2 * at + 2) for at in range(setup.entries)]
    root = "compaction/v1/topic=t/partition=0"
    files = tuple(
        stored(data_file(f"{root}/1-1-1-f{start}.parquet", start=start, end=end))
        for start, end in edges[: setup.files]
    )
    others = [wal(start, start=start, end=end) for start, end in edges[setup.files :]]
    made = (*files, *others)
    return SagaState(
        record=None,
        version=0,
        table=Table(0, 2 * setup.files or None, files),
        stream=Index(True, 0, 2 * setup.entries, made),
        files=frozenset(made),
        workers=(Worker(),) * setup.workers,
        flying=frozenset(),
        sweep=None,
        budget=setup.budget,
    )


def is_wal(one: Stored) -> bool:
    return isinstance(one.name, WalName)


def data_file(key: str, *, start: int, end: int, kind: FileKind = FileKind.PARQUET) -> DataFile:
    name = FileName(kind, key)
    rows = end - start if has_rows(Stored(name, start, end)) else 0
    return DataFile(key, kind, start, end, rows, 1, 0)
