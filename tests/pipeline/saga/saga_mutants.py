"""Known ways to get the saga wrong, each with the smallest setup in which the search sees it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from msgspec import structs
from tests.pipeline.saga.saga_state import (
    Budget,
    Commit,
    Exchange,
    Index,
    Planned,
    Rules,
    Setup,
    Stored,
    Table,
    entry_of,
    plan_entries,
)

from lakelog.domain.events import Swap
from lakelog.pipeline.saga.steps import (
    AppendSwap,
    CommitTable,
    LeaseLost,
    Mark,
    MoveTable,
    Observation,
    ReplaceFiles,
    Step,
    TaskBlocked,
    WriteFile,
    next_step,
)
from lakelog.pipeline.saga.task_record import LeaseId, TaskRecord, TaskState
from lakelog.pipeline.saga.values import Fact, FileWritten, InputNotFound, TaskTarget
from lakelog.streams.objects import FileKind, FileName, digest

Decide = Callable[[Observation, LeaseId, Fact | None, Table], Step]


@dataclass(frozen=True)
class Mutant:
    """A wrong saga, and where it shows."""

    name: str
    rules: Rules
    setup: Setup


def _real(seen: Observation, held: LeaseId, fact: Fact | None) -> Step:
    return next_step(seen, held=held, fact=fact)


def swap_first(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    if isinstance(step, CommitTable | ReplaceFiles) and seen.record is not None:
        committed = structs.replace(seen.record, state=TaskState.ICEBERG_COMMITTED)
        swap = _real(replace(seen, record=committed), held, fact)
        return swap if isinstance(swap, AppendSwap) else step
    return step


def search_for_the_id(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    record = seen.record
    if (
        record is None
        or record.state is not TaskState.PARQUET_WRITTEN
        or isinstance(step, LeaseLost)
    ):
        return step
    assert record.file is not None
    if record.name in table.ids:
        return Mark(structs.replace(record, state=TaskState.ICEBERG_COMMITTED), "mark committed")
    return CommitTable(record, record.file, str(table.token), table.vector, record.end)


def never_look_at_the_vector(
    seen: Observation, held: LeaseId, fact: Fact | None, table: Table
) -> Step:
    return search_for_the_id(seen, held, fact, table._replace(ids=frozenset()))


def own_file_after_written(
    seen: Observation, held: LeaseId, fact: Fact | None, table: Table
) -> Step:
    step = _real(seen, held, fact)
    if not isinstance(step, CommitTable) or seen.stream is None:
        return step
    record = step.record
    if isinstance(fact, FileWritten):
        return replace(step, file=fact.file)
    assert record.file is not None
    if record.file.name.key.split("-")[2] == str(record.epoch):
        return step
    return WriteFile(record, seen.stream.overlapping(start=record.start, end=record.end))


def close_without_moving(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    if isinstance(step, MoveTable) and seen.record is not None:
        return Mark(structs.replace(seen.record, state=TaskState.CLOSED, file=None), "mark closed")
    return step


def close_when_unsure(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    if isinstance(fact, InputNotFound) and isinstance(step, CommitTable | ReplaceFiles | Mark):
        return Mark(structs.replace(step.record, state=TaskState.CLOSED, file=None), "mark closed")
    return step


def whoever_holds_it(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    record = seen.record
    if record is None:
        return LeaseLost()
    if isinstance(fact, FileWritten) and record.state is TaskState.CREATED:
        return Mark(
            structs.replace(record, state=TaskState.PARQUET_WRITTEN, file=fact.file), "mark written"
        )
    return _real(seen, LeaseId(record.epoch, record.holder), fact)


def epoch_alone(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    record = seen.record
    if record is not None and record.epoch == held.epoch:
        held = LeaseId(record.epoch, record.holder)
    return _real(seen, held, fact)


def give_up_on_refusal(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    """The swap is thought to be hopeless once trimming took a part: plan the rest anew."""
    step = _real(seen, held, fact)
    if not isinstance(step, AppendSwap):
        return step
    assert seen.stream is not None
    assert seen.record is not None
    if seen.stream.first_start == seen.record.start:
        return step
    return Mark(structs.replace(seen.record, state=TaskState.CLOSED, file=None), "mark closed")


def always_replace(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    record = seen.record
    if (
        record is None
        or record.state is not TaskState.PARQUET_WRITTEN
        or isinstance(step, LeaseLost)
    ):
        return step
    assert record.file is not None
    return ReplaceFiles(record, record.file, str(table.token), record.inputs)


def stuck_without_inputs(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    step = _real(seen, held, fact)
    if isinstance(step, Mark) and step.effect == "mark aborted":
        return TaskBlocked("an input is gone")
    return step


def empty_is_missing(seen: Observation, held: LeaseId, fact: Fact | None, table: Table) -> Step:
    """A file without rows is looked for in the table, which will never name it."""
    record = seen.record
    if record is not None and record.file is not None:
        seen = replace(
            seen, record=structs.replace(record, file=structs.replace(record.file, row_count=1))
        )
    return _real(seen, held, fact)


def exact_swap(entries: tuple[Stored, ...], swap: Swap) -> range | None:
    places = [at for at, one in enumerate(entries) if digest(one.name) in swap.replaces]
    if not places or (entries[places[0]].start, entries[places[-1]].end) != (swap.start, swap.end):
        return None
    return range(places[0], places[-1] + 1)


def vector_alone(table: Table, commit: Commit | Exchange) -> bool:
    return isinstance(commit, Exchange) or table.vector == commit.before


def _names(file: Stored, record: TaskRecord | None) -> bool:
    assert isinstance(file.name, FileName)
    return record is not None and record.file is not None and record.file.name == file.name


def named_unless_aborted(file: Stored, record: TaskRecord | None) -> bool:
    if record is not None and record.state is TaskState.ABORTED:
        return False
    return Rules().may_be_named(file, record)


def past_segments(index: Index, table: Table, setup: Setup, wiped: bool) -> Planned:
    """Segments are none of the table's business."""
    left = tuple(one for one in index.entries if entry_of(one).kind is not FileKind.SEGMENT)
    return plan_entries(index._replace(entries=left), table, setup)


def _small(**budget: int) -> Setup:
    return Setup(entries=1, pieces_max=1, budget=Budget(**budget), states_max=300_000)


UNSURE = InputNotFound("the commit did not answer")

_TWO_FILES = Setup(entries=2, files=2, replaces=TaskTarget.REWRITE, states_max=300_000)


def _rewrite(**budget: int) -> Setup:
    return replace(_TWO_FILES, budget=Budget(**budget))


REPLACING_MUTANTS = (
    Mutant("files swapped before they are committed", Rules(next_step=swap_first), _rewrite()),
    Mutant(
        "files replaced without a look at those that are there",
        Rules(next_step=always_replace),
        _rewrite(rival=1),
    ),
    Mutant(
        "files replaced on whatever snapshot there is",
        Rules(commit_fits=lambda _table, _commit: True),
        _rewrite(rival=1, abort=1),
    ),
    Mutant(
        "aborted replacement closed before the table moved",
        Rules(next_step=close_without_moving),
        _rewrite(rival=1, abort=1),
    ),
    Mutant(
        "an unknown replacement is taken for a failed one",
        Rules(next_step=close_when_unsure, unknown_fact=UNSURE),
        _rewrite(lost=1),
    ),
    Mutant(
        "a task whose input the table let go waits for it",
        Rules(next_step=stuck_without_inputs),
        _rewrite(trim=1, retire=1),
    ),
    Mutant(
        "a file without rows is looked for in the table",
        Rules(next_step=empty_is_missing),
        Setup(entries=1, files=1, replaces=TaskTarget.CLEAN, states_max=300_000),
    ),
)
"""Those of tasks that replace files of the table."""

_SEGMENT = Setup(entries=2, pieces_max=1, quarantine=((0, 2),), states_max=300_000)

MUTANTS = (
    *REPLACING_MUTANTS,
    Mutant("what follows a segment is appended before it", Rules(plan=past_segments), _SEGMENT),
    Mutant("swap before commit", Rules(next_step=swap_first), _small()),
    Mutant(
        "commit on whatever snapshot there is",
        Rules(commit_fits=lambda _table, _commit: True),
        _small(rival=1),
    ),
    Mutant(
        "the catalog looks again by itself and commits where the vector fits",
        Rules(commit_fits=vector_alone),
        _small(rival=1, abort=1),
    ),
    Mutant(
        "commit without a look at the vector",
        Rules(next_step=never_look_at_the_vector),
        _small(rival=1),
    ),
    Mutant(
        "commit id searched in the snapshots",
        Rules(next_step=search_for_the_id),
        replace(_small(crash=1), tracks_ids=True),
    ),
    Mutant(
        "a successor commits a file of its own after PARQUET_WRITTEN",
        Rules(next_step=own_file_after_written),
        _small(rival=1),
    ),
    Mutant(
        "aborted file deleted at once",
        Rules(may_be_named=named_unless_aborted),
        _small(rival=1, abort=1),
    ),
    Mutant(
        "aborted task closed before the table moved",
        Rules(next_step=close_without_moving),
        _small(rival=1, abort=1),
    ),
    Mutant(
        "an unknown commit is taken for a failed one",
        Rules(next_step=close_when_unsure, unknown_fact=UNSURE),
        _small(lost=1),
    ),
    Mutant("no lease epoch", Rules(next_step=whoever_holds_it, fences=False), _small(rival=1)),
    Mutant(
        "lease known by its epoch alone",
        Rules(next_step=epoch_alone, fences=False),
        replace(_small(rival=1, drop=1), workers=3),
    ),
    Mutant("records put without a version", Rules(checks_versions=False), _small(rival=1)),
    Mutant(
        "the record is read before the table",
        Rules(looks=("record", "table", "index")),
        _small(rival=1, abort=1),
    ),
    Mutant(
        "the planner reads the record last",
        Rules(plan_looks=("table", "index", "record")),
        _small(),
    ),
    Mutant("files of a running attempt are swept", Rules(may_be_named=_names), _small()),
    Mutant(
        "a swap after trimming must match exactly",
        Rules(swap_fits=exact_swap),
        Setup(entries=2, pieces_max=2, budget=Budget(trim=1)),
    ),
    Mutant(
        "a task that was trimmed after its commit is planned anew",
        Rules(next_step=give_up_on_refusal),
        Setup(entries=2, pieces_max=2, budget=Budget(trim=1)),
    ),
)
