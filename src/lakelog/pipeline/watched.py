"""An engine that somebody watches: what is asked of it and what it answers, as it happens."""

from collections.abc import Sequence
from typing import Protocol

from lakelog.pipeline.files.file_task import Answer, Task
from lakelog.pipeline.ports import Engine


class Watcher(Protocol):
    """Who is told; it must be quick and must not fail."""

    def began(self, tasks: Sequence[Task]) -> None:
        """These tasks are with the engine now."""

    def ended(self, tasks: Sequence[Task]) -> None:
        """They are no longer, whatever became of them."""


class WatchedEngine:
    """The engine, with a watcher."""

    def __init__(self, engine: Engine, watcher: Watcher) -> None:
        self._engine = engine
        self._watcher = watcher

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self._engine.slots

    async def run(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        """The answer to each task, in order."""
        self._watcher.began(tasks)
        try:
            return await self._engine.run(tasks)
        finally:
            self._watcher.ended(tasks)
