"""A broker's own index: what every implementation promises is in tests/conformance."""

import asyncio

import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import filled, made, swapped
from tests.memory_cluster import MemoryCluster, run

from lakelog.domain.events import Swap
from lakelog.index import broker_index
from lakelog.index.broker_index import BrokerIndex, swap_fault
from lakelog.index.entries import Entry, is_sound, packed_range, unpacked_range
from lakelog.index.ports import Bounds, StreamRange
from lakelog.meta.memory import MemoryLog, MemoryMetadataStore
from lakelog.meta.port import KeyValue, LogPage
from lakelog.model.failures import OutcomeUnknown, Unavailable
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
    monkeypatch.setattr(broker_index, "STREAMS_PER_SLICE", 10)
    monkeypatch.setattr(broker_index, "ENTRIES_PER_SLICE", 12)
    monkeypatch.setattr(broker_index, "STREAMS_PER_PROOF", 40)

    async def scenario() -> None:
        cluster = MemoryCluster()
        async with whole_broker(cluster, domains=2) as broker:
            streams = (await made(broker, "t", 100)).streams()
            await filled(broker, streams, objects=3)
            index = BrokerIndex(broker, cluster.clock)
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
    monkeypatch.setattr(broker_index, "ANSWER_S", 0.05)

    async def scenario() -> None:
        cluster = MemoryCluster()
        store = Deaf(cluster.clock)
        cluster.metadata = store
        async with whole_broker(cluster) as broker:
            (stream,) = (await made(broker, "t")).streams()
            store.is_deaf = True
            index = BrokerIndex(broker, cluster.clock)
            with pytest.raises(OutcomeUnknown):
                await index.swap(Swap(stream, 0, 2, FILE, 9, 9, (bytes(8),)))
            store.is_deaf = False

    asyncio.run(scenario())


def test_an_index_that_cannot_be_proved_current_is_unavailable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_index, "ANSWER_S", 0.05)

    async def scenario() -> None:
        cluster = MemoryCluster()
        store = Deaf(cluster.clock)
        cluster.metadata = store
        async with whole_broker(cluster) as broker:
            (stream,) = (await made(broker, "t")).streams()
            index = BrokerIndex(broker, cluster.clock)
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


def test_a_range_is_located_in_any_of_several_domains() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster, domains=3) as broker:
            streams = (await made(broker, "t", 5)).streams()
            await filled(broker, streams, objects=4)
            index = BrokerIndex(broker, cluster.clock)
            for number, stream in enumerate(streams[:3]):
                await swapped(index, stream, start=2, end=6, key=f"compaction/v1/{number}")
            ranges = [StreamRange(one, low, 7) for one in (*streams, 999) for low in (0, 3, 6)]
            for wanted, found in zip(ranges, await index.located(ranges), strict=True):
                if wanted.stream == 999:
                    assert found is None
                    continue
                assert found is not None
                domain = broker.log.domain_of(wanted.stream)
                assert (found.log_start, found.first_start, found.head) == (0, 0, 8)
                assert is_sound(found.entries)
                expected = [
                    Entry(
                        piece.start,
                        piece.end,
                        piece.name,
                        piece.byte_start,
                        piece.byte_length,
                        piece.max_timestamp_ms,
                        domain,
                    )
                    for piece in broker.log.pieces(wanted.stream)
                    if piece.end > wanted.start and piece.start < wanted.end
                ]
                assert list(found.entries) == expected
                again = unpacked_range(packed_range(found))
                assert list(again.entries) == expected

    run(scenario)


def test_a_long_range_begins_with_its_first_entries() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            (stream,) = (await made(broker, "t")).streams()
            await filled(broker, [stream], objects=5)
            index = BrokerIndex(broker, cluster.clock)
            (found,) = await index.located([StreamRange(stream, 3, 10)], entries_max=2)
            assert found is not None
            assert found.entries.edges.tolist() == [2, 4, 6]

    run(scenario)


def test_bounds_move_with_the_log_and_end_with_the_stream() -> None:
    async def scenario(cluster: MemoryCluster) -> None:
        async with whole_broker(cluster) as broker:
            streams = (await made(broker, "t", 2)).streams()
            index = BrokerIndex(broker, cluster.clock)
            assert await index.bounds(streams) == [Bounds(0, 0), Bounds(0, 0)]
            await filled(broker, streams, objects=2)
            await broker.log.trim({streams[0]: 3})
            assert await index.bounds([*streams, streams[0]]) == [
                Bounds(3, 4),
                Bounds(0, 4),
                Bounds(3, 4),
            ]
            await broker.log.drop_streams(streams[:1])
            assert await index.bounds(streams) == [None, Bounds(0, 4)]
            assert await index.first_at({streams[0]: 0, streams[1]: 1001}) == {streams[1]: 1}

    run(scenario)
