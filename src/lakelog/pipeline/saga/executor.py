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
    TaskStuck,
    WriteFile,
    abandon,
    next_step,
)
from lakelog.pipeline.saga.task_record import is_open, renew
from lakelog.pipeline.saga.values import DataFile, TableMoved, TaskTarget
from lakelog.records.table_facts import ColumnFacts

T = TypeVar("T")
StillOpen = list[LeasedTask]
"""The tasks that are looked at again at once."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    """A step was done, and this was the reply."""

    reply: T


class TaskExecutor:
    """Takes held tasks on, in one round."""

    def __init__(self, shop: LimitedPorts, tally: RoundCounters) -> None:
        self._shop = shop
        self._tally = tally

    async def finish(self, topic: str, holdings: Sequence[LeasedTask]) -> None:
        """Take tasks of one topic as far as they come without an engine."""
        left = list(holdings)
        for _ in range(self._shop.options.looks_max):
            if not left:
                return
            try:
                looked = await observe(self._shop, topic, left)
            except Failure as error:
                self._tally.hinder(_said("looking", error), topic=topic)
                return
            left = await self._do(topic, looked)
        for one in left:
            self._hinder(one, f"{one.record.name} is {one.record.state.value} after many looks")

    async def _do(self, topic: str, looked: Sequence[ObservedTask]) -> StillOpen:
        """One step for each task, all of them at once."""
        commits: list[tuple[ObservedTask, CommitTable]] = []
        replaces: list[tuple[ObservedTask, ReplaceFiles]] = []
        moves: list[tuple[ObservedTask, MoveTable]] = []
        works: list[Coroutine[Any, Any, StillOpen]] = []
        for one in looked:
            step = _step(one)
            if isinstance(step, CommitTable):
                commits.append((one, step))
            elif isinstance(step, MoveTable):
                moves.append((one, step))
            elif isinstance(step, ReplaceFiles):
                replaces.append((one, step))
            else:
                works.append(self._do_alone(one, step))
        if commits:
            works.append(self._commit(topic, commits))
        if replaces:
            works.append(self._replace(topic, replaces))
        if moves:
            works.append(self._move(topic, moves))
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(work) for work in works]
        return [holding for one in running for holding in one.result()]

    async def _do_alone(self, looked: ObservedTask, step: Step) -> StillOpen:
        match step:
            case Mark():
                return await self._mark(looked, step)
            case AppendSwap():
                return await self._swap(looked, step)
            case Forget():
                return await self._forget(looked)
            case TaskStuck(reason=reason):
                return await self._let_go(looked, reason)
            case Finished() | LeaseLost() | WriteFile():
                return []  # at its end, another's, or waiting for an engine
            case _:
                raise AssertionError(step)

    async def _mark(self, looked: ObservedTask, step: Mark) -> StillOpen:
        holding = looked.holding
        put = self._shop.records.put
        done = await self._try(
            step.effect, [holding], lambda: put(step.record, version=looked.version)
        )
        if not isinstance(done, _Done):
            return done
        assert looked.seen.record is not None, "a record that was marked was read"
        self._tally.moved(looked.seen.record, step.record)
        holding.put(step.record, done.reply)
        holding.fact = None
        if is_open(step.record):
            return [holding]
        self._shop.pauses.end(holding.stream)
        return []

    async def _swap(self, looked: ObservedTask, step: AppendSwap) -> StillOpen:
        holding = looked.holding
        refusals = holding.unknown
        done = await self._try(step.effect, [holding], lambda: self._shop.swap(step.swap))
        if not isinstance(done, _Done):
            return done
        if not done.reply.accepted:  # the index moved on: the next look shows how, or nothing does
            holding.unknown = refusals
            again = self._may_repeat(holding, f"{step.effect}: {done.reply.reason}")
            return [holding] if again else []
        return [holding]

    async def _forget(self, looked: ObservedTask) -> StillOpen:
        holding = looked.holding
        delete = self._shop.records.delete
        done = await self._try(
            Forget().effect, [holding], lambda: delete(holding.stream, version=looked.version)
        )
        if not isinstance(done, _Done):
            return done
        self._tally.forgotten += 1
        return []

    async def _let_go(self, looked: ObservedTask, reason: str) -> StillOpen:
        """Report what cannot be, and let whoever comes next take the task at once."""
        self._hinder(looked.holding, reason)
        self._shop.pauses.add(looked.holding.stream)
        record = looked.seen.record
        if record is not None:
            try:
                await self._shop.records.put(renew(record, lease_end_ms=0), version=looked.version)
            except Failure:
                return []  # the lease runs out by itself
        return []

    async def _commit(
        self, topic: str, commits: Sequence[tuple[ObservedTask, CommitTable]]
    ) -> StillOpen:
        """One commit for all: what of it the vector does not admit, the next look finds."""
        (first, step), *_ = commits
        advances = [advance_of(each) for _, each in commits]
        holdings = [one.holding for one, _ in commits]
        done = await self._try(
            step.effect,
            holdings,
            lambda: self._shop.change_table(
                lambda tables: tables.append(
                    self._shop.table_name(topic),
                    advances,
                    topic_id=first.holding.record.topic_id.hex(),
                    commit_id=step.record.name,
                    expect=step.token,
                )
            ),
        )
        return done if not isinstance(done, _Done) else holdings

    async def _replace(
        self, topic: str, replaces: Sequence[tuple[ObservedTask, ReplaceFiles]]
    ) -> StillOpen:
        """One commit for each, every one on the snapshot that the one before it made.

        That is as good as the snapshot looked at: an abort since then has moved neither.
        """
        token = replaces[0][1].token
        going: StillOpen = []
        for number, (one, step) in enumerate(replaces):
            done = await self._try(
                step.effect, [one.holding], partial(self._replace_one, topic, step, token)
            )
            if not isinstance(done, _Done):
                return [*going, *done, *(other.holding for other, _ in replaces[number + 1 :])]
            token = done.reply.token
            going.append(one.holding)
        return going

    async def _replace_one(self, topic: str, step: ReplaceFiles, token: str) -> CatalogView:
        return await self._shop.change_table(
            lambda tables: tables.replace(
                self._shop.table_name(topic),
                replacement_of(step),
                topic_id=step.record.topic_id.hex(),
                commit_id=step.record.name,
                expect=token,
            )
        )

    async def _move(self, topic: str, moves: Sequence[tuple[ObservedTask, MoveTable]]) -> StillOpen:
        """One move for all: each of their records was read as ABORTED before it."""
        (first, step), *_ = moves
        holdings = [one.holding for one, _ in moves]
        done = await self._try(
            step.effect,
            holdings,
            lambda: self._shop.change_table(
                lambda tables: tables.move(
                    self._shop.table_name(topic),
                    topic_id=first.holding.record.topic_id.hex(),
                    expect=step.token,
                )
            ),
        )
        if not isinstance(done, _Done):
            return done
        for one in holdings:
            one.fact = TableMoved()
        return holdings

    async def _try(
        self, effect: str, holdings: Sequence[LeasedTask], action: Callable[[], Awaitable[T]]
    ) -> _Done[T] | StillOpen:
        """Do a step; when it was not done for certain, who of its tasks is looked at again."""
        try:
            reply = await self._shop.effects.do(effect, action)
        except Conflict:
            return list(holdings)
        except OutcomeUnknown as error:
            said = _said(effect, error)
            return [one for one in holdings if self._may_repeat(one, said)]
        except Failure as error:
            for one in holdings:
                self._hinder(one, _said(effect, error))
            return []
        for one in holdings:
            one.unknown = 0
        return _Done(reply)

    def _may_repeat(self, holding: LeasedTask, said: str) -> bool:
        holding.unknown += 1
        if holding.unknown < self._shop.options.failures_max:
            return True
        self._hinder(holding, said)
        return False

    def _hinder(self, holding: LeasedTask, reason: str) -> None:
        record = holding.record
        self._tally.hinder(reason, topic=record.topic, partition=record.partition)


def _step(looked: ObservedTask) -> Step:
    """What is to be done next, also where that is to give up."""
    holding = looked.holding
    step = next_step(looked.seen, held=holding.held, fact=holding.fact)
    if isinstance(step, WriteFile) and holding.given_up:
        return abandon(step.record, holding.given_up) or step
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
    found = DataFileFacts(
        key=file.name.key,
        partition=partition,
        offset_first=offset_first,
        offset_end=offset_upper + 1,
        row_count=facts.row_count,
        size_bytes=facts.size_bytes,
        timestamp_min_us=timestamp_min_us,
        timestamp_max_us=timestamp_max_us,
        column_sizes=tuple((one.path, one.size_bytes) for one in facts.columns),
        row_group_starts=tuple(group.byte_start for group in facts.row_groups),
    )
    return (found,)


def _bounds(columns: tuple[ColumnFacts, ...], path: str) -> tuple[int, int]:
    (column,) = (one for one in columns if one.path == path)
    assert column.lower is not None, column
    assert column.upper is not None, column
    return column.lower, column.upper
