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
    NothingDue,
    PlanOptions,
    Problem,
    SegmentsFirst,
    TableAhead,
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
from lakelog.records.table_facts import TableFileOrigin
from lakelog.records.table_file import TableFile
from lakelog.streams.objects import FileKind, FileName


async def file_ahead(
    ports: LimitedPorts, objects: ObjectStore, name: StreamName, ahead: TableAhead
) -> DataFile | None:
    """The table's file for the first offset that it is ahead by; None when it names none there."""
    table = ports.table_name(name.topic)
    found = await ports.ask_table(
        lambda tables: tables.files(
            table, partition=name.partition, start=ahead.start, end=ahead.end
        )
    )
    for file in found:
        reads = _origin(objects, file.key, file.size_bytes)
        origin = await reading(reads, limit_s=ports.options.table_s)
        if origin.end <= ahead.start:
            continue
        (view,) = await ports.views([StreamRange(name.stream, origin.start, origin.end)])
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


_Planned = PlannedTask | NothingDue | TableAhead | SegmentsFirst | Problem


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task to begin, in the place of the stream's ended record or of none."""

    planned: PlannedTask
    previous: StoredRecord | None


@dataclass(frozen=True, slots=True)
class _Due:
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
            due = [one for one in self._due(topics, records, hint) if one.name.stream not in taken]
            vectors = await self._vectors({one.topic.name: one.topic for one in due})
            due = [one for one in due if one.topic.name in vectors]
            found = await self._look(due, vectors)
        except Failure as error:
            self._counters.problem(f"the index: {type(error).__name__}: {error}")
            return []
        planned = await together(self._plan(one, columns, of_it) for one, columns, of_it in found)
        options = self._ports.options
        previous = {one.name.stream: one.previous for one in due}
        picked = chosen(
            (task for task in planned if task is not None),
            tasks_max=options.tasks_max,
            input_bytes_max=options.input_bytes_max,
        )
        return [TaskSpec(task, previous[task.stream]) for task in picked]

    def _due(
        self,
        topics: Sequence[IndexedTopic],
        records: StoredRecords,
        hint: Mapping[int, StreamIndex],
    ) -> list[_Due]:
        """The streams that are due if their table is where their log is."""
        now_ms = self._ports.clock.now_ms()
        found = []
        for topic in topics:
            for partition, stream in enumerate(topic.streams):
                previous = records.found.get(stream)
                index = hint.get(stream)
                if index is not None:
                    self._behind(topic, index, now_ms)
                lacks = topic.has_table and self._candidates.holds(stream, previous)
                if (not lacks and index is None) or self._waits(stream, previous, records):
                    continue
                name = StreamName(stream, topic.topic_id, topic.name, partition)
                one = _Due(name, topic, previous)
                if lacks or (index is not None and self._is_due(one, index)):
                    found.append(one)
        return found

    def _is_due(self, due: _Due, hint: StreamIndex) -> bool:
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
            return bool(records.broken) and stream in records.broken_streams
        record = previous.record
        if is_open(record) or not record.failures:
            return is_open(record)
        waited_ms = self._ports.clock.now_ms() - record.created_ms
        return 0 <= waited_ms < self._ports.options.wait_ms(record.failures)

    async def _vectors(self, topics: Mapping[str, IndexedTopic]) -> dict[str, Mapping[int, int]]:
        """The vector of each topic's table; a topic whose table cannot be had is left out."""
        found: dict[str, Mapping[int, int]] = {}

        async def load(topic: IndexedTopic) -> None:
            try:
                found[topic.name] = (await self._table_lifecycle.table_of(topic)).vector
            except Failure as error:
                reason = f"its table: {type(error).__name__}: {error}"
                self._counters.problem(reason, topic=topic.name)

        async with asyncio.TaskGroup() as group:
            for topic in topics.values():
                if topic.has_table:
                    group.create_task(load(topic))
                else:
                    found[topic.name] = {}
        return found

    async def _look(
        self, due: Sequence[_Due], vectors: Mapping[str, Mapping[int, int]]
    ) -> list[tuple[_Due, StreamColumns, _Planned]]:
        """What is due for each stream by the vectors, and the entries that say so."""
        index = await self._ports.backlog([one.name.stream for one in due])
        found: dict[int, tuple[_Due, StreamColumns, _Planned]] = {}
        wanted = []
        for one in due:
            stream = one.name.stream
            vector = vectors[one.topic.name]
            planned: _Planned = NothingDue()
            if stream in index:
                columns = index[stream].columns
                planned = self._planned(one, columns, vector)
                found[stream] = one, columns, planned
            lacks = one.topic.has_table and self._candidates.holds(stream, one.previous)
            if isinstance(planned, SegmentsFirst) or (lacks and isinstance(planned, NothingDue)):
                wanted.append(one)
        whole = await self._ports.columns([one.name.stream for one in wanted])
        for one in wanted:
            stream = one.name.stream
            if stream in whole:
                columns = whole[stream].columns
                vector = vectors[one.topic.name]
                lacked = self._lacked(one, columns, vector)
                if lacked is not None:
                    found[stream] = one, columns, lacked
                elif stream in found:  # the index moved on meanwhile
                    found[stream] = one, columns, self._planned(one, columns, vector)
        return list(found.values())

    def _lacked(
        self, due: _Due, columns: StreamColumns, vector: Mapping[int, int]
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
        self, due: _Due, columns: StreamColumns, planned: _Planned
    ) -> PlannedTask | None:
        """The stream's next range, if it is still due."""
        if isinstance(planned, TableAhead):
            planned = await self._ahead(due, columns, planned)
        if isinstance(planned, Problem):
            await self._complain(due, planned)
        return planned if isinstance(planned, PlannedTask) else None

    def _planned(
        self, due: _Due, columns: StreamColumns, vector: Mapping[int, int] | None
    ) -> _Planned:
        """What is due, where the table is at its vector, or without one right behind its log."""
        first = _first_wal(columns)
        if first is None:
            return NothingDue()
        at = int(columns.starts[first])
        reached = vector.get(due.name.partition) if vector is not None else at
        quarantine = due.previous.record.quarantine if due.previous is not None else ()
        if not due.topic.has_table:
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
        self, due: _Due, columns: StreamColumns, ahead: TableAhead
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

    async def _complain(self, due: _Due, problem: Problem) -> None:
        """Report a problem that is one: no task of the stream ran while it was looked at."""
        stream = due.name.stream
        try:
            records = await self._ports.records.load([stream])
        except Failure:
            return  # the next round looks again
        if records.found.get(stream) == due.previous:
            self._ports.pauses.add(stream)
            topic, partition = due.topic.name, due.name.partition
            self._counters.problem(problem.reason, topic=topic, partition=partition)


def _first_wal(columns: StreamColumns) -> int | None:
    is_wal = columns.kinds == FileKind.WAL
    return int(is_wal.argmax()) if is_wal.any() else None
