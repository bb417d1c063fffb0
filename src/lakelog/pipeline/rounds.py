"""The pipeline: rounds over all topics, each of which adopts, plans, begins and takes on tasks.

Any number of pipelines may run at once, and any may end at any moment: what they agree on is in the
records, the tables and the index (`lakelog.pipeline.saga.steps`). A round

- makes sure that topics have their tables;
- takes over open tasks whose holder was not heard of any more, and goes on with its own;
- begins tasks for streams that are due and have none, replacing ones before others;
- has the engine write their files, in jobs that do not wait for each other;
- takes each topic on as soon as its files are there, and what needs no file at once;
- forgets the records of streams that are gone.

What fails is reported, for as small a part as it concerns, and left to the next round.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakelog.catalog.port import Tables
from lakelog.clock import Clock, Entropy
from lakelog.index.ports import IndexedTopic, LogIndex
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Conflict, Failure, OutcomeUnknown
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_jobs import FileJobs
from lakelog.pipeline.files.file_writes import EngineJob, jobs_of
from lakelog.pipeline.maintenance.key_scan import Scanner
from lakelog.pipeline.maintenance.scheduler import MaintenanceScheduler
from lakelog.pipeline.options import PipelineOptions, together
from lakelog.pipeline.planning.backfill import BackfillCandidates
from lakelog.pipeline.planning.planner import Planner, TaskSpec
from lakelog.pipeline.ports import Effects, LimitedPorts, TaskEngine
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.round_report import RoundReport
from lakelog.pipeline.saga.executor import TaskExecutor
from lakelog.pipeline.saga.observe import LeasedTask
from lakelog.pipeline.saga.record_store import RecordStore, StoredRecord, StoredRecords
from lakelog.pipeline.saga.task_record import (
    Lease,
    TaskRecord,
    TaskState,
    claim,
    claimable,
    create,
    is_open,
    renew,
)
from lakelog.pipeline.table_lifecycle import TableLifecycle

HOLDER_BYTES = 16
"""The chance in a holder's name: no other pipeline ever has it."""


class Pipeline:
    """One worker of the pipeline, under a name of its own."""

    def __init__(  # noqa: PLR0913 - the composition root hands over one of each
        self,
        meta: MetadataStore,
        objects: ObjectStore,
        index: LogIndex,
        tables: Tables,
        engine: TaskEngine,
        *,
        clock: Clock,
        entropy: Entropy,
        options: PipelineOptions,
        effects: Effects | None = None,
        scanner: Scanner | None = None,
    ) -> None:
        self.holder = entropy.token(HOLDER_BYTES).hex()
        self._objects = objects
        self._engine = engine
        self._entropy = entropy
        records = RecordStore(meta, puts_max=options.puts_max, limit_s=options.records_s)
        self._ports = LimitedPorts(records, index, tables, clock, options, effects or Effects())
        self._table_lifecycle = TableLifecycle(self._ports)
        self._candidates = BackfillCandidates()
        self._maintenance = MaintenanceScheduler(self._ports, scanner, objects, self._candidates)
        self._one_at_a_time = asyncio.Lock()

    async def round(self) -> RoundReport:
        """One round; it raises for bugs alone."""
        async with self._one_at_a_time:
            counters = RoundCounters(self._ports.clock)
            parts = _Parts(
                self._table_lifecycle,
                Planner(
                    self._ports, self._table_lifecycle, self._objects, counters, self._candidates
                ),
                self._maintenance,
                FileJobs(self._ports, self._engine, self._entropy, counters),
            )
            await _Round(self._ports, parts, counters, holder=self.holder).run()
            counters.scans = self._maintenance.scans
            return counters.report()

    async def drain(self, *, rounds_max: int) -> RoundReport:
        """Rounds until one has nothing to do, or so many; returns the last one's report."""
        assert rounds_max > 0, rounds_max
        report = await self.round()
        for _ in range(rounds_max - 1):
            if report.is_idle:
                break
            await self.settled()
            report = await self.round()
        return report

    async def settled(self) -> None:
        """Return when what runs beside the rounds, scans for log compaction, has ended."""
        await self._maintenance.settled()

    async def close(self) -> None:
        """End scans, and let go of open tasks, so that another takes them at once."""
        async with self._one_at_a_time:
            await self._maintenance.close()
            try:
                records = await self._ports.records.load_all()
            except Failure:
                return  # the leases run out by themselves
            own = [
                stored
                for stored in records.found.values()
                if stored.record.holder == self.holder and is_open(stored.record)
            ]
            async with asyncio.TaskGroup() as group:
                for stored in own:
                    group.create_task(self._let_go(stored))

    async def _let_go(self, stored: StoredRecord) -> None:
        try:
            record = renew(stored.record, lease_end_ms=0)
            await self._ports.records.put(record, version=stored.version)
        except Failure:
            return  # as above


@dataclass(frozen=True, slots=True)
class _Parts:
    """Who does what in a round."""

    table_lifecycle: TableLifecycle
    planner: Planner
    maintenance: MaintenanceScheduler
    file_jobs: FileJobs


class _Round:
    """One round."""

    def __init__(
        self, ports: LimitedPorts, parts: _Parts, counters: RoundCounters, *, holder: str
    ) -> None:
        self._ports = ports
        self._table_lifecycle = parts.table_lifecycle
        self._planner = parts.planner
        self._maintenance = parts.maintenance
        self._file_jobs = parts.file_jobs
        self._counters = counters
        self._holder = holder
        self._executor = TaskExecutor(ports, counters)

    async def run(self) -> None:
        """Look at everything and do what there is to do."""
        # Before the topics: only a list of them that is younger than a table shows its topic gone.
        names = await self._table_lifecycle.names(self._counters)
        try:
            topics = await self._ports.topics()
            records = await self._ports.records.load_all()
        except Failure as error:
            self._counters.problem(f"looking: {type(error).__name__}: {error}")
            return
        self._ports.keep(topics)
        for topic in topics:
            self._counters.begin(topic)
        for key, reason in sorted(records.broken.items()):
            self._counters.problem(f"{key}: {reason}")
        if names is not None:
            await self._table_lifecycle.keep(names, topics, self._counters)
        held = await self._adopt(records)
        replacing = await self._maintenance.plan(topics, records, self._counters)
        taken = self._maintenance.marked | {spec.planned.stream for spec in replacing}
        specs = await self._planner.plan(topics, records, taken=taken)
        held += await self._begin([*replacing, *specs])
        for leased in held:
            self._counters.topic(leased.record.topic).tasks += 1
        await self._work(held, _leftovers(records, topics), {topic.name: topic for topic in topics})

    async def _adopt(self, records: StoredRecords) -> list[LeasedTask]:
        """Our own open tasks, and those that nobody seems to work on."""
        now_ms = self._ports.clock.now_ms()
        open_records = [
            stored
            for stream, stored in records.found.items()
            if is_open(stored.record) and not self._ports.pauses.holds(stream)
        ]
        own = [
            LeasedTask(stored) for stored in open_records if stored.record.holder == self._holder
        ]
        others = [stored for stored in open_records if stored.record.holder != self._holder]
        free = [stored for stored in others if claimable(stored.record, now_ms=now_ms)]
        claims = [
            ("claim task", claim(stored.record, self._lease()), stored.version) for stored in free
        ]
        taken = await self._put_all(claims)
        self._counters.adopted += len(taken)
        return own + taken

    async def _begin(self, specs: Sequence[TaskSpec]) -> list[LeasedTask]:
        lease = self._lease()
        creations = []
        for spec in specs:
            previous, planned = spec.previous, spec.planned
            record = create(None if previous is None else previous.record, planned, lease)
            if spec.kept_offsets is not None:
                self._file_jobs.set_kept_offsets(record, spec.kept_offsets)
                self._maintenance.begun(record)
            creations.append(("create task", record, 0 if previous is None else previous.version))
        begun = await self._put_all(creations)
        self._counters.created += len(begun)
        return begun

    async def _put_all(self, puts: Iterable[tuple[str, TaskRecord, int]]) -> list[LeasedTask]:
        """Those of these records that became ours for certain."""
        leased_tasks = await together(self._put(*put) for put in puts)
        self._counters.attempted += len(leased_tasks)
        return [leased for leased in leased_tasks if leased is not None]

    async def _put(self, effect: str, record: TaskRecord, version: int) -> LeasedTask | None:
        try:
            put = self._ports.records.put
            now = await self._ports.effects.do(effect, lambda: put(record, version=version))
        except Conflict:
            return None  # another was first
        except OutcomeUnknown:
            return await self._found(record)
        except Failure as error:
            self._counters.problem(f"{effect}: {type(error).__name__}: {error}", topic=record.topic)
            return None
        return LeasedTask(StoredRecord(record, now))

    async def _found(self, record: TaskRecord) -> LeasedTask | None:
        """The task, if the record is there; where it lands later, the next round finds it."""
        try:
            stored = (await self._ports.records.load([record.stream])).found.get(record.stream)
        except Failure:
            return None
        return LeasedTask(stored) if stored is not None and stored.record == record else None

    def _lease(self) -> Lease:
        return Lease(self._holder, self._ports.clock.now_ms() + self._ports.options.lease_ms)

    async def _work(
        self,
        held: Sequence[LeasedTask],
        ended: Sequence[LeasedTask],
        topics: Mapping[str, IndexedTopic],
    ) -> None:
        """Take all tasks on; topics and jobs do not wait for each other."""
        created = [leased for leased in held if leased.record.state is TaskState.CREATED]
        ready = [leased for leased in held if leased.record.state is not TaskState.CREATED]
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(self._file_jobs.renew())
            try:
                async with asyncio.TaskGroup() as works:
                    for leased_tasks in _by_topic([*ready, *ended]):
                        works.create_task(self._finish(leased_tasks))
                    works.create_task(self._write(created, topics))
            finally:
                renewing.cancel()

    async def _write(
        self, created: Sequence[LeasedTask], topics: Mapping[str, IndexedTopic]
    ) -> None:
        if not created:
            return
        try:
            writes = await self._file_jobs.writes_for(created)
        except Failure as error:
            self._counters.problem(f"looking: {type(error).__name__}: {error}")
            return
        waiting = {write.leased.stream for write in writes}
        async with asyncio.TaskGroup() as group:
            for job in jobs_of(writes, job_bytes=self._ports.options.job_bytes):
                group.create_task(self._job(job, topics))
            for leased_tasks in _by_topic(
                [leased for leased in created if leased.stream not in waiting]
            ):
                group.create_task(self._finish(leased_tasks))

    async def _job(self, job: EngineJob, topics: Mapping[str, IndexedTopic]) -> None:
        await self._file_jobs.run(job, topics)
        async with asyncio.TaskGroup() as group:
            for leased_tasks in _by_topic([write.leased for write in job.writes]):
                group.create_task(self._finish(leased_tasks))

    async def _finish(self, leased_tasks: Sequence[LeasedTask]) -> None:
        topic = leased_tasks[0].record.topic
        await self._executor.finish(topic, leased_tasks)
        self._counters.done(topic)


def _by_topic(leased_tasks: Iterable[LeasedTask]) -> list[list[LeasedTask]]:
    """The tasks of each topic; one made again under its name is another."""
    by_topic: dict[tuple[str, bytes], list[LeasedTask]] = {}
    for leased in leased_tasks:
        by_topic.setdefault((leased.record.topic, bytes(leased.record.topic_id)), []).append(leased)
    return list(by_topic.values())


def _leftovers(records: StoredRecords, topics: Sequence[IndexedTopic]) -> list[LeasedTask]:
    """Ended records of streams of no topic: whether a stream is gone, the look at it says.

    An ended record is nobody's, so whoever finds it may forget it.
    """
    known = {stream for topic in topics for stream in topic.streams}
    return [
        LeasedTask(stored)
        for stream, stored in records.found.items()
        if stream not in known and not is_open(stored.record)
    ]
