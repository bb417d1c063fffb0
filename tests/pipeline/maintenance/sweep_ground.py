"""Topics, streams, tables and stores that change in small steps, as a script of numbers says."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.pipeline.maintenance.sweep_tables import (
    METADATA_KEPT,
    Catalog,
    File,
    OnlyNames,
    Staged,
    Stream,
    Table,
    born,
    staged,
)

from lakelog.catalog.port import TableName
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.model.failures import Conflict, NotFound
from lakelog.model.ids import TopicId
from lakelog.objects.memory import MemoryObjectStore
from lakelog.pipeline.saga.task_record import (
    Lease,
    TaskRecord,
    decode_record,
    encode_record,
    task_key,
)
from lakelog.testing.guarded import GuardedObjects, open_tasks

SPACE = "s"


class Hands:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds


class Ground(OnlyNames):
    """What there is, and what happens to it without any task."""

    def __init__(self, script: Iterator[int]) -> None:
        self.clock = Hands()
        self.meta = MemoryMetadataStore(self.clock)
        self.guard = GuardedObjects(MemoryObjectStore(self.clock))
        self.script = script
        self.catalog = Catalog()
        self.topics_alive: dict[str, TopicId] = {}
        self.streams: dict[int, Stream] = {}
        self.born: list[Table] = []
        self.properties: list[tuple[Table, Table]] = []
        self.numbers = 0
        self.guard.witnesses = {
            "an open task": open_tasks(self.meta),
            "a live snapshot": self._later(self.catalog.named),
            "an index entry": self._later(self._indexed),
        }

    @staticmethod
    def _later(names: Callable[[], Collection[str]]) -> Any:
        async def witness() -> Collection[str]:
            return names()

        return witness

    def _indexed(self) -> set[str]:
        return {key for stream in self.streams.values() for key in stream.named()}

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def pick(self, some: Sequence[Any]) -> Any:
        return some[next(self.script, 0) % len(some)] if some else None

    def alive(self) -> list[Stream]:
        return list(self.streams.values())

    async def make_topic(self) -> None:
        name = f"t{next(self.script, 0) % 2}"
        if name not in self.topics_alive:
            number = self.number()
            self.topics_alive[name] = TopicId(number.to_bytes(16, "big"))
            self.streams[number] = Stream(number, name, self.topics_alive[name])

    async def make_table(self) -> None:
        """Write the first metadata of a table; the pointer comes later, or never."""
        name = self.pick(sorted(self.topics_alive))
        if name is not None:
            topic_id = self.topics_alive[name].hex()
            self.born.append(born(TableName(SPACE, name), topic_id, self.number()))
            await self.guard.put(self.born[-1].metadata, [b"x"])

    async def finish_table(self) -> None:
        if self.born:
            table = self.born.pop()
            is_alive = table.topic_id in {one.hex() for one in self.live_ids()}
            if is_alive and table.name not in self.catalog.tables:
                self.catalog.tables[table.name] = table

    async def delete_topic(self) -> None:
        name = self.pick(sorted(self.topics_alive))
        if name is not None and next(self.script, 0) % 4 == 0:
            del self.topics_alive[name]

    async def drop_streams(self) -> None:
        gone = [one.number for one in self.alive() if one.topic_id not in self.live_ids()]
        for number in gone:
            del self.streams[number]

    async def drop_table(self) -> None:
        live = {topic_id.hex() for topic_id in self.live_ids()}
        gone = [name for name, one in self.catalog.tables.items() if one.topic_id not in live]
        for name in gone:
            del self.catalog.tables[name]

    def live_ids(self) -> set[TopicId]:
        return set(self.topics_alive.values())

    async def change_properties(self) -> None:
        """Somebody outside sets a property: other metadata, the same snapshot."""
        table = self.pick(list(self.catalog.tables.values()))
        if table is not None:
            change = staged(table, table.files, table.offset, self.number(), merge=False)
            await self.guard.put(change.after.metadata, [b"x"])
            self.properties.append((table, replace(table, metadata=change.after.metadata)))

    async def finish_properties(self) -> None:
        if self.properties:
            before, after = self.properties.pop()
            if self.catalog.tables.get(before.name) == before:
                log = (*before.log, before.metadata)[-METADATA_KEPT:]
                self.catalog.tables[before.name] = replace(after, log=log)

    async def produce(self) -> None:
        stream = self.pick(self.alive())
        if stream is not None:
            stream.produce()

    async def trim(self) -> None:
        stream = self.pick(self.alive())
        if stream is not None and stream.head:
            stream.trim(stream.log_start + next(self.script, 0) % 4)

    async def expire_rows(self) -> None:
        """Table retention: files wholly below the log start leave the table."""
        stream = self.pick(self.alive())
        table = None if stream is None else self.table_of(stream)
        if table is None:
            return
        first = stream.view().first_start
        kept = tuple(file for file in table.files if file.end > first)
        if kept != table.files:
            await self.land(await self.stage(table, kept, table.offset))

    def table_of(self, stream: Stream) -> Table | None:
        table = self.catalog.tables.get(TableName(SPACE, stream.topic))
        return table if table and table.topic_id == stream.topic_id.hex() else None

    async def stage(self, table: Table, files: tuple[File, ...], offset: int | None) -> Staged:
        merge = next(self.script, 0) % 3 == 0
        change = staged(table, files, offset, self.number(), merge=merge)
        for key in change.objects:
            await self.guard.put(key, [b"x"])
        return change

    async def land(self, change: Staged) -> None:
        """Send the commit; who hears a clear no deletes what it wrote, if it gets to it."""
        try:
            unlogged = self.catalog.land(change)
        except (Conflict, NotFound):
            if next(self.script, 0) % 2:
                await self.guard.delete(change.objects)
            raise
        if unlogged and next(self.script, 0) % 2:
            await self.guard.delete(unlogged)

    async def record(self, stream: int) -> tuple[TaskRecord | None, int]:
        found = await self.meta.get(task_key(stream))
        return (None, 0) if found is None else (decode_record(found.value), found.version)

    async def put(self, record: TaskRecord, version: int) -> None:
        await self.meta.put(task_key(record.stream), encode_record(record), expect=version)

    def lease(self) -> Lease:
        return Lease(f"w{self.number()}", 0)
