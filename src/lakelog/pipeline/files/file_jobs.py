"""Has an engine write the files of held tasks, and keeps their leases while it works.

A job that fails as a whole leaves its tasks as they are: they have no file, and the next round asks
for other ones. A lease is renewed by a put with the version that this holder wrote last; when that
is refused, the task is another's, and the look after the job finds it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from lakelog.clock import Entropy
from lakelog.index.ports import IndexedTopic
from lakelog.log.log import domain_of
from lakelog.model.failures import Failure
from lakelog.pipeline.files.file_task import (
    MESSAGE_BYTES_MAX,
    FileAnswer,
    FileResult,
    FileTask,
)
from lakelog.pipeline.files.file_writes import ATTEMPT_BYTES, EngineJob, FileWrite, fact_of, task_of
from lakelog.pipeline.options import reading, together
from lakelog.pipeline.ports import LimitedPorts, TaskEngine
from lakelog.pipeline.round_counters import RoundCounters
from lakelog.pipeline.saga.observe import LeasedTask, observe_index
from lakelog.pipeline.saga.steps import WriteFile, next_step
from lakelog.pipeline.saga.task_record import TaskRecord, renew
from lakelog.pipeline.saga.values import TaskTarget
from lakelog.telemetry import event

_log = logging.getLogger("lakelog.pipeline")

RENEWALS_PER_LEASE = 3
"""How often a lease is renewed before it would run out."""


class FileJobs:
    """The files that one round has written."""

    def __init__(
        self, ports: LimitedPorts, engine: TaskEngine, entropy: Entropy, counters: RoundCounters
    ) -> None:
        self._ports = ports
        self._engine = engine
        self._entropy = entropy
        self._counters = counters
        self._places = asyncio.Semaphore(ports.options.jobs_max)
        self._leased: dict[int, LeasedTask] = {}
        self._kept_offsets: dict[str, bytes] = {}

    def set_kept_offsets(self, record: TaskRecord, kept_offsets: bytes) -> None:
        """These are the offsets that a task of log compaction keeps."""
        self._kept_offsets[record.name] = kept_offsets

    async def writes_for(self, leased_tasks: Sequence[LeasedTask]) -> list[FileWrite]:
        """Those of these tasks that need a file; their leases are kept from here on."""
        writes = []
        for task in await observe_index(self._ports, leased_tasks):
            step = next_step(task.observation, held=task.leased.held)
            if not isinstance(step, WriteFile):
                continue
            task.leased.put(step.record, task.version)
            kept_offsets = self._kept_offsets.get(step.record.name)
            if step.record.target is TaskTarget.CLEAN and kept_offsets is None:
                task.leased.given_up = "which rows stay was known to its former holder alone"
                continue
            writes.append(FileWrite(task.leased, step, kept_offsets))
            self._leased[task.leased.stream] = task.leased
        return writes

    async def run(self, job: EngineJob, topics: Mapping[str, IndexedTopic]) -> None:
        """Have the files of a job written; each task then knows what became of its own."""
        tasks = await together(self._task(write, topics) for write in job.writes)
        asked = [
            (write, task) for write, task in zip(job.writes, tasks, strict=True) if task is not None
        ]
        try:
            await self._ask([write for write, _ in asked], [task for _, task in asked])
        finally:
            for write in job.writes:
                self._leased.pop(write.leased.stream, None)

    async def _task(self, write: FileWrite, topics: Mapping[str, IndexedTopic]) -> FileTask | None:
        """What the engine is asked for; None while the ids of the table's columns are unknown."""
        record = write.step.record
        field_ids: tuple[tuple[str, int], ...] = ()
        try:
            if record.target is not TaskTarget.LOG:
                field_ids = await self._ports.field_ids(record.topic, record.topic_id)
        except Failure as error:
            reason = f"its table: {type(error).__name__}: {error}"
            self._counters.problem(reason, topic=record.topic, partition=record.partition)
            return None
        return task_of(
            write,
            attempt=self._entropy.token(ATTEMPT_BYTES).hex(),
            domain=domain_of(write.leased.stream, self._ports.options.domains),
            message_bytes_max=_message_bytes_max(topics, write),
            field_ids=field_ids,
        )

    async def _ask(self, writes: Sequence[FileWrite], tasks: Sequence[FileTask]) -> None:
        if not tasks:
            return
        try:
            async with self._places:
                answers = await self._ports.effects.do(
                    "put file",
                    lambda: reading(self._engine.run(tasks), limit_s=self._ports.options.job_s),
                )
            assert len(answers) == len(tasks), (len(answers), len(tasks))
        except Failure as error:
            for topic in {write.leased.record.topic: None for write in writes}:
                self._counters.problem(f"the engine: {type(error).__name__}: {error}", topic=topic)
        else:
            for write, answer in zip(writes, answers, strict=True):
                self._take(write, answer)

    async def renew(self) -> None:
        """Keep the leases of tasks that wait for their files, until this is cancelled."""
        every_s = self._ports.options.lease_ms / 1000 / RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(every_s)
            held = list(self._leased.values())
            await together(self._renewed(leased) for leased in held)

    async def _renewed(self, leased: LeasedTask) -> None:
        end_ms = self._ports.clock.now_ms() + self._ports.options.lease_ms
        record = renew(leased.record, lease_end_ms=end_ms)
        try:
            version = await self._ports.records.put(record, version=leased.version)
        except Failure:
            self._leased.pop(leased.stream, None)  # another's, or unknown: the look will tell
        else:
            leased.put(record, version)

    def _take(self, write: FileWrite, answer: FileAnswer) -> None:
        record = write.leased.record
        fact = fact_of(write, answer)
        if isinstance(fact, str):
            self._counters.problem(fact, topic=record.topic, partition=record.partition)
        else:
            write.leased.fact = fact
        if isinstance(answer, FileResult):
            if answer.left_out:
                _say_left_out(record, answer)
            self._counters.topic(record.topic).read_bytes += answer.read_bytes


def _say_left_out(record: TaskRecord, answer: FileResult) -> None:
    """Say what the table lacks for ever, while the log has it."""
    event(
        _log,
        "batches_left_out",
        logging.WARNING,
        topic=record.topic,
        partition=record.partition,
        batches=len(answer.left_out),
        offsets=sum(end - start for start, end in answer.left_out),
        first=answer.left_out[0][0],
        last=answer.left_out[-1][1] - 1,
    )


def _message_bytes_max(topics: Mapping[str, IndexedTopic], write: FileWrite) -> int:
    record = write.step.record
    topic = topics.get(record.topic)
    known = topic is not None and topic.topic_id == record.topic_id
    return topic.message_bytes_max if topic is not None and known else MESSAGE_BYTES_MAX
