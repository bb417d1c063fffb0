"""The function that Spark runs on its executors: bins of tasks in, one row a task out.

Rules: a task never raises for its input, for that would end the whole job and leave the tasks
beside it half done: whatever goes wrong is a row that says so. Only a lost process is Spark's
business, which tries the bin again. Small tasks of a bin run together, for they mostly wait for the
store; large ones one after another, so that memory is bounded by one of them.

A Python worker of Spark keeps a loop, the object store and a thread from task to task
(`WorkerRuntime`): opened once per process, for a worker that Spark uses again must not pay twice;
files that are built lie where Spark has its own temporary files; on a cluster the credentials that
the executor finds around itself win over those that travelled.
"""

import asyncio
import os
import pickle
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from lakelog import __version__
from lakelog.clock import SystemClock, SystemEntropy
from lakelog.config.stores import open_objects
from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import FailureKind, FileAnswer, FileFailure, FileTask
from lakelog.pipeline.files.run_task import run_task
from lakelog.records.kernels import keep_freed_memory

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_SECRET_WORDS: Final = ("access_key", "secret", "session_token", "token", "sas", "credential")
_OWN_CREDENTIALS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How a worker gets at the objects."""

    url: str
    options: tuple[tuple[str, str], ...]
    is_elsewhere: bool
    """The worker runs on another machine, which may have credentials of its own."""


class WorkerRuntime:
    """The loop, the store and the thread of this process."""

    def __init__(self, address: StoreAddress, environment: Mapping[str, str]) -> None:
        options = worker_options(address, environment)
        self._runner = asyncio.Runner()
        try:
            self.objects: ObjectStore = self._runner.run(
                open_objects(address.url, options, SystemClock(), SystemEntropy())
            )
        except BaseException:
            self._runner.close()
            raise
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="lakelog-rows")
        """One thread: a worker has one slot, and its loop reads meanwhile."""
        keep_freed_memory()
        self.directory = _directory(environment)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end on the loop of this process."""
        return self._runner.run(work)

    def close(self) -> None:
        """End the loop, the store and the thread; a worker that Spark ends does not bother."""
        self._runner.run(self.objects.close())
        self._runner.close()
        self.pool.shutdown()


_runtimes: dict[StoreAddress, WorkerRuntime] = {}


def runtime_of(address: StoreAddress) -> WorkerRuntime:
    """That of this process, opened when it is first asked for; raises `Refused`."""
    runtime = _runtimes.get(address)
    if runtime is None:
        environment = os.environ  # noqa: TID251 - Spark tells its workers by the environment
        runtime = _runtimes[address] = WorkerRuntime(address, environment)
    return runtime


def worker_options(address: StoreAddress, environment: Mapping[str, str]) -> dict[str, str]:
    """The store's options as this worker uses them."""
    options = dict(address.options)
    if not address.is_elsewhere or not any(environment.get(name) for name in _OWN_CREDENTIALS):
        return options
    return {
        name: value
        for name, value in options.items()
        if not any(word in name.lower() for word in _SECRET_WORDS)
    }


def _directory(environment: Mapping[str, str]) -> str | None:
    """The first of Spark's own directories that is there, None for the system's."""
    for directory in environment.get("SPARK_LOCAL_DIRS", "").split(","):
        if directory and os.access(directory, os.W_OK):
            return directory
    return None


ROW: Final = "place int, answer binary"
"""What comes back for each task: its place among the tasks of the job, and its answer."""

SMALL_BYTES: Final = 1 << 20
SMALL_AT_ONCE: Final = 8
TINY_BYTES: Final = 64 << 10
"""What the loop works on itself: a millisecond, and the ways to the thread were a sixth more."""

Numbered: TypeAlias = tuple[int, FileTask]


class OtherVersionError(Exception):
    """The executor has another Lakelog than the driver: nothing it would answer can be trusted."""


def encode_bin(tasks: Iterable[Numbered]) -> bytes:
    """Tasks as they travel. Driver and executors are of one version: the probe sees to that."""
    return pickle.dumps(tuple(tasks), protocol=5)


def decode_bin(data: bytes) -> tuple[Numbered, ...]:
    """Tasks as their driver sent them."""
    tasks: tuple[Numbered, ...] = pickle.loads(data)  # noqa: S301 - from our own driver
    return tasks


def decode_answer(data: bytes) -> FileAnswer:
    """An answer as an executor sent it."""
    answer: FileAnswer = pickle.loads(data)  # noqa: S301 - from an executor that runs our code
    return answer


@dataclass(frozen=True, slots=True)
class BinJob:
    """Row number N of Spark's range is bin number N."""

    address: StoreAddress
    bins: tuple[bytes, ...]
    version: str = __version__

    def __call__(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Run the bins of these rows."""
        if self.version != __version__:
            raise OtherVersionError(
                f"the driver has lakelog {self.version} and this executor {__version__}:"
                " install the same version on both"
            )
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _rows(run_bin(self.address, decode_bin(self.bins[number])))


def run_bin(address: StoreAddress, tasks: Sequence[Numbered]) -> list[tuple[int, FileAnswer]]:
    """The answer to each of them."""
    try:
        runtime = runtime_of(address)
    except Failure as error:
        return [(number, failure_of(task, error)) for number, task in tasks]
    return runtime.run(_run_all(runtime, tasks))


async def _run_all(
    runtime: WorkerRuntime, tasks: Sequence[Numbered]
) -> list[tuple[int, FileAnswer]]:
    small = [numbered for numbered in tasks if numbered[1].input_bytes <= SMALL_BYTES]
    answers = [answer async for answer in _together(runtime, small)]
    for number, task in tasks:
        if task.input_bytes > SMALL_BYTES:
            answers.append((number, await _answer(runtime, task)))
    return answers


async def _together(
    runtime: WorkerRuntime, tasks: Sequence[Numbered]
) -> AsyncIterator[tuple[int, FileAnswer]]:
    slots = asyncio.Semaphore(SMALL_AT_ONCE)

    async def one(task: FileTask) -> FileAnswer:
        async with slots:
            return await _answer(runtime, task)

    async with asyncio.TaskGroup() as group:
        running = [(number, group.create_task(one(task))) for number, task in tasks]
    for number, ran in running:
        yield number, ran.result()


async def _answer(runtime: WorkerRuntime, task: FileTask) -> FileAnswer:
    pool = runtime.pool if task.input_bytes > TINY_BYTES else None
    try:
        return await run_task(runtime.objects, task, pool=pool, directory=runtime.directory)
    except Exception as error:  # noqa: BLE001 - a bug in one task must not end the others
        return failure_of(task, error)


def failure_of(task: FileTask, error: Exception) -> FileFailure:
    """The answer to a task whose worker raised."""
    reason = f"{type(error).__name__}: {error}"
    return FileFailure(
        task.task_id, task.attempt, FailureKind.UNAVAILABLE, reason, "", task.start, task.end
    )


def _rows(answers: Sequence[tuple[int, FileAnswer]]) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - the driver makes jobs without it

    places = pa.array([number for number, _ in answers], pa.int32())
    encoded = pa.array([pickle.dumps(answer, protocol=5) for _, answer in answers], pa.binary())
    return pa.RecordBatch.from_arrays([places, encoded], names=["place", "answer"])
