"""The output of a worker: a temporary file that becomes one object, or an answer that says why not.

An object is complete or not there, so a file is built elsewhere and put whole. What a worker raises
for its input, and what store and disk refuse, is an answer: the tasks beside it go on.
"""

import mmap
from collections.abc import Awaitable, Callable
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol, TypeVar

from lakelog.model.failures import Failure
from lakelog.objects.port import ObjectStore
from lakelog.pipeline.files.file_task import CompactionFailure, Trouble
from lakelog.pipeline.files.inputs import TroubleError
from lakelog.records.table_facts import TableFileOrigin
from lakelog.records.table_file import TableFileWriter
from lakelog.records.table_schema import FIELD_IDS


class Sized(Protocol):
    """What is known of a file once it is built."""

    @property
    def size_bytes(self) -> int:
        """How large it is."""


class OutputTask(Protocol):
    """A task that makes one file of the offsets [start, end)."""

    @property
    def task_id(self) -> str:
        """Which task it is."""

    @property
    def attempt(self) -> str:
        """Which try of it."""

    @property
    def key(self) -> str:
        """Where the file goes."""

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """One more than the last offset."""


class TableOutputTask(OutputTask, Protocol):
    """A task whose file is a data file of a table."""

    @property
    def stream(self) -> int:
        """Whose rows they are."""

    @property
    def topic_id(self) -> bytes:
        """Of which topic."""

    @property
    def partition(self) -> int:
        """And of which partition of it."""

    @property
    def batch_bytes_max(self) -> int:
        """What batches rebuilt from the file keep to."""

    @property
    def row_group_bytes(self) -> int:
        """How large row groups get."""

    @property
    def field_ids(self) -> tuple[tuple[str, int], ...]:
        """The ids of the table's columns by path, where they are not those of a new table."""


SizedT = TypeVar("SizedT", bound=Sized)


async def make_file(
    objects: ObjectStore,
    task: OutputTask,
    build: Callable[[BinaryIO], Awaitable[SizedT]],
    *,
    directory: str | None,
) -> SizedT | CompactionFailure:
    """Build the task's file in `directory` and put it; what is known of it, or why it is not."""
    try:
        with TemporaryFile(dir=directory) as file:
            facts = await build(file)
            file.flush()
            # Not closed here: a store that was cancelled may still read it.
            content = mmap.mmap(file.fileno(), facts.size_bytes, access=mmap.ACCESS_READ)
            await objects.put(task.key, [memoryview(content)])
    except TroubleError as error:
        return error.answer(task.task_id, task.attempt)
    except Failure as error:
        return _unavailable(task, task.key, f"{type(error).__name__}: {error}")
    except OSError as error:
        return _unavailable(task, "", f"the temporary file: {error}")
    return facts


def table_writer(file: BinaryIO, task: TableOutputTask) -> TableFileWriter:
    """What writes the task's rows, with the task in the file's footer."""
    origin = TableFileOrigin(
        task.stream,
        task.topic_id,
        task.partition,
        task.task_id,
        task.start,
        task.end,
        task.batch_bytes_max,
    )
    return TableFileWriter(
        file,
        origin,
        row_group_bytes=task.row_group_bytes,
        field_ids=dict(task.field_ids) or FIELD_IDS,
    )


def _unavailable(task: OutputTask, key: str, reason: str) -> CompactionFailure:
    trouble = TroubleError(Trouble.UNAVAILABLE, reason, key, task.start, task.end)
    return trouble.answer(task.task_id, task.attempt)
