"""A watcher hears of every task twice, whatever becomes of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.pipeline.files.wal_tasks import Bucket

from lakelog.model.failures import Unavailable
from lakelog.pipeline.files.file_task import FileAnswer, FileTask
from lakelog.pipeline.ports import InstrumentedEngine


class Failing:
    slots = 3

    async def run(self, tasks: Sequence[FileTask]) -> Sequence[FileAnswer]:
        raise Unavailable("the engine is off")


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def began(self, tasks: Sequence[FileTask]) -> None:
        self.said.append(("began", len(tasks)))

    def ended(self, tasks: Sequence[FileTask]) -> None:
        self.said.append(("ended", len(tasks)))


def test_a_run_that_fails_has_ended_too(tmp_path: Path) -> None:
    heard = Heard()
    engine = InstrumentedEngine(Failing(), heard)
    assert engine.slots == 3
    with pytest.raises(Unavailable):
        asyncio.run(engine.run([Bucket(tmp_path).task(1)]))
    assert heard.said == [("began", 1), ("ended", 1)]
