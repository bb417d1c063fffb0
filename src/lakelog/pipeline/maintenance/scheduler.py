"""Upkeep of tables: small files become large ones, and compacted topics keep their latest records.

Both are replacing tasks, one a stream at a time like all others, so a stream that has one to begin
waits a round with what is new. Now and then all streams are looked at:

- a stream whose entries end with segments may have rows for its table, which is the planner's to
  find out (`lakelog.pipeline.planning.backfill`): without this a quiet stream's would wait for new
  ones;
- a window of small files is a task at once (`lakelog.pipeline.planning.small_files`);
- a compacted topic's stream that is dirty is scanned, beside the rounds and as long as it takes; of
  what was found each group of files is a task, one after the other, and after the last of them the
  stream's record says how far it is clean (`lakelog.pipeline.maintenance.log_compaction`).

What a scan found is kept in memory alone. It counts for a group only while the index names exactly
the files that were scanned, and a pass is whole only if each task of it came to its end as the
stream's last one: otherwise it is dropped, and a later one finds what is left to do.

Order of looking: task records, before this; then the table's files, then the index's entries.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lakelog.clock import Tasks, agreed_now_ms
from lakelog.index.entries import Entry
from lakelog.index.ports import IndexedTopic, StreamRange
from lakelog.log.options import CLOCK_HINT
from lakelog.model.failures import Conflict, Failure, NotFound, OutcomeUnknown
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import FailureKind, FileFailure
from lakelog.pipeline.maintenance.key_scan import Scanner
from lakelog.pipeline.maintenance.log_compaction import (
    CleaningGroup,
    CleaningPlan,
    after_pass,
    groups_of,
    plan_pass,
    rules_of,
)
from lakelog.pipeline.options import reading, together
from lakelog.pipeline.planning.backfill import BackfillCandidates, ends_in_segment
from lakelog.pipeline.planning.planner import TaskSpec
from lakelog.pipeline.planning.small_files import plan_rewrite, replacement
from lakelog.pipeline.planning.wal_ranges import Problem
from lakelog.pipeline.ports import LimitedPorts
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.saga.record_store import StoredRecord, StoredRecords
from lakelog.pipeline.saga.task_record import (
    LeaseId,
    TaskRecord,
    TaskState,
    is_open,
    lease_of,
    with_cleaned,
    with_quarantine,
)
from lakelog.pipeline.saga.values import StreamName, TaskTarget
from lakelog.streams.objects import FileKind
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.pipeline")

WHOLE: Final = 1 << 62
"""Beyond every offset."""


@dataclass(slots=True)
class _Pass:
    """A pass of log compaction after its scan: what is left to replace."""

    plan: CleaningPlan
    groups: list[CleaningGroup]
    begun: LeaseId | None = None
    """The lease of the first group's task, once it was begun."""


@dataclass(frozen=True, slots=True)
class _IdleStream:
    """A stream that no task is open for."""

    name: StreamName
    topic: IndexedTopic
    stored: StoredRecord


@dataclass(slots=True)
class _Scanned:
    """What scans found since the last round."""

    passes: dict[int, _Pass] = field(default_factory=dict)
    troubles: list[tuple[StreamName, str]] = field(default_factory=list)
    damaged: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The offsets of the data file that kept a stream from being scanned."""


class MaintenanceScheduler:
    """The upkeep of all tables by one pipeline."""

    def __init__(
        self,
        ports: LimitedPorts,
        scanner: Scanner | None,
        objects: ObjectStore,
        candidates: BackfillCandidates,
    ) -> None:
        self._ports = ports
        self._scanner = scanner
        self._objects = objects
        self._candidates = candidates
        self._passes: dict[int, _Pass] = {}
        self._scanning: dict[int, asyncio.Task[None]] = {}
        self._scanned = _Scanned()
        self._damaged: dict[int, tuple[int, int]] = {}
        self._tasks = Tasks()
        self._due_s = ports.clock.monotonic_s()
        self.marked: set[int] = set()
        """Streams whose record the last `plan` has changed: what was read of it is old."""

    @property
    def scans(self) -> int:
        """The streams that are being scanned, or were and have something left to do."""
        return len(self._scanning) + len(self._scanned.passes) + len(self._passes)

    async def settled(self) -> None:
        """Return when the scans that run now have ended; each has its limit."""
        if self._scanning:
            await asyncio.wait(list(self._scanning.values()))

    async def close(self) -> None:
        """End the scans."""
        await self._tasks.close()

    async def plan(
        self, topics: Sequence[IndexedTopic], records: StoredRecords, counters: RoundCounters
    ) -> list[TaskSpec]:
        """What to begin; `records` were read before this was called."""
        self._collect(counters)
        known = {stream for topic in topics for stream in topic.streams}
        self._passes = {
            stream: current for stream, current in self._passes.items() if stream in known
        }
        idle_streams = self._idle_streams(topics, records)
        try:
            self.marked = set()
            await self._mark_damaged(idle_streams)
            specs = await self._next_groups(idle_streams, counters)
            idle_streams = {
                stream: idle for stream, idle in idle_streams.items() if stream not in self.marked
            }
            if self._ports.clock.monotonic_s() >= self._due_s:
                options = self._ports.options
                self._due_s = self._ports.clock.monotonic_s() + options.upkeep_ms / 1000
                await self._begin_scans(idle_streams)
                specs += await self._rewrites(idle_streams, counters)
        except Failure as error:
            counters.problem(f"upkeep: {type(error).__name__}: {error}")
            return []
        return specs

    def begun(self, record: TaskRecord) -> None:
        """The task of a group is being created, with this record."""
        current = self._passes.get(record.stream)
        if current is not None:
            current.begun = lease_of(record)

    def _idle_streams(
        self, topics: Sequence[IndexedTopic], records: StoredRecords
    ) -> dict[int, _IdleStream]:
        idle_streams = {}
        for topic in topics:
            for partition, stream in enumerate(topic.streams):
                stored = records.found.get(stream)
                if not topic.has_table or stored is None or is_open(stored.record):
                    continue
                if not self._ports.pauses.holds(stream) and not stored.record.failures:
                    name = StreamName(stream, topic.topic_id, topic.name, partition)
                    idle_streams[stream] = _IdleStream(name, topic, stored)
        return idle_streams

    async def _rewrites(
        self, idle_streams: Mapping[int, _IdleStream], counters: RoundCounters
    ) -> list[TaskSpec]:
        """Small files that become one, where no pass is under way."""
        free = [stream for stream in idle_streams if stream not in self._passes]
        indexes = await self._ports.columns(
            [stream for stream in free if stream not in self._scanning]
        )
        works = []
        for stream, index in indexes.items():
            if ends_in_segment(index.columns):
                self._candidates.suspect(stream, idle_streams[stream].stored)
            quarantine = idle_streams[stream].stored.record.quarantine
            options = self._ports.options.rewrite
            window = plan_rewrite(index.columns, quarantine=quarantine, options=options)
            if window is not None:
                place = StreamRange(stream, window.start, window.end)
                works.append(self._replacing(idle_streams[stream], place, None, counters))
        return [spec for spec in await together(works) if spec is not None]

    async def _replacing(
        self,
        idle: _IdleStream,
        place: StreamRange,
        group: CleaningGroup | None,
        counters: RoundCounters,
    ) -> TaskSpec | None:
        """The task for the entries of a range; of a group, if they are still those scanned."""
        name = idle.name
        table = self._ports.table_name(name.topic)
        try:
            files = await self._ports.ask_table(
                lambda tables: tables.files(table, partition=name.partition, start=0, end=place.end)
            )
        except NotFound:
            return None  # the topic is going
        (view,) = await self._ports.views([place])
        if view is None or (group is not None and not group.is_in(view)):
            return None
        entries = view.overlapping(start=place.start, end=place.end)
        if not _are_files(entries, place):
            return None
        target = TaskTarget.REWRITE if group is None else TaskTarget.CLEAN
        now_ms = self._ports.clock.now_ms()
        planned = replacement(name, entries, files, target=target, now_ms=now_ms)
        if isinstance(planned, Problem):
            self._ports.pauses.add(name.stream)
            counters.problem(planned.reason, topic=name.topic, partition=name.partition)
            return None
        kept_offsets = None if group is None else group.kept_offsets
        return TaskSpec(planned, idle.stored, kept_offsets)

    async def _next_groups(
        self, idle_streams: Mapping[int, _IdleStream], counters: RoundCounters
    ) -> list[TaskSpec]:
        """The next group of every pass, and the end of those that have none left."""
        works = [
            self._next_group(idle_streams[stream], current, counters)
            for stream, current in list(self._passes.items())
            if stream in idle_streams
        ]
        gone = [stream for stream in self._passes if stream not in idle_streams]
        for stream in gone:
            if self._passes[stream].begun is None:
                del self._passes[stream]
        return [spec for spec in await together(works) if spec is not None]

    async def _next_group(
        self, idle: _IdleStream, current: _Pass, counters: RoundCounters
    ) -> TaskSpec | None:
        stream, record = idle.name.stream, idle.stored.record
        if current.begun is not None:
            ended = record.state is TaskState.WAL_GC_READY and lease_of(record) == current.begun
            if not ended:
                del self._passes[stream]  # given up, or somebody else's since
                return None
            current.begun = None
            current.groups.pop(0)
        if not current.groups:
            del self._passes[stream]
            self.marked.add(stream)
            await self._mark_clean(idle, current, counters)
            return None
        group = current.groups[0]
        place = StreamRange(stream, group.entries[0].start, group.entries[-1].end)
        spec = await self._replacing(idle, place, group, counters)
        if spec is None:
            del self._passes[stream]
        return spec

    async def _mark_clean(self, idle: _IdleStream, current: _Pass, counters: RoundCounters) -> None:
        """Every group was replaced: say how far the stream is clean."""
        now_ms = await self._agreed_now_ms()
        if now_ms is None:
            return  # a pass of the wrong time would end tombstones at one; it is made again
        record = idle.stored.record
        rules = rules_of(idle.topic)
        cleaned = after_pass(record.cleaned, current.plan, rules=rules, now_ms=now_ms)
        put = self._ports.records.put
        try:
            await self._ports.effects.do(
                "mark clean",
                lambda: put(with_cleaned(record, cleaned), version=idle.stored.version),
            )
        except (Conflict, OutcomeUnknown):
            return  # at worst the pass is made again, and finds nothing to do
        counters.topic(idle.topic.name).passes += 1

    async def _begin_scans(self, idle_streams: Mapping[int, _IdleStream]) -> None:
        """Look for dirty streams of compacted topics, and scan them beside the rounds."""
        if self._scanner is None:
            return
        busy = self._passes.keys() | self._scanning.keys()
        free = [
            idle
            for stream, idle in idle_streams.items()
            if idle.topic.is_compacted and stream not in busy
        ]
        now_ms = await self._agreed_now_ms() if free else None
        if now_ms is None:
            return
        views = await self._ports.views([StreamRange(idle.name.stream, 0, WHOLE) for idle in free])
        for idle, view in zip(free, views, strict=True):
            if view is None:
                continue
            record = idle.stored.record
            plan = plan_pass(
                idle.name,
                view,
                record.cleaned,
                rules=rules_of(idle.topic),
                quarantine=record.quarantine,
                now_ms=now_ms,
            )
            if plan is not None:
                stream = idle.name.stream
                work = self._scan(self._scanner, plan)
                self._scanning[stream] = self._tasks.spawn(work, name=f"scan {stream}")

    async def _agreed_now_ms(self) -> int | None:
        """The time, if it may end tombstones (rule 20)."""
        options = self._ports.options
        agreed = agreed_now_ms(
            self._ports.clock, self._objects.clock_skew_ms, skew_max_ms=options.clock_skew_max_ms
        )
        now_ms = await reading(agreed, limit_s=options.clock_s)
        if now_ms is None:
            event(_log, "clock_differs", logging.ERROR, hint=f"log compaction waits; {CLOCK_HINT}")
        return now_ms

    async def _scan(self, scanner: Scanner, plan: CleaningPlan) -> None:
        stream = plan.name.stream
        options = self._ports.options
        try:
            (answer,) = await reading(scanner.scan([plan]), limit_s=options.job_s)
        except Failure as error:
            self._scanned.troubles.append((plan.name, f"{type(error).__name__}: {error}"))
        else:
            if isinstance(answer, FileFailure):
                self._scanned.troubles.append((plan.name, f"{answer.object_key}: {answer.reason}"))
                if answer.trouble in (FailureKind.CORRUPT, FailureKind.MISSING):
                    self._scanned.damaged[stream] = (answer.start, answer.end)
            else:
                retained = {file.key: file for file in answer}
                target = options.rewrite.bytes_target
                groups = groups_of(plan, retained, bytes_target=target)
                self._scanned.passes[stream] = _Pass(plan, list(groups))
        finally:
            del self._scanning[stream]

    async def _mark_damaged(self, idle_streams: Mapping[int, _IdleStream]) -> None:
        """Put down which data files cannot be read, so that no scan and no task tries them again.

        What is new goes on: it is written from WAL objects.
        """
        for stream in [stream for stream in self._damaged if stream in idle_streams]:
            start, end = self._damaged.pop(stream)
            stored = idle_streams[stream].stored
            record = with_quarantine(stored.record, start=start, end=end)
            self.marked.add(stream)
            try:
                await self._ports.effects.do(
                    "mark clean", partial(self._ports.records.put, record, version=stored.version)
                )
            except (Conflict, OutcomeUnknown):
                continue  # the next scan finds it again

    def _collect(self, counters: RoundCounters) -> None:
        scanned, self._scanned = self._scanned, _Scanned()
        self._passes |= scanned.passes
        self._damaged |= scanned.damaged
        for name, reason in scanned.troubles:
            counters.problem(
                f"log compaction: {reason}", topic=name.topic, partition=name.partition
            )


def _are_files(entries: Sequence[Entry], place: StreamRange) -> bool:
    """Whether these are data files that are just the range."""
    if not entries or any(entry.kind is not FileKind.PARQUET for entry in entries):
        return False
    return (entries[0].start, entries[-1].end) == (place.start, place.end)
