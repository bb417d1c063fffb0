"""An engine in this process runs every kind of task, so many at a time, with threads or without."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.log.tables import task_of
from tests.pipeline.pipeline_faults import damage
from tests.pipeline.pipeline_place import Place, run

from lakelog.model.ids import ByteRange
from lakelog.objects.memory import MemoryObjectStore
from lakelog.pipeline.files.file_task import FileFailure, FileResult
from lakelog.pipeline.files.run_task import InlineEngine


class Counting(MemoryObjectStore):
    """A store that knows how many read at once."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner._clock)
        self._objects = inner._objects
        self.now = 0
        self.most = 0

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await super().get_ranges(key, ranges)


def test_answers_come_in_order_and_a_bad_task_is_one_of_them() -> None:
    async def scenario(place: Place) -> None:
        await place.topic("orders", [1, 2, 3])
        for stream in (1, 2, 3):
            await place.produce(stream, batches=1)
        await damage(place, 2)
        tasks = [task_of(place.node, stream) for stream in (1, 2, 3)]
        assert isinstance(place.objects, MemoryObjectStore)
        objects = Counting(place.objects)
        engine = InlineEngine(objects, slots=2)
        assert engine.slots == 2
        answers = await engine.run(tasks)
        kinds = [FileResult, FileFailure, FileResult]
        assert [type(one) for one in answers] == kinds
        assert [one.task_id for one in answers] == [one.task_id for one in tasks]
        assert objects.most <= 2
        with ThreadPoolExecutor(2) as pool:
            assert await InlineEngine(objects, pool).run(tasks) == answers
        assert await engine.run([]) == []

    run(scenario)
