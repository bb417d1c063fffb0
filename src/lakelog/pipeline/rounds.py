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
from lakelog.pipeline.maintenance.scheduler import MaintenanceScheduler, ReplacementSpec
from lakelog.pipeline.options import PipelineOptions, together
from lakelog.pipeline.planning.backfill import BackfillCandidates
from lakelog.pipeline.planning.planner import Planner
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
        self._shop = LimitedPorts(records, index, tables, clock, options, effects or Effects())
        self._shelf = TableLifecycle(self._shop)
        self._lacking = BackfillCandidates()
        self._upkeep = MaintenanceScheduler(self._shop, scanner, objects, self._lacking)
        self._one_at_a_time = asyncio.Lock()

    async def round(self) -> RoundReport:
        """One round; it raises for bugs alone."""
        async with self._one_at_a_time:
            tally = RoundCounters(self._shop.clock)
            parts = _Parts(
                self._shelf,
                Planner(self._shop, self._shelf, self._objects, tally, self._lacking),
                self._upkeep,
                FileJobs(self._shop, self._engine, self._entropy, tally),
            )
            await _Round(self._shop, parts, tally, holder=self.holder).run()
            tally.scans = self._upkeep.scans
            return tally.report()

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
        await self._upkeep.settled()

    async def close(self) -> None:
        """End scans, and let go of open tasks, so that another takes them at once."""
        async with self._one_at_a_time:
            await self._upkeep.close()
            try:
                records = await self._shop.records.load_all()
            except Failure:
                return  # the leases run out by themselves
            own = [
                one
                for one in records.found.values()
                if one.record.holder == self.holder and is_open(one.record)
            ]
            async with asyncio.TaskGroup() as group:
                for one in own:
                    group.create_task(self._let_go(one))

    async def _let_go(self, stored: StoredRecord) -> None:
        try:
            record = renew(stored.record, lease_end_ms=0)
            await self._shop.records.put(record, version=stored.version)
        except Failure:
            return  # as above


@dataclass(frozen=True, slots=True)
class _Parts:
    """Who does what in a round."""

    shelf: TableLifecycle
    planner: Planner
    upkeep: MaintenanceScheduler
    desk: FileJobs


class _Round:
    """One round."""

    def __init__(
        self, shop: LimitedPorts, parts: _Parts, tally: RoundCounters, *, holder: str
    ) -> None:
        self._shop = shop
        self._shelf = parts.shelf
        self._planner = parts.planner
        self._upkeep = parts.upkeep
        self._desk = parts.desk
        self._tally = tally
        self._holder = holder
        self._driver = TaskExecutor(shop, tally)

    async def run(self) -> None:
        """Look at everything and do what there is to do."""
        names = await self._shelf.names(self._tally)
        try:
            topics = await self._shop.topics()
            records = await self._shop.records.load_all()
        except Failure as error:
            self._tally.hinder(f"looking: {type(error).__name__}: {error}")
            return
        self._shop.keep(topics)
        for topic in topics:
            self._tally.begin(topic)
        for key, reason in sorted(records.broken.items()):
            self._tally.hinder(f"{key}: {reason}")
        if names is not None:
            await self._shelf.keep(names, topics, self._tally)
        held = await self._adopt(records)
        replacing = await self._upkeep.plan(topics, records, self._tally)
        taken = self._upkeep.marked | {one.beginning.planned.stream for one in replacing}
        beginnings = await self._planner.plan(topics, records, taken=taken)
        held += await self._begin([*replacing, *map(ReplacementSpec, beginnings)])
        for one in held:
            self._tally.topic(one.record.topic).tasks += 1
        await self._work(held, _leftovers(records, topics), {one.name: one for one in topics})

    async def _adopt(self, records: StoredRecords) -> list[LeasedTask]:
        """Our own open tasks, and those that nobody seems to work on."""
        now_ms = self._shop.clock.now_ms()
        open_ones = [
            one
            for stream, one in records.found.items()
            if is_open(one.record) and not self._shop.pauses.holds(stream)
        ]
        own = [LeasedTask(one) for one in open_ones if one.record.holder == self._holder]
        others = [one for one in open_ones if one.record.holder != self._holder]
        free = [one for one in others if claimable(one.record, now_ms=now_ms)]
        claims = [("claim task", claim(one.record, self._lease()), one.version) for one in free]
        taken = await self._put_all(claims)
        self._tally.adopted += len(taken)
        return own + taken

    async def _begin(self, beginnings: Sequence[ReplacementSpec]) -> list[LeasedTask]:
        lease = self._lease()
        creations = []
        for one in beginnings:
            previous, planned = one.beginning.previous, one.beginning.planned
            record = create(None if previous is None else previous.record, planned, lease)
            if one.kept is not None:
                self._desk.know(record, one.kept)
                self._upkeep.begun(one, record)
            creations.append(("create task", record, 0 if previous is None else previous.version))
        begun = await self._put_all(creations)
        self._tally.created += len(begun)
        return begun

    async def _put_all(self, puts: Iterable[tuple[str, TaskRecord, int]]) -> list[LeasedTask]:
        """Those of these records that became ours for certain."""
        found = await together(self._put(*one) for one in puts)
        self._tally.attempted += len(found)
        return [one for one in found if one is not None]

    async def _put(self, effect: str, record: TaskRecord, version: int) -> LeasedTask | None:
        try:
            put = self._shop.records.put
            now = await self._shop.effects.do(effect, lambda: put(record, version=version))
        except Conflict:
            return None  # another was first
        except OutcomeUnknown:
            return await self._found(record)
        except Failure as error:
            self._tally.hinder(f"{effect}: {type(error).__name__}: {error}", topic=record.topic)
            return None
        return LeasedTask(StoredRecord(record, now))

    async def _found(self, record: TaskRecord) -> LeasedTask | None:
        """The task, if the record is there; where it lands later, the next round finds it."""
        try:
            stored = (await self._shop.records.load([record.stream])).found.get(record.stream)
        except Failure:
            return None
        return LeasedTask(stored) if stored is not None and stored.record == record else None

    def _lease(self) -> Lease:
        return Lease(self._holder, self._shop.clock.now_ms() + self._shop.options.lease_ms)

    async def _work(
        self,
        held: Sequence[LeasedTask],
        ended: Sequence[LeasedTask],
        topics: Mapping[str, IndexedTopic],
    ) -> None:
        """Take all tasks on; topics and jobs do not wait for each other."""
        created = [one for one in held if one.record.state is TaskState.CREATED]
        ready = [one for one in held if one.record.state is not TaskState.CREATED]
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(self._desk.renew())
            try:
                async with asyncio.TaskGroup() as works:
                    for some in _by_topic([*ready, *ended]):
                        works.create_task(self._finish(some))
                    works.create_task(self._write(created, topics))
            finally:
                renewing.cancel()

    async def _write(
        self, created: Sequence[LeasedTask], topics: Mapping[str, IndexedTopic]
    ) -> None:
        if not created:
            return
        try:
            writes = await self._desk.wanted(created)
        except Failure as error:
            self._tally.hinder(f"looking: {type(error).__name__}: {error}")
            return
        waiting = {write.holding.stream for write in writes}
        async with asyncio.TaskGroup() as group:
            for job in jobs_of(writes, job_bytes=self._shop.options.job_bytes):
                group.create_task(self._job(job, topics))
            for some in _by_topic([one for one in created if one.stream not in waiting]):
                group.create_task(self._finish(some))

    async def _job(self, job: EngineJob, topics: Mapping[str, IndexedTopic]) -> None:
        await self._desk.run(job, topics)
        async with asyncio.TaskGroup() as group:
            for some in _by_topic([write.holding for write in job.writes]):
                group.create_task(self._finish(some))

    async def _finish(self, holdings: Sequence[LeasedTask]) -> None:
        topic = holdings[0].record.topic
        await self._driver.finish(topic, holdings)
        self._tally.done(topic)


def _by_topic(holdings: Iterable[LeasedTask]) -> list[list[LeasedTask]]:
    """The tasks of each topic; one made again under its name is another."""
    found: dict[tuple[str, bytes], list[LeasedTask]] = {}
    for one in holdings:
        found.setdefault((one.record.topic, bytes(one.record.topic_id)), []).append(one)
    return list(found.values())


def _leftovers(records: StoredRecords, topics: Sequence[IndexedTopic]) -> list[LeasedTask]:
    """Ended records of streams of no topic: whether a stream is gone, the look at it says.

    An ended record is nobody's, so whoever finds it may forget it.
    """
    known = {stream for topic in topics for stream in topic.streams}
    return [
        LeasedTask(one)
        for stream, one in records.found.items()
        if stream not in known and not is_open(one.record)
    ]
