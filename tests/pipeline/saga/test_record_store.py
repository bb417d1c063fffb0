"""Records are read many at once; a bad one is told apart, and versions decide who writes."""

import asyncio

import pytest
from msgspec import structs
from tests.pipeline.saga.task_values import CREATED

from lakelog.clock import SystemClock
from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import KeyValue
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable
from lakelog.pipeline.saga.record_store import GETS_MIN, RecordStore
from lakelog.pipeline.saga.task_record import TaskRecord, encode_record, task_key


def record_of(stream: int) -> TaskRecord:
    return structs.replace(CREATED, stream=stream)


def test_few_records_and_many_are_found_alike() -> None:
    async def scenario() -> None:
        meta = MemoryMetadataStore(SystemClock())
        records = RecordStore(meta, puts_max=4, limit_s=5)
        versions = {
            stream: await records.put(record_of(stream), version=0)
            for stream in range(1, GETS_MIN + 10)
        }
        for wanted in ([3, 9999], list(range(2, GETS_MIN + 5))):
            found = (await records.load(wanted)).found
            assert set(found) == {stream for stream in wanted if stream in versions}
            for stream, stored in found.items():
                assert (stored.record, stored.version) == (record_of(stream), versions[stream])
        assert set((await records.load_all()).found) == set(versions)

    asyncio.run(scenario())


def test_a_version_is_written_over_once() -> None:
    async def scenario() -> None:
        records = RecordStore(MemoryMetadataStore(SystemClock()), puts_max=4, limit_s=5)
        version = await records.put(record_of(1), version=0)
        with pytest.raises(Conflict):
            await records.put(record_of(1), version=0)
        await records.put(record_of(1), version=version)
        with pytest.raises(Conflict):
            await records.delete(1, version=version)
        (stored,) = (await records.load([1])).found.values()
        await records.delete(1, version=stored.version)
        assert (await records.load_all()).found == {}

    asyncio.run(scenario())


def test_what_says_nothing_is_told_with_its_stream() -> None:
    async def scenario() -> None:
        meta = MemoryMetadataStore(SystemClock())
        records = RecordStore(meta, puts_max=4, limit_s=5)
        await records.put(record_of(1), version=0)
        await meta.put(task_key(2), b"{}")
        await meta.put(task_key(3), encode_record(record_of(4)))
        await meta.put(task_key(5), b'{"format": 99}')
        loaded = await records.load_all()
        assert set(loaded.found) == {1}
        assert loaded.broken_streams == {2, 3, 5}
        assert "upgrade" in loaded.broken[task_key(5)]

    asyncio.run(scenario())


def test_a_store_that_does_not_answer_is_given_up() -> None:
    class Silent(MemoryMetadataStore):
        async def range(self, prefix: str) -> list[KeyValue]:
            await asyncio.Event().wait()
            return []

        async def put(self, *_: object, **__: object) -> int:
            await asyncio.Event().wait()
            return 0

    async def scenario() -> None:
        records = RecordStore(Silent(SystemClock()), puts_max=4, limit_s=0.01)
        with pytest.raises(Unavailable):
            await records.load_all()
        with pytest.raises(OutcomeUnknown):
            await records.put(record_of(1), version=0)

    asyncio.run(scenario())
