"""An abstract world for the saga: metadata store, table, index, object store, workers, a sweeper.

Everything is a value, so that a search can hash it. What workers decide comes from the code under
test (`next_step`, `plan_stream`, `may_be_named`, …), bundled as `Rules` so that a mutant can change
one of them. The index behaves as `apply` does on Trim, Drop and Swap; a test compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from lakelog.compaction.journal import Held, Lease, TaskRecord
from lakelog.compaction.outputs import may_be_named, parse_output_key
from lakelog.compaction.plan import (
    NothingDue,
    PlannedTask,
    PlanOptions,
    Problem,
    StreamColumns,
    StreamName,
    TableAhead,
    plan_present,
    plan_stream,
)
from lakelog.compaction.saga import Fact, Seen, Step, next_step
from lakelog.compaction.views import DataFile, IndexEntry, StreamView, TableView
from lakelog.domain.events import Swap
from lakelog.model.ids import TopicId
from lakelog.streams.objects import FileKind, FileName, ObjectName, WalName, digest
from lakelog.wal.ids import make_wal_id

TOPIC: Final = TopicId(bytes(range(16)))
NAME: Final = StreamName(stream=1, topic_id=TOPIC, topic="t", partition=0)
LEASE: Final = Lease("worker", 0)
NOW_MS: Final = 1 << 40
Planned = PlannedTask | NothingDue | TableAhead | Problem


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


class Move(NamedTuple):
    token: int


class Append(NamedTuple):
    swap: Swap


Request = Put | Cas | Commit | Move | Append


class Worker(NamedTuple):
    """One worker: where it is in its loop and all that it remembers."""

    at: str = "idle"
    held: Held | None = None
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


@dataclass(frozen=True)
class Setup:
    """How large a world to search; entries hold two offsets each."""

    entries: int = 3
    workers: int = 2
    budget: Budget = field(default_factory=Budget)
    pieces_max: int = 2
    tracks_ids: bool = False
    quarantine: tuple[tuple[int, int], ...] = ()
    states_max: int = 1_500_000


class World(NamedTuple):
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


def _plan(index: Index, table: Table, setup: Setup, wiped: bool) -> Planned:
    """As the pipeline plans: when the table is ahead, with the file that the table has."""
    columns = columns_of(index)
    found = plan_stream(
        NAME,
        columns,
        vector=table.vector,
        quarantine=setup.quarantine,
        options=PlanOptions(pieces_max=setup.pieces_max),
        now_ms=NOW_MS,
    )
    if not isinstance(found, TableAhead) or not wiped:
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

    next_step: Callable[[Seen, Held, Fact | None, Table], Step] = lambda seen, held, fact, _: (
        next_step(seen, held=held, fact=fact)
    )
    plan: Callable[[Index, Table, Setup, bool], Planned] = _plan
    may_be_named: Callable[[Stored, TaskRecord | None], bool] = _named
    swap_fits: Callable[[tuple[Stored, ...], Swap], range | None] = _swap_fits
    looks: tuple[str, ...] = ("table", "index", "record")
    plan_looks: tuple[str, ...] = ("record", "table", "index")
    checks_versions: bool = True
    commit_fits: Callable[[Table, Commit], bool] | None = None
    unknown_fact: Fact | None = None
    fences: bool = True


def wal(number: int, *, start: int, end: int) -> Stored:
    """The WAL object that holds [start, end) of the stream."""
    return Stored(WalName(make_wal_id(number, bytes(10)), "z"), start, end)


def stored(file: DataFile) -> Stored:
    return Stored(file.name, file.start, file.end)


@cache
def entry_of(one: Stored) -> IndexEntry:
    return IndexEntry(one.start, one.end, one.name, 0, 1, 0)


@cache
def stream_view(index: Index) -> StreamView | None:
    if not index.alive:
        return None
    first = index.entries[0].start if index.entries else index.head
    entries = tuple(entry_of(one) for one in index.entries)
    return StreamView(1, index.log_start, first, entries)


@cache
def table_view(table: Table) -> TableView:
    return TableView(TOPIC, str(table.token), table.vector)


def trimmed(index: Index, offset: int) -> Index:
    kept = tuple(one for one in index.entries if one.end > offset)
    return index._replace(log_start=offset, entries=kept)


def swapped(rules: Rules, index: Index, swap: Swap) -> Index | None:
    """The index after the Swap, None when it is refused."""
    if not index.alive:
        return None
    places = rules.swap_fits(index.entries, swap)
    if places is None:
        return None
    made = Stored(swap.file, index.entries[places[0]].start, swap.end)
    entries = (*index.entries[: places[0]], made, *index.entries[places[-1] + 1 :])
    return index._replace(entries=entries)


def land(rules: Rules, world: World, request: Request) -> tuple[World, bool]:
    """What a request does when it reaches its service, and whether it was accepted."""
    match request:
        case Put(file=file):
            return world._replace(files=world.files | {stored(file)}), True
        case Cas(version=version, record=record):
            if rules.checks_versions and version != (world.version if world.record else 0):
                return world, False
            if record is not None and record.holder == LEASE.holder:
                record = replace(record, holder=str(world.version + 1))  # a name of its own
            return world._replace(record=record, version=world.version + 1), True
        case Commit(token=token, file=file, after=after, id=name):
            fits = rules.commit_fits
            if not (fits(world.table, request) if fits else token == world.table.token):
                return world, False
            ids = world.table.ids | {name}
            files = (*world.table.files, stored(file))
            return world._replace(table=Table(world.table.token + 1, after, files, ids)), True
        case Move(token=token):
            if token != world.table.token:
                return world, False
            return world._replace(table=world.table._replace(token=token + 1)), True
        case Append(swap=swap):
            index = swapped(rules, world.stream, swap)
            return (world, False) if index is None else (world._replace(stream=index), True)


def begin(entries: int, *, workers: int, budget: Budget) -> World:
    """A stream of so many WAL entries, of two offsets each, and an empty table."""
    made = tuple(wal(at, start=2 * at, end=2 * at + 2) for at in range(entries))
    return World(
        record=None,
        version=0,
        table=Table(0, None, ()),
        stream=Index(True, 0, 2 * entries, made),
        files=frozenset(made),
        workers=(Worker(),) * workers,
        flying=frozenset(),
        sweep=None,
        budget=budget,
    )


def is_wal(one: Stored) -> bool:
    return isinstance(one.name, WalName)


def data_file(key: str, *, start: int, end: int, kind: FileKind = FileKind.PARQUET) -> DataFile:
    return DataFile(FileName(kind, key), start, end, end - start, 1, 0)
