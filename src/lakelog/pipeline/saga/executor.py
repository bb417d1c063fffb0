"""Takes the tasks of one topic on: look, decide, do one step each, look again.

What to do is `saga.next_step`'s to say; here it is done. All table commits that one look led to are
one append, swaps and changes of records run beside each other. A step that was refused, or whose
outcome is unknown, leads to another look, as a step that was done does. What cannot go on now is
reported and left as it is: the next round finds it, or somebody else's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from lakelog.catalog.port import (
    Advance,
    DataFileFacts,
    Replacement,
)
from lakelog.catalog.port import TableView as CatalogView
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown
from lakelog.pipeline.ports import LimitedPorts
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.saga.observe import LeasedTask, ObservedTask, observe
from lakelog.pipeline.saga.steps import (
    AppendSwap,
    CommitTable,
    Finished,
    Forget,
    LeaseLost,
    Mark,
    MoveTable,
    ReplaceFiles,
    Step,
    TaskBlocked,
    WriteFile,
    abandon,
    next_step,
)
from lakelog.pipeline.saga.task_record import is_open, renew
from lakelog.pipeline.saga.values import DataFile, TableMoved, TaskTarget
from lakelog.records.table_schema import ColumnFacts

T = TypeVar("T")
StillOpen = list[LeasedTask]
"""The tasks that are looked at again at once."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    """A step was done, and this was the reply."""

    reply: T


class TaskExecutor:
    """Takes held tasks on, in one round."""

    def __init__(self, ports: LimitedPorts, counters: RoundCounters) -> None:
        self._ports = ports
        self._counters = counters

    async def finish(self, topic: str, leased_tasks: Sequence[LeasedTask]) -> None:
        """Take tasks of one topic as far as they come without an engine."""
        left = list(leased_tasks)
        for _ in range(self._ports.options.observations_max):
            if not left:
                return
            try:
                observed = await observe(self._ports, topic, left)
            except Failure as error:
                self._counters.problem(_said("looking", error), topic=topic)
                return
            left = await self._do(topic, observed)
        for leased in left:
            record = leased.record
            self._problem(leased, f"{record.name} is {record.state.value} after many looks")

    async def _do(self, topic: str, observed: Sequence[ObservedTask]) -> StillOpen:
        """One step for each task, all of them at once."""
        commits: list[tuple[ObservedTask, CommitTable]] = []
        replaces: list[tuple[ObservedTask, ReplaceFiles]] = []
        moves: list[tuple[ObservedTask, MoveTable]] = []
        works: list[Coroutine[Any, Any, StillOpen]] = []
        for task in observed:
            step = _step(task)
            if isinstance(step, CommitTable):
                commits.append((task, step))
            elif isinstance(step, MoveTable):
                moves.append((task, step))
            elif isinstance(step, ReplaceFiles):
                replaces.append((task, step))
            else:
                works.append(self._do_alone(task, step))
        if commits:
            works.append(self._commit(topic, commits))
        if replaces:
            works.append(self._replace(topic, replaces))
        if moves:
            works.append(self._move(topic, moves))
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
        return [leased for work in running for leased in work.result()]

    async def _do_alone(self, observed: ObservedTask, step: Step) -> StillOpen:
        match step:
            case Mark():
                return await self._mark(observed, step)
            case AppendSwap():
                return await self._swap(observed, step)
            case Forget():
                return await self._forget(observed)
            case TaskBlocked(reason=reason):
                return await self._let_go(observed, reason)
            case Finished() | LeaseLost() | WriteFile():
                return []  # at its end, another's, or waiting for an engine
            case _:
                raise AssertionError(step)

    async def _mark(self, observed: ObservedTask, step: Mark) -> StillOpen:
        leased = observed.leased
        put = self._ports.records.put
        done = await self._try(
            step.effect, [leased], lambda: put(step.record, version=observed.version)
        )
        if not isinstance(done, _Done):
            return done
        assert observed.observation.record is not None, "a record that was marked was read"
        self._counters.moved(observed.observation.record, step.record)
        leased.put(step.record, done.reply)
        leased.fact = None
        if is_open(step.record):
            return [leased]
        self._ports.pauses.end(leased.stream)
        return []

    async def _swap(self, observed: ObservedTask, step: AppendSwap) -> StillOpen:
        leased = observed.leased
        refusals = leased.unknown
        done = await self._try(step.effect, [leased], lambda: self._ports.swap(step.swap))
        if not isinstance(done, _Done):
            return done
        if not done.reply.accepted:  # the index moved on: the next look shows how, or nothing does
            leased.unknown = refusals
            again = self._may_repeat(leased, f"{step.effect}: {done.reply.reason}")
            return [leased] if again else []
        return [leased]

    async def _forget(self, observed: ObservedTask) -> StillOpen:
        leased = observed.leased
        delete = self._ports.records.delete
        done = await self._try(
            Forget().effect, [leased], lambda: delete(leased.stream, version=observed.version)
        )
        if not isinstance(done, _Done):
            return done
        self._counters.forgotten += 1
        return []

    async def _let_go(self, observed: ObservedTask, reason: str) -> StillOpen:
        """Report what cannot be, and let whoever comes next take the task at once."""
        self._problem(observed.leased, reason)
        self._ports.pauses.add(observed.leased.stream)
        record = observed.observation.record
        if record is not None:
            try:
                await self._ports.records.put(
                    renew(record, lease_end_ms=0), version=observed.version
                )
            except Failure:
                return []  # the lease runs out by itself
        return []

    async def _commit(
        self, topic: str, commits: Sequence[tuple[ObservedTask, CommitTable]]
    ) -> StillOpen:
        """One commit for all: what of it the vector does not admit, the next look finds."""
        (first, step), *_ = commits
        advances = [advance_of(commit) for _, commit in commits]
        leased_tasks = [task.leased for task, _ in commits]
        done = await self._try(
            step.effect,
            leased_tasks,
            lambda: self._ports.change_table(
                lambda tables: tables.append(
                    self._ports.table_name(topic),
                    advances,
                    topic_id=first.leased.record.topic_id.hex(),
                    commit_id=step.record.name,
                    expect=step.token,
                )
            ),
        )
        return done if not isinstance(done, _Done) else leased_tasks

    async def _replace(
        self, topic: str, replaces: Sequence[tuple[ObservedTask, ReplaceFiles]]
    ) -> StillOpen:
        """One commit for each, every one on the snapshot that the one before it made.

        That is as good as the snapshot looked at: an abort since then has moved neither.
        """
        token = replaces[0][1].token
        going: StillOpen = []
        for number, (task, step) in enumerate(replaces):
            done = await self._try(
                step.effect, [task.leased], partial(self._replace_one, topic, step, token)
            )
            if not isinstance(done, _Done):
                # The snapshot that the others were to follow is unknown: they are looked at again.
                return [*going, *done, *(other.leased for other, _ in replaces[number + 1 :])]
            token = done.reply.token
            going.append(task.leased)
        return going

    async def _replace_one(self, topic: str, step: ReplaceFiles, token: str) -> CatalogView:
        return await self._ports.change_table(
            lambda tables: tables.replace(
                self._ports.table_name(topic),
                replacement_of(step),
                topic_id=step.record.topic_id.hex(),
                commit_id=step.record.name,
                expect=token,
            )
        )

    async def _move(self, topic: str, moves: Sequence[tuple[ObservedTask, MoveTable]]) -> StillOpen:
        """One move for all: each of their records was read as ABORTED before it."""
        (first, step), *_ = moves
        leased_tasks = [task.leased for task, _ in moves]
        done = await self._try(
            step.effect,
            leased_tasks,
            lambda: self._ports.change_table(
                lambda tables: tables.move(
                    self._ports.table_name(topic),
                    topic_id=first.leased.record.topic_id.hex(),
                    expect=step.token,
                )
            ),
        )
        if not isinstance(done, _Done):
            return done
        for leased in leased_tasks:
            leased.fact = TableMoved()
        return leased_tasks

    async def _try(
        self, effect: str, leased_tasks: Sequence[LeasedTask], action: Callable[[], Awaitable[T]]
    ) -> _Done[T] | StillOpen:
        """Do a step; when it was not done for certain, who of its tasks is looked at again."""
        try:
            reply = await self._ports.effects.do(effect, action)
        except Conflict:
            return list(leased_tasks)  # somebody was faster: the next look shows what is true now
        except OutcomeUnknown as error:
            # It may have been done or still come: only a look can tell, and not for ever.
            said = _said(effect, error)
            return [leased for leased in leased_tasks if self._may_repeat(leased, said)]
        except Failure as error:
            for leased in leased_tasks:
                self._problem(leased, _said(effect, error))
            return []
        for leased in leased_tasks:
            leased.unknown = 0
        return _Done(reply)

    def _may_repeat(self, leased: LeasedTask, said: str) -> bool:
        leased.unknown += 1
        if leased.unknown < self._ports.options.failures_max:
            return True
        self._problem(leased, said)
        return False

    def _problem(self, leased: LeasedTask, reason: str) -> None:
        record = leased.record
        self._counters.problem(reason, topic=record.topic, partition=record.partition)


def _step(observed: ObservedTask) -> Step:
    """What is to be done next, also where that is to give up."""
    leased = observed.leased
    step = next_step(observed.observation, held=leased.held, fact=leased.fact)
    if isinstance(step, WriteFile) and leased.given_up:
        return abandon(step.record, leased.given_up) or step
    return step


def _said(doing: str, error: Failure) -> str:
    return f"{doing}: {type(error).__name__}: {error}"


def advance_of(step: CommitTable) -> Advance:
    """What the catalog is asked for, so that it judges the file as the saga did."""
    record = step.record
    started = record.expected is not None
    return Advance(
        partition=record.partition,
        start=record.expected if record.expected is not None else record.start,
        end=record.end,
        files=files_of(step.file, record.partition),
        at_log_start=not started,
    )


def replacement_of(step: ReplaceFiles) -> Replacement:
    """What the catalog is asked for; the file's rows may be fewer than those of the inputs."""
    added = files_of(step.file, step.record.partition)
    return Replacement(
        partition=step.record.partition,
        removed=step.inputs,
        added=added,
        drops_rows=step.record.target is TaskTarget.CLEAN or not added,
    )


def files_of(file: DataFile, partition: int) -> tuple[DataFileFacts, ...]:
    """The file as a table names it: not at all when it holds no row."""
    facts = file.facts
    assert facts is not None, file
    if not facts.row_count:
        return ()
    offset_first, offset_upper = _bounds(facts.columns, "offset")
    timestamp_min_us, timestamp_max_us = _bounds(facts.columns, "timestamp")
    file_facts = DataFileFacts(
        key=file.key,
        partition=partition,
        offset_first=offset_first,
        offset_end=offset_upper + 1,
        row_count=facts.row_count,
        size_bytes=facts.size_bytes,
        timestamp_min_us=timestamp_min_us,
        timestamp_max_us=timestamp_max_us,
        column_sizes=tuple((column.path, column.size_bytes) for column in facts.columns),
        row_group_starts=tuple(group.byte_start for group in facts.row_groups),
    )
    return (file_facts,)


def _bounds(columns: tuple[ColumnFacts, ...], path: str) -> tuple[int, int]:
    (column,) = (column for column in columns if column.path == path)
    assert column.lower is not None, column
    assert column.upper is not None, column
    return column.lower, column.upper
