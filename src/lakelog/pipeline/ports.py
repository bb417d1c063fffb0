"""What the pipeline needs beside the index: an engine for its work, and a place for its effects."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from lakelog.pipeline.files.file_task import Answer, Task

T = TypeVar("T")


class Engine(Protocol):
    """Runs tasks, many at once, wherever it likes."""

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""

    async def run(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        """The answer to each task, in order; `Unavailable` when the engine itself failed."""


class Effects:
    """Every side effect of the saga goes through here by its name; a test makes it fail there."""

    async def do(self, name: str, action: Callable[[], Awaitable[T]]) -> T:
        """Do it."""
        return await action()
