"""Looks at all streams and says what a round begins: which ranges, and what is in the way.

Order of looking: the task records, before this; then the tables, then the index
(`lakelog.pipeline.planning.wal_ranges`). A first look at the index is a hint only: it says which
topics are due, so that the tables of the others need not be loaded, and how far behind the tables
are. All entries of a stream are read only where it may have segments that its table lacks: what a
backlog leaves out may be among them.

A table that is ahead has a file that the index has not: a task's record was lost after its commit.
What that file is, table, footer and index tell (`file_ahead`): its footer says which offsets it
stands for, the index how new its records are.
"""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from lakelog.index.entries import StreamColumns, StreamIndex
from lakelog.index.ports import IndexedTopic, StreamRange
from lakelog.log.parquet_source import read_end
from lakelog.model.failures import Corrupt, Failure, NotFound
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.options import reading, together
from lakelog.pipeline.planning.backfill import BackfillCandidates, plan_backfill
from lakelog.pipeline.planning.wal_ranges import (
    BackfillDue,
    NothingDue,
    PendingSwap,
    PlanOptions,
    Problem,
    chosen,
    plan_present,
    plan_stream,
)
from lakelog.pipeline.ports import LimitedPorts
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.saga.record_store import StoredRecord, StoredRecords
from lakelog.pipeline.saga.task_record import is_open
from lakelog.pipeline.saga.values import DataFile, PlannedTask, StreamName, TaskTarget
from lakelog.pipeline.table_lifecycle import TableLifecycle
from lakelog.records.table_file import TableFile
from lakelog.records.table_schema import TableFileOrigin
from lakelog.streams.objects import FileKind


async def file_ahead(
    ports: LimitedPorts, objects: ObjectStore, name: StreamName, ahead: PendingSwap
) -> DataFile | None:
    """The table's file for the first offset that it is ahead by; None when it names none there."""
    table = ports.table_name(name.topic)
    files = await ports.ask_table(
        lambda tables: tables.files(
            table, partition=name.partition, start=ahead.start, end=ahead.end
        )
    )
    for file in files:
        reads = _origin(objects, file.key, file.size_bytes)
        origin = await reading(reads, limit_s=ports.options.table_s)
        if origin.end <= ahead.start:
            continue
        (view,) = await ports.views([StreamRange(name.stream, origin.start, origin.end)])
        newest_ms = [] if view is None else [entry.max_timestamp_ms for entry in view.entries]
        return DataFile(
            key=file.key,
            kind=FileKind.PARQUET,
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


_Planned = PlannedTask | NothingDue | PendingSwap | BackfillDue | Problem


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task to begin, in the place of the stream's ended record or of none."""

    planned: PlannedTask
    previous: StoredRecord | None
    kept_offsets: bytes | None = None
    """The offsets of the rows that stay, where log compaction takes some out."""


@dataclass(frozen=True, slots=True)
class _DueStream:
    """A stream that may be planned."""

    name: StreamName
    topic: IndexedTopic
    previous: StoredRecord | None

    def options(self, base: PlanOptions) -> PlanOptions:
        return replace(base, freshness_ms=self.topic.freshness_ms)


class Planner:
    """Plans one round."""

    def __init__(
        self,
        ports: LimitedPorts,
        table_lifecycle: TableLifecycle,
        objects: ObjectStore,
        counters: RoundCounters,
        candidates: BackfillCandidates,
    ) -> None:
        self._ports = ports
        self._table_lifecycle = table_lifecycle
        self._objects = objects
        self._counters = counters
        self._candidates = candidates

    async def plan(
        self,
        topics: Sequence[IndexedTopic],
        records: StoredRecords,
        *,
        taken: Set[int] = frozenset(),
    ) -> list[TaskSpec]:
        """What to begin, but for streams that are taken; `records` were read before this."""
        streams = [stream for topic in topics for stream in topic.streams]
        self._candidates.keep(set(streams))
        try:
            hint = await self._ports.backlog(streams)
            due_streams = [
                due for due in self._due(topics, records, hint) if due.name.stream not in taken
            ]
            vectors = await self._vectors({due.topic.name: due.topic for due in due_streams})
            due_streams = [due for due in due_streams if due.topic.name in vectors]
            plans = await self._look(due_streams, vectors)
        except Failure as error:
            self._counters.problem(f"the index: {type(error).__name__}: {error}")
            return []
        tasks = await together(self._plan(due, columns, plan) for due, columns, plan in plans)
        options = self._ports.options
        previous = {due.name.stream: due.previous for due in due_streams}
        picked = chosen(
            (task for task in tasks if task is not None),
            tasks_max=options.tasks_max,
            input_bytes_max=options.input_bytes_max,
        )
        return [TaskSpec(task, previous[task.stream]) for task in picked]

    def _due(
        self,
        topics: Sequence[IndexedTopic],
        records: StoredRecords,
        hint: Mapping[int, StreamIndex],
    ) -> list[_DueStream]:
        """The streams that are due if their table is where their log is."""
        now_ms = self._ports.clock.now_ms()
        due_streams = []
        for topic in topics:
            for partition, stream in enumerate(topic.streams):
                previous = records.found.get(stream)
                index = hint.get(stream)  # None: the stream has no WAL entry
                if index is not None:
                    self._behind(topic, index, now_ms)
                may_lack = topic.has_table and self._candidates.holds(stream, previous)
                if (not may_lack and index is None) or self._waits(stream, previous, records):
                    continue
                name = StreamName(stream, topic.topic_id, topic.name, partition)
                due = _DueStream(name, topic, previous)
                # Segments that the table may lack are no backlog: the hint does not show them.
                if may_lack or (index is not None and self._is_due(due, index)):
                    due_streams.append(due)
        return due_streams

    def _is_due(self, due: _DueStream, hint: StreamIndex) -> bool:
        return isinstance(self._planned(due, hint.columns, None), PlannedTask)

    def _behind(self, topic: IndexedTopic, index: StreamIndex, now_ms: int) -> None:
        first = _first_wal(index.columns)
        if first is None:
            return
        counters = self._counters.topic(topic.name)
        counters.behind_records += index.head - max(
            index.log_start, int(index.columns.starts[first])
        )
        is_wal = index.columns.kinds == FileKind.WAL
        age_ms = now_ms - int(index.columns.object_times_ms[is_wal].min())
        counters.behind_ms = max(counters.behind_ms, age_ms, 0)

    def _waits(self, stream: int, previous: StoredRecord | None, records: StoredRecords) -> bool:
        """Whether the stream has a task, or failed, or has a record that says nothing."""
        if self._ports.pauses.holds(stream):
            return True
        if previous is None:
            # Of a record that cannot be read nobody knows whether its task is open.
            return bool(records.broken) and stream in records.broken_streams
        record = previous.record
        if is_open(record) or not record.failures:
            return is_open(record)
        # Less than 0: made by a clock that is ahead of ours, which nothing waits for.
        waited_ms = self._ports.clock.now_ms() - record.created_ms
        return 0 <= waited_ms < self._ports.options.wait_ms(record.failures)

    async def _vectors(self, topics: Mapping[str, IndexedTopic]) -> dict[str, Mapping[int, int]]:
        """The vector of each topic's table; a topic whose table cannot be had is left out."""
        vectors: dict[str, Mapping[int, int]] = {}

        async def load(topic: IndexedTopic) -> None:
            try:
                vectors[topic.name] = (await self._table_lifecycle.table_of(topic)).vector
            except Failure as error:
                reason = f"its table: {type(error).__name__}: {error}"
                self._counters.problem(reason, topic=topic.name)

        async with asyncio.TaskGroup() as group:
            for topic in topics.values():
                if topic.has_table:
                    group.create_task(load(topic))
                else:
                    vectors[topic.name] = {}
        return vectors

    async def _look(
        self, due_streams: Sequence[_DueStream], vectors: Mapping[str, Mapping[int, int]]
    ) -> list[tuple[_DueStream, StreamColumns, _Planned]]:
        """What is due for each stream by the vectors, and the entries that say so."""
        # After the tables, as `wal_ranges` wants it: the hint is older than the vectors.
        backlog = await self._ports.backlog([due.name.stream for due in due_streams])
        plans: dict[int, tuple[_DueStream, StreamColumns, _Planned]] = {}
        incomplete = []
        for due in due_streams:
            stream = due.name.stream
            plan: _Planned = NothingDue()
            if stream in backlog:
                columns = backlog[stream].columns
                plan = self._planned(due, columns, vectors[due.topic.name])
                plans[stream] = due, columns, plan
            may_lack = due.topic.has_table and self._candidates.holds(stream, due.previous)
            # A backlog may leave out segments before it: only all entries say which come next.
            if isinstance(plan, BackfillDue) or (may_lack and isinstance(plan, NothingDue)):
                incomplete.append(due)
        entries = await self._ports.columns([due.name.stream for due in incomplete])
        for due in incomplete:
            stream = due.name.stream
            if stream in entries:
                columns = entries[stream].columns
                vector = vectors[due.topic.name]
                backfill = self._lacked(due, columns, vector)
                if backfill is not None:
                    plans[stream] = due, columns, backfill
                elif stream in plans:  # the index moved on meanwhile
                    plans[stream] = due, columns, self._planned(due, columns, vector)
        return list(plans.values())

    def _lacked(
        self, due: _DueStream, columns: StreamColumns, vector: Mapping[int, int]
    ) -> PlannedTask | Problem | None:
        """The segments that the table lacks, if there are any."""
        stream = due.name.stream
        planned = plan_backfill(
            due.name,
            columns,
            vector=vector.get(due.name.partition),
            options=self._ports.options.plan,
            now_ms=self._ports.clock.now_ms(),
        )
        if planned is None:
            self._candidates.settle(stream, due.previous)
        else:
            self._candidates.suspect(stream, due.previous)  # behind these there may be more
        return planned

    async def _plan(
        self, due: _DueStream, columns: StreamColumns, planned: _Planned
    ) -> PlannedTask | None:
        """The stream's next range, if it is still due."""
        if isinstance(planned, PendingSwap):
            planned = await self._ahead(due, columns, planned)
        if isinstance(planned, Problem):
            await self._complain(due, planned)
        return planned if isinstance(planned, PlannedTask) else None

    def _planned(
        self, due: _DueStream, columns: StreamColumns, vector: Mapping[int, int] | None
    ) -> _Planned:
        """What is due, where the table is at its vector, or without one right behind its log."""
        first = _first_wal(columns)
        if first is None:
            return NothingDue()
        at = int(columns.starts[first])
        reached = vector.get(due.name.partition) if vector is not None else at
        quarantine = due.previous.record.quarantine if due.previous is not None else ()
        if not due.topic.has_table:
            # A segment moves no vector, and keeps what cannot be rows as it keeps everything.
            reached, quarantine = at, ()
        planned = plan_stream(
            due.name,
            columns,
            vector=reached,
            quarantine=quarantine,
            options=due.options(self._ports.options.plan),
            now_ms=self._ports.clock.now_ms(),
        )
        if due.topic.has_table or not isinstance(planned, PlannedTask):
            return planned
        return replace(planned, target=TaskTarget.LOG, expected=None)

    async def _ahead(
        self, due: _DueStream, columns: StreamColumns, ahead: PendingSwap
    ) -> PlannedTask | Problem | NothingDue:
        try:
            file = await file_ahead(self._ports, self._objects, due.name, ahead)
        except (Corrupt, NotFound) as error:
            return Problem(f"the table is ahead by a file that is none: {error}")
        except Failure as error:
            reason = f"the table is ahead: {type(error).__name__}: {error}"
            self._counters.problem(reason, topic=due.topic.name, partition=due.name.partition)
            return NothingDue()
        if file is None:
            return Problem(f"the table reaches to {ahead.end} without a file at {ahead.start}")
        return plan_present(due.name, columns, file, now_ms=self._ports.clock.now_ms())

    async def _complain(self, due: _DueStream, problem: Problem) -> None:
        """Report a problem that is one: no task of the stream ran while it was looked at."""
        stream = due.name.stream
        try:
            records = await self._ports.records.load([stream])
        except Failure:
            return  # the next round looks again
        # Another record: a task ran between the looks at table and index, and made them differ.
        if records.found.get(stream) == due.previous:
            self._ports.pauses.add(stream)
            topic, partition = due.topic.name, due.name.partition
            self._counters.problem(problem.reason, topic=topic, partition=partition)


def _first_wal(columns: StreamColumns) -> int | None:
    is_wal = columns.kinds == FileKind.WAL
    return int(is_wal.argmax()) if is_wal.any() else None
