"""Everything that can happen next to the saga: workers, faults, the sweeper.

A worker is always about to look at something or to send one request; between any two of these
everything else may happen. A request whose answer is lost flies on and lands later, or never.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.pipeline.saga.saga_services import land, trimmed
from tests.pipeline.saga.saga_state import (
    EMPTY,
    LEASE,
    Append,
    Cas,
    Commit,
    Exchange,
    Move,
    Put,
    Request,
    Rules,
    SagaState,
    Setup,
    Worker,
    data_file,
    is_wal,
    stream_view,
    table_view,
)

from lakelog.pipeline.planning.wal_ranges import BackfillDue, PendingSwap, Problem
from lakelog.pipeline.saga.steps import (
    AppendSwap,
    CommitTable,
    Finished,
    Forget,
    LeaseLost,
    Mark,
    MoveTable,
    Observation,
    ReplaceFiles,
    TaskBlocked,
    WriteFile,
    abandon,
)
from lakelog.pipeline.saga.task_record import (
    TaskRecord,
    claim,
    create,
    is_open,
    lease_of,
    output_key,
)
from lakelog.pipeline.saga.values import (
    FileWritten,
    InputNotFound,
    PlannedTask,
    TableMoved,
    TaskTarget,
)


class Impossible(Exception):  # noqa: N818 - it is what happened, and no error of the caller
    """A worker found what cannot be."""


@dataclass(frozen=True)
class Moves:
    """What can happen under these rules in a search of this size."""

    setup: Setup
    rules: Rules

    def successors(self, state: SagaState) -> Iterator[tuple[str, SagaState]]:
        done = set()
        for place, worker in enumerate(state.workers):
            if worker in done:
                continue
            done.add(worker)
            for action, reached, became in self._worker(state, worker):
                workers = (*state.workers[:place], became, *state.workers[place + 1 :])
                yield action, reached._replace(workers=workers)
        yield from self._environment(state)
        yield from self._sweeper(state)

    def settled(self, state: SagaState) -> SagaState:
        """The state with what can no longer matter left out, so that it is visited once.

        A request on an old version or token is refused whenever it arrives, and changes nothing but
        its sender's knowledge; a holder of an old epoch that asked for nothing yet will stop.
        """
        workers = tuple(sorted((self._heard(state, one) for one in state.workers), key=hash))
        flying = frozenset(one for one in state.flying if not self._is_stale(state, one))
        ids = state.table.ids if self.setup.tracks_ids else frozenset()
        table = state.table._replace(ids=ids)
        return state._replace(workers=workers, flying=flying, table=table)

    def _is_stale(self, state: SagaState, request: Request) -> bool:
        match request:
            case Cas(version=version):
                current = state.version if state.record else 0
                return self.rules.checks_versions and version not in (0, current)
            case Commit(token=token) | Exchange(token=token) | Move(token=token):
                return self.rules.commit_fits is None and token != state.table.token
            case _:
                return False

    def _heard(self, state: SagaState, worker: Worker) -> Worker:
        if worker.request is not None and self._is_stale(state, worker.request):
            worker = self._told(worker, worker.request, None)
        if worker.request is not None or not self.rules.checks_versions:
            return worker
        if worker.at.startswith("plan"):
            doomed = worker.record is not None and worker.version != state.version
            return Worker() if doomed else worker  # what was absent may be absent again
        held = lease_of(state.record) if state.record else None
        fenced = self.rules.fences and worker.record is None and worker.held != held
        return Worker() if fenced and worker.at != "idle" else worker

    def _wiped(self, state: SagaState) -> bool:
        """Whether the record was lost: epochs begin anew, and the table may be ahead."""
        return state.budget.wipe < self.setup.budget.wipe

    def _attempt(self, state: SagaState, worker: Worker) -> str:
        """What is chance outside of a model: another name for each attempt."""
        empty = EMPTY if state.record and state.record.target is TaskTarget.CLEAN else ""
        return empty + "ab"[worker.attempt] + "x" * self._wiped(state)

    def _environment(self, state: SagaState) -> Iterator[tuple[str, SagaState]]:
        budget, index = state.budget, state.stream
        for request in state.flying:
            rest = state._replace(flying=state.flying - {request})
            yield f"{_name(request)} lands late", land(self.rules, rest, request)[0]
            yield f"{_name(request)} never lands", rest
        if budget.trim and index.alive:
            spent = state._replace(budget=budget._replace(trim=budget.trim - 1))
            for offset in range(index.log_start + 1, index.head + 1):
                yield f"trim to {offset}", spent._replace(stream=trimmed(index, offset))
        passed = [one for one in state.table.files if one.end <= index.log_start]
        if budget.retire and index.alive and passed:
            left = state.table.files[len(passed) :]
            table = state.table._replace(token=state.table.token + 1, files=left)
            spent = state._replace(budget=budget._replace(retire=budget.retire - 1))
            yield "the table lets go of old files", spent._replace(table=table)
        if budget.drop and index.alive:
            gone = index._replace(alive=False, entries=())
            yield "drop", state._replace(stream=gone, budget=budget._replace(drop=0))
        if budget.foreign:
            spent = state._replace(budget=budget._replace(foreign=budget.foreign - 1))
            table = state.table._replace(token=state.table.token + 1)
            yield "another commits", spent._replace(table=table)
        resting = not state.flying and all(one.at == "idle" for one in state.workers)
        if budget.wipe and resting and state.record is not None:
            yield "record lost", state._replace(record=None, budget=budget._replace(wipe=0))
        if state.table.ids:
            yield "snapshots expire", state._replace(table=state.table._replace(ids=frozenset()))

    def _sweeper(self, state: SagaState) -> Iterator[tuple[str, SagaState]]:
        named = {one.name for one in state.stream.entries}
        if state.sweep is None:
            for file in state.files:
                if is_wal(file) and file.name not in named:
                    yield "WAL object swept", state._replace(files=state.files - {file})
                elif not is_wal(file) and not self.rules.may_be_named(file, state.record):
                    yield "sweeper saw the record", state._replace(sweep=("table", file))
            return
        at, file = state.sweep
        idle = state._replace(sweep=None)
        if at == "table":
            named |= {one.name for one in state.table.files}
            yield (
                "sweeper saw the names",
                (idle if file.name in named else idle._replace(sweep=("delete", file))),
            )
        else:
            yield "sweeper deletes", idle._replace(files=state.files - {file})

    def _worker(self, state: SagaState, worker: Worker) -> Iterator[tuple[str, SagaState, Worker]]:
        budget = state.budget
        if worker.at != "idle" and budget.crash:
            spent = state._replace(budget=budget._replace(crash=budget.crash - 1))
            yield "crash", spent, Worker()
        if worker.request is not None:
            yield from self._act(state, worker)
        elif worker.at == "idle":
            yield from self._look(state, Worker(at="plan 0"))
        else:
            yield from self._look(state, worker)

    def _look(self, state: SagaState, worker: Worker) -> Iterator[tuple[str, SagaState, Worker]]:
        phase, place = worker.at.split()
        looks = self.rules.plan_looks if phase == "plan" else self.rules.looks
        what = looks[int(place)]
        match what:
            case "table":
                worker = worker._replace(table=state.table)
            case "index":
                worker = worker._replace(stream=state.stream)
            case _:
                worker = worker._replace(record=state.record, version=state.version)
        if phase == "plan" and what == "record" and state.record and is_open(state.record):
            yield from self._claim(state, worker, state.record)
        elif int(place) + 1 < len(looks):
            yield f"looks at the {what}", state, worker._replace(at=f"{phase} {int(place) + 1}")
        elif phase == "plan":
            yield from self._plan(state, worker)
        else:
            yield from self._decide(state, worker)

    def _claim(
        self, state: SagaState, worker: Worker, record: TaskRecord
    ) -> Iterator[tuple[str, SagaState, Worker]]:
        held = any(one.held == lease_of(record) for one in state.workers)
        if held and not state.budget.rival:
            return
        if held:
            left = state.budget._replace(rival=state.budget.rival - 1)
            state = state._replace(budget=left)
        request = Cas(worker.version, claim(record, LEASE))
        yield "wants to claim", state, Worker(at="plan act", request=request)

    def _plan(self, state: SagaState, worker: Worker) -> Iterator[tuple[str, SagaState, Worker]]:
        assert worker.stream is not None
        assert worker.table is not None
        version = worker.version if worker.record else 0
        if not worker.stream.alive:
            if worker.record is None:
                yield "nothing to do", state, Worker()
            else:
                yield "wants to forget", state, Worker(at="plan act", request=Cas(version, None))
            return
        planned = self.rules.plan(worker.stream, worker.table, self.setup, self._wiped(state))
        if isinstance(planned, Problem | PendingSwap | BackfillDue):
            if worker.version == state.version:  # otherwise a task ran while it looked
                raise Impossible(f"planner: {planned}")
            yield "planned from old views", state, Worker()
        elif isinstance(planned, PlannedTask):
            record = create(worker.record, planned, LEASE)
            yield "wants to create", state, Worker(at="plan act", request=Cas(version, record))
        else:
            yield "nothing to do", state, Worker()

    def _decide(self, state: SagaState, worker: Worker) -> Iterator[tuple[str, SagaState, Worker]]:
        assert worker.table is not None
        assert worker.stream is not None
        assert worker.held is not None
        table = table_view(worker.table, worker.record)
        seen = Observation(table, stream_view(worker.stream), worker.record)
        step = self.rules.next_step(seen, worker.held, worker.fact, worker.table)
        if isinstance(step, Finished | LeaseLost):
            yield type(step).__name__, state, Worker()
            return
        if isinstance(step, TaskBlocked):
            raise Impossible(f"stuck: {step.reason}")
        slim = Worker(at="hold act", held=worker.held, fact=worker.fact, attempt=worker.attempt)
        yield self._asked(state, worker, slim, step)
        record = worker.record
        if state.budget.abort and record and lease_of(record) == worker.held:
            mark = abandon(record, "")
            if isinstance(mark, Mark):
                spent = state._replace(budget=state.budget._replace(abort=state.budget.abort - 1))
                request = Cas(worker.version, mark.record)
                yield "wants to give up", spent, slim._replace(request=request)

    def _asked(
        self, state: SagaState, worker: Worker, slim: Worker, step: object
    ) -> tuple[str, SagaState, Worker]:
        match step:
            case WriteFile(record=record, pieces=pieces):
                if not {one.name for one in pieces} <= {one.name for one in state.files}:
                    gone = slim._replace(at="hold 0", fact=InputNotFound(""))
                    return "finds inputs gone", state, gone
                key = output_key(record, attempt=self._attempt(state, worker))
                made = data_file(key, start=record.start, end=record.end, kind=record.output_kind)
                request: Request = Put(made)
            case CommitTable(record=record, file=file):
                request = Commit(int(step.token), file, step.before, step.after, record.name)
            case ReplaceFiles(file=file, inputs=inputs):
                request = Exchange(int(step.token), inputs, file)
            case AppendSwap(swap=swap):
                request = Append(swap)
            case MoveTable(token=token):
                request = Move(int(token))
            case Mark(record=record):
                request = Cas(worker.version, record)
            case Forget():
                request = Cas(worker.version, None)
            case _:
                raise AssertionError(step)
        return f"wants: {getattr(step, 'effect', step)}", state, slim._replace(request=request)

    def _act(self, state: SagaState, worker: Worker) -> Iterator[tuple[str, SagaState, Worker]]:
        request = worker.request
        assert request is not None
        reached, accepted = land(self.rules, state, request)
        said = "done" if accepted else "refused"
        yield (
            f"{_name(request)}: {said}",
            reached,
            self._told(worker, request, reached if accepted else None),
        )
        if state.budget.lost:
            spent = state._replace(
                budget=state.budget._replace(lost=state.budget.lost - 1),
                flying=state.flying | {request},
            )
            yield f"{_name(request)}: no answer", spent, self._unsure(worker, request)

    def _told(self, worker: Worker, request: Request, reached: SagaState | None) -> Worker:
        """The worker after an answer; `reached` is what an accepted request led to."""
        if worker.at == "plan act":
            if reached is None or reached.record is None:
                return Worker()
            return Worker(at="hold 0", held=lease_of(reached.record))
        fact = worker.fact
        match request:
            case Put(file=file):
                fact = FileWritten(file)
            case Move() if reached is not None:
                fact = TableMoved()
            case Cas() if reached is not None:
                fact = None
            case _:
                pass
        return worker._replace(at="hold 0", request=None, fact=fact)

    def _unsure(self, worker: Worker, request: Request) -> Worker:
        if worker.at == "plan act":
            return Worker()
        attempt = 1 if isinstance(request, Put) else worker.attempt
        if isinstance(request, Commit | Exchange) and self.rules.unknown_fact is not None:
            worker = worker._replace(fact=self.rules.unknown_fact)
        return worker._replace(at="hold 0", request=None, attempt=attempt)


def _name(request: Request) -> str:
    if isinstance(request, Cas):
        return f"record to {request.record.state.name}" if request.record else "record away"
    return type(request).__name__.lower()
