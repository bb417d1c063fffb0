"""A broker's own index: what every implementation promises is in tests/conformance."""

import asyncio

import pytest
from tests.broker.whole import Stores, whole_broker
from tests.server.index_stage import filled, made

from lakelog.domain.events import Swap
from lakelog.index.ports import StreamRange
from lakelog.meta.memory import MemoryLog, MemoryMetadataStore
from lakelog.meta.port import KeyValue, LogPage
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.server import pipeline_index
from lakelog.server.pipeline_index import BrokerIndex, swap_fault
from lakelog.streams.objects import FileKind, FileName

FILE = FileName(FileKind.SEGMENT, "compaction/v1/x")


class Turns:
    """Counts how often the loop came round while something else ran."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


def test_a_question_about_everything_lets_the_loop_go_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_index, "STREAMS_PER_SLICE", 10)
    monkeypatch.setattr(pipeline_index, "ENTRIES_PER_SLICE", 12)
    monkeypatch.setattr(pipeline_index, "VALUES_PER_SLICE", 2)
    monkeypatch.setattr(pipeline_index, "STREAMS_PER_PROOF", 40)

    async def scenario() -> None:
        stores = Stores()
        async with whole_broker(stores, domains=2) as broker:
            streams = (await made(broker, "t", 100)).streams()
            await filled(broker, streams, objects=3)
            index = BrokerIndex(broker, stores.clock)
            turns = Turns()
            turning = asyncio.create_task(turns.run())
            for work in (
                index.backlog(streams),
                index.columns(streams),
                index.views([StreamRange(stream, 0, 6) for stream in streams]),
            ):
                before = turns.count
                found = await work
                assert len(found) == 100
                assert turns.count - before >= 100 * 3 // 12
            turning.cancel()

    asyncio.run(scenario())


class Deaf(MemoryMetadataStore):
    """A store that answers nothing once it is told not to."""

    is_deaf = False

    async def get(self, key: str) -> KeyValue | None:
        if self.is_deaf:
            raise Unavailable("no answer")
        return await super().get(key)

    def log(self, name: str) -> MemoryLog:
        log = super().log(name)
        append, read = log.append, log.read

        async def appended(record: bytes) -> int:
            if self.is_deaf:
                raise OutcomeUnknown("no answer")
            return await append(record)

        async def page(*, after: int) -> LogPage:
            if self.is_deaf:
                raise Unavailable("no answer")
            return await read(after=after)

        log.append, log.read = appended, page  # type: ignore[method-assign]  # as told
        return log


def test_a_swap_that_is_not_confirmed_in_time_may_have_happened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_index, "ANSWER_S", 0.05)

    async def scenario() -> None:
        stores = Stores()
        store = Deaf(stores.clock)
        stores.metadata = store
        async with whole_broker(stores) as broker:
            (stream,) = (await made(broker, "t")).streams()
            store.is_deaf = True
            index = BrokerIndex(broker, stores.clock)
            with pytest.raises(OutcomeUnknown):
                await index.swap(Swap(stream, 0, 2, FILE, 9, 9, (bytes(8),)))
            store.is_deaf = False

    asyncio.run(scenario())


def test_an_index_that_cannot_be_proved_current_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipeline_index, "ANSWER_S", 0.05)

    async def scenario() -> None:
        stores = Stores()
        store = Deaf(stores.clock)
        stores.metadata = store
        async with whole_broker(stores) as broker:
            (stream,) = (await made(broker, "t")).streams()
            index = BrokerIndex(broker, stores.clock)
            store.is_deaf = True
            for work in (
                index.backlog([stream]),
                index.columns([stream]),
                index.views([StreamRange(stream, 0, 1)]),
                index.named_files(),
                index.topics(),
            ):
                with pytest.raises(Unavailable):
                    await work
            store.is_deaf = False

    asyncio.run(scenario())


def test_the_oldest_timestamps_there_are_fit_into_a_swap() -> None:
    assert swap_fault(Swap(1, 0, 2, FILE, 9, -(1 << 63), (bytes(8),))) is None
    assert swap_fault(Swap(1, 0, 2, FILE, 9, 1 << 63, (bytes(8),))) is not None
    assert swap_fault(Swap(1 << 63, 0, 2, FILE, 9, 0, (bytes(8),))) is not None
