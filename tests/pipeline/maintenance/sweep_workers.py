"""Workers that run the real saga, one look or one act at a time; what they saw may be old."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.pipeline.maintenance.sweep_ground import SPACE, Ground
from tests.pipeline.maintenance.sweep_tables import File, Staged, Stream

from lakelog.catalog.port import TableName
from lakelog.index.ports import StreamView
from lakelog.model.failures import Conflict, NotFound
from lakelog.model.ids import TopicId
from lakelog.pipeline.saga.steps import (
    AppendSwap,
    CommitTable,
    Forget,
    Mark,
    MoveTable,
    Observation,
    ReplaceFiles,
    Step,
    WriteFile,
    abandon,
    next_step,
)
from lakelog.pipeline.saga.table_view import PartitionTableView as SagaTable
from lakelog.pipeline.saga.task_record import (
    LeaseId,
    TaskRecord,
    claim,
    create,
    decode_record,
    is_open,
    lease_of,
    output_key,
    task_key,
)
from lakelog.pipeline.saga.values import (
    DataFile,
    Fact,
    FileWritten,
    PlannedTask,
    TableMoved,
    TaskTarget,
    Trigger,
)
from lakelog.streams.objects import FileKind


@dataclass
class Worker:
    """A holder of a task; what it saw may be old by the time it acts."""

    stream: int
    held: LeaseId
    fact: Fact | None = None
    looks: int = 0
    table: SagaTable | None = None
    view: StreamView | None = None
    version: int = 0
    step: Step | None = None
    change: Staged | None = None
    sleeps: bool = False


class Workshop(Ground):
    """The ground with workers on it."""

    def __init__(self, script: Iterator[int]) -> None:
        super().__init__(script)
        self.workers: list[Worker] = []

    async def wake(self) -> None:
        """Those that fell asleep in the middle of a commit go on."""
        for worker in self.workers:
            worker.sleeps = False

    async def begin(self) -> None:
        stream = self.pick(self.alive())
        table = None if stream is None else self.table_of(stream)
        run = [] if table is None else stream.run_of(FileKind.WAL)
        size = next(self.script, 0) % 3
        run = run[: size + 1]
        if run and table is not None and (table.offset or 0) <= run[0].start:
            planned = self.planned(stream, run[0].start, run[-1].end, TaskTarget.TABLE)
            await self.create(planned)

    async def begin_rewrite(self) -> None:
        stream = self.pick(self.alive())
        table = None if stream is None else self.table_of(stream)
        run = [] if table is None else stream.run_of(FileKind.PARQUET)
        names = tuple(one.name.key for one in run)
        live = () if table is None else tuple(file.key for file in table.files)
        if len(names) > 1 and set(names) <= set(live):
            starts = {file.key: file.start for file in table.files} if table else {}
            target = TaskTarget.CLEAN if next(self.script, 0) % 4 == 0 else TaskTarget.REWRITE
            planned = self.planned(stream, starts[names[0]], run[-1].end, target, names)
            await self.create(planned)

    def planned(
        self, stream: Stream, start: int, end: int, target: TaskTarget, inputs: tuple[str, ...] = ()
    ) -> PlannedTask:
        table = self.table_of(stream)
        return PlannedTask(
            stream=stream.number,
            topic_id=stream.topic_id,
            topic=stream.topic,
            partition=0,
            target=target,
            start=start,
            end=end,
            expected=table.offset if table and target is TaskTarget.TABLE else None,
            input_bytes=1,
            entry_count=1,
            oldest_ms=1,
            planned_ms=1,
            trigger=Trigger.AGE,
            inputs=inputs,
        )

    async def create(self, planned: PlannedTask) -> None:
        before, version = await self.record(planned.stream)
        if before is None or not is_open(before):
            record = create(before, planned, self.lease())
            await self.put(record, version)
            self.workers.append(Worker(record.stream, lease_of(record)))

    async def take_over(self) -> None:
        found = await self.meta.range(task_key(0)[:-1])
        record = self.pick([decode_record(one.value) for one in found])
        if record is not None:
            _, version = await self.record(record.stream)
            claimed = claim(record, self.lease())
            await self.put(claimed, version)
            self.workers.append(Worker(record.stream, lease_of(claimed)))

    async def crash(self) -> None:
        if self.workers:
            self.workers.remove(self.pick(self.workers))

    async def abandon(self) -> None:
        worker = self.pick(self.workers)
        if worker is not None:
            record, version = await self.record(worker.stream)
            if record is not None and lease_of(record) == worker.held:
                mark = abandon(record, "given up")
                if mark is not None:
                    await self.put(mark.record, version)

    async def work(self, worker: Worker) -> None:
        """One look or one act of a worker: table, index, record, and then what follows."""
        stream = self.streams.get(worker.stream)
        match worker.looks:
            case 0:
                worker.table = await self.saga_table(worker)
            case 1:
                worker.view = None if stream is None else stream.view()
            case 2:
                record, worker.version = await self.record(worker.stream)
                seen = Observation(worker.table, worker.view, record)
                worker.step = next_step(seen, held=worker.held, fact=worker.fact)
                worker.fact = None
            case _:
                if await self.act(worker):
                    return  # half done
                worker.looks, worker.change = 0, None
                return
        worker.looks += 1

    async def saga_table(self, worker: Worker) -> SagaTable | None:
        record, _ = await self.record(worker.stream)
        if record is None:
            return None
        table = self.catalog.tables.get(TableName(SPACE, record.topic))
        if table is None:
            return None
        inside = [one for one in table.files if one.end > record.start and one.start < record.end]
        keys = tuple(one.key for one in inside)
        topic_id = TopicId(bytes.fromhex(table.topic_id))
        return SagaTable(topic_id, table.token, table.offset, keys)

    async def act(self, worker: Worker) -> bool:
        """Do the step; True when it needs another turn."""
        step = worker.step
        try:
            match step:
                case WriteFile(record=record):
                    worker.fact = FileWritten(await self.written(record))
                case CommitTable() | ReplaceFiles() | MoveTable():
                    return await self.change_table(worker, step)
                case AppendSwap(swap=swap):
                    if swap.stream in self.streams:
                        self.streams[swap.stream].swap(swap)
                case Mark(record=record):
                    await self.put(record, worker.version)
                case Forget():
                    await self.meta.put(task_key(worker.stream), None, expect=worker.version)
                case _:
                    if worker in self.workers:
                        self.workers.remove(worker)
        except (Conflict, NotFound):
            pass
        return False

    async def written(self, record: TaskRecord) -> DataFile:
        key = output_key(record, attempt=f"{self.number():x}")
        await self.guard.put(key, [b"x"])
        rows = 0 if record.target is TaskTarget.CLEAN else 1
        return DataFile(key, record.output_kind, record.start, record.end, rows, 1, 1)

    async def change_table(
        self, worker: Worker, step: CommitTable | ReplaceFiles | MoveTable
    ) -> bool:
        if worker.change is not None:
            await self.land(worker.change)
            if isinstance(step, MoveTable) and next(self.script, 0) % 4:
                worker.fact = TableMoved()
            return False
        record, _ = await self.record(worker.stream)
        table = None if record is None else self.catalog.tables.get(TableName(SPACE, record.topic))
        if table is None or table.token != step.token:
            raise Conflict("not the token")
        files, offset = table.files, table.offset
        if isinstance(step, CommitTable):
            files = (*files, File(step.file.name.key, step.record.start, step.record.end))
            offset = step.after
        elif isinstance(step, ReplaceFiles):
            new = File(step.file.name.key, step.record.start, step.record.end)
            at = [one.key for one in files].index(step.inputs[0])
            left = [one for one in files if one.key not in step.inputs]
            files = (*left[:at], *([new] if step.file.row_count else []), *left[at:])
        worker.change = await self.stage(table, files, offset)
        worker.sleeps = next(self.script, 0) % 3 == 0
        return True
