"""The engine on Spark: tasks are packed into bins, and each run is one job of the warm session.

Rules: one row for each task comes back, or the run failed as a whole and is `Unavailable`; a run
that is cancelled ends its job within a second, and nothing that it answered is used. Jobs run from
threads, so that a slow one holds back no other.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from lakelog.model.failures import Refused, Unavailable
from lakelog.pipeline.files.file_task import BinOptions, FileAnswer, FileTask, pack
from lakelog.pipeline.spark import diagnosis
from lakelog.pipeline.spark.diagnosis import is_lost, one_line, spark_failures, text_of
from lakelog.pipeline.spark.executor_job import ROW, BinJob, StoreAddress, decode_answer, encode_bin
from lakelog.pipeline.spark.session import SessionStart, WarmSession
from lakelog.pipeline.spark.settings import SparkOptions, check_reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_AGAIN_S: Final = 0.05
"""A job that was not submitted yet cannot be cancelled yet."""

T = TypeVar("T")
_Row = tuple[int, bytes]


class SparkFailed(Unavailable):
    """A job failed as a whole; `text` is all that Spark says about it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Spark: {one_line(text)}")
        self.text = text


@dataclass(slots=True)
class _Run:
    """One call of Spark, on a thread."""

    name: str
    is_cancelled: bool = False


class SparkEngine:
    """Runs tasks on the executors of one session."""

    def __init__(
        self,
        session: WarmSession,
        pool: ThreadPoolExecutor,
        address: StoreAddress,
        options: SparkOptions,
    ) -> None:
        """Use `open` instead, which also looks at the executors."""
        self._session = session
        self._pool = pool
        # Of its own: a job is to be ended also when all the others are busy.
        self._control = ThreadPoolExecutor(1, thread_name_prefix="lakelog-spark-control")
        self._address = address
        self._options = options
        self._slots = 1
        self._numbers = itertools.count(1)
        self._loss: str | None = None
        self.bins = BinOptions()

    @classmethod
    async def open(
        cls, options: SparkOptions, objects_url: str, objects_options: Mapping[str, str]
    ) -> "SparkEngine":
        """Start Spark and look at its executors; raises `Refused` and `Unavailable`."""
        check_reach(options, objects_url)
        address = StoreAddress(
            objects_url, tuple(sorted(objects_options.items())), not options.is_local
        )
        pool = ThreadPoolExecutor(options.jobs_max, thread_name_prefix="lakelog-spark")
        try:
            session = await _session(options, pool)
        except BaseException:
            pool.shutdown(wait=False)
            raise
        engine = cls(session, pool, address, options)
        try:
            await engine.probe()
        except BaseException:
            await engine.close()
            raise
        return engine

    @property
    def slots(self) -> int:
        """How many bins run at the same time."""
        return self._slots

    @property
    def address(self) -> StoreAddress:
        """How executors get at the objects."""
        return self._address

    @property
    def spark(self) -> "SparkSession":
        """The session, for jobs of other kinds; call it through `call`."""
        return self._session.spark

    @property
    def loss(self) -> str | None:
        """Why this engine can do nothing any more; None as long as it can."""
        return self._loss

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        """The answer to each task, in order; `Unavailable` when the job as a whole failed."""
        if not tasks:
            return ()
        sizes = [task.input_bytes for task in tasks]
        bins = pack(sizes, slots=self._slots, options=self.bins)
        encoded = tuple(encode_bin((place, tasks[place]) for place in places) for places in bins)
        job = BinJob(self._address, encoded)
        rows = await self.call(lambda: self._collect(job))
        return _answers(tasks, rows)

    async def probe(self) -> None:
        """Look at the executors; raises `Refused` when one does not fit."""
        remote = self._address.url.partition(":")[0] != "file"
        try:
            found = await self.call(lambda: diagnosis.ask(self.spark, needs_remote=remote))
        except SparkFailed as error:
            explained = diagnosis.explain(error.text)
            if explained is None:
                raise
            raise Refused(explained) from error
        diagnosis.judge(found, diagnosis.this_process())
        self._slots = max(1, len(found))

    async def warm(self) -> None:
        """Have every slot load what its tasks will need, which takes seconds the first time."""
        job = BinJob(self._address, (encode_bin(()),) * self._slots)
        await self.call(lambda: self._collect(job))

    async def call(self, work: Callable[[], T]) -> T:
        """Do on a thread what makes Spark run one job or several; cancelling ends them."""
        run = _Run(f"lakelog-{next(self._numbers)}")
        future = self._pool.submit(self._on_thread, run, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            run.is_cancelled = True
            await self._cancel(run, future)
            raise

    async def close(self) -> None:
        """End Spark; what runs is cancelled first by those who wait for it."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._control, self._session.close)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._control.shutdown(wait=False)

    def _collect(self, job: BinJob) -> list[_Row]:
        count = len(job.bins)
        frame = self.spark.range(0, count, 1, count).mapInArrow(job, ROW)
        return [(row[0], bytes(row[1])) for row in frame.collect()]

    def _on_thread(self, run: _Run, work: Callable[[], T]) -> T:
        try:
            self._session.jobs.begin(run.name)
            try:
                if run.is_cancelled:
                    raise Unavailable("the job was cancelled before it began")
                return work()
            finally:
                self._session.jobs.end(run.name)
        except spark_failures() as error:
            text = self._session.ending() or text_of(error)
            if self._session.ending() is not None or is_lost(error, text):
                self._loss = one_line(text)
            # Without its cause, whose text would be asked of a Spark that may be dead.
            raise SparkFailed(text) from None

    async def _cancel(self, run: _Run, future: "Future[T]") -> None:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        try:
            async with asyncio.timeout(self._options.cancel_s):
                while not ended.is_set():
                    await loop.run_in_executor(self._control, self._cancel_once, run.name)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(CANCEL_AGAIN_S):
                            await ended.wait()
        except TimeoutError:
            return  # whatever it still answers, nobody hears

    def _cancel_once(self, name: str) -> None:
        with contextlib.suppress(*spark_failures()):  # a dead Spark runs no job
            self._session.jobs.cancel(name)


async def _session(options: SparkOptions, pool: ThreadPoolExecutor) -> WarmSession:
    """A new session; when this is cancelled, nothing of it is left."""
    start = SessionStart(options)
    future = pool.submit(start.run)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        start.cancel()
        future.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(future: "Future[WarmSession]") -> None:
    """The session came although nobody wants it any more."""
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _answers(tasks: Sequence[FileTask], rows: Sequence[_Row]) -> list[FileAnswer]:
    """One for each task, in their order, each checked to be about its task."""
    by_place = {place: decode_answer(data) for place, data in rows}
    if len(rows) != len(tasks) or set(by_place) != set(range(len(tasks))):
        raise Unavailable(f"Spark: {len(rows)} answers came back to {len(tasks)} tasks")
    answers = [by_place[place] for place in range(len(tasks))]
    for task, answer in zip(tasks, answers, strict=True):
        if (answer.task_id, answer.attempt) != (task.task_id, task.attempt):
            raise Unavailable(f"Spark: task {task.task_id} was answered for {answer.task_id}")
    return answers
