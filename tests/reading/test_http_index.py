"""The index over HTTP: answers in parts, brokers that fail, answers that make no sense."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.broker.whole import Stores, whole_broker
from tests.http.stub_server import NOBODY, answering, hang_up, server
from tests.http.test_reading import served
from tests.server.index_stage import filled, made, swapped

from lakelog.http import reading
from lakelog.http.client import CallLimits
from lakelog.http.pipeline_messages import FailureAnswer
from lakelog.http.reading_messages import Entries, EntriesAnswer, StoreAnswer
from lakelog.model.failures import Refused, Unavailable
from lakelog.reading.http_index import HttpIndex
from lakelog.reading.ranges import Bounds, PinnedRange
from lakelog.server.pipeline_index import BrokerIndex
from lakelog.server.read_index import ReadIndex

QUICK = CallLimits(connect_s=1.0, answer_s=0.5)
STORE = msgspec.msgpack.encode(StoreAnswer("c", "s3://b", {}))


@asynccontextmanager
async def index_at(*brokers: str) -> AsyncIterator[HttpIndex]:
    index = HttpIndex(brokers, QUICK)
    try:
        yield index
    finally:
        await index.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def wanted(stream: int, start: int, end: int) -> PinnedRange:
    return PinnedRange("t", bytes(16), 0, stream, start, end)


@pytest.mark.parametrize("entries_max", [1, 2, 3, 1000])
def test_ranges_are_whole_however_many_entries_an_answer_has(
    monkeypatch: pytest.MonkeyPatch, entries_max: int
) -> None:
    monkeypatch.setattr(reading, "ENTRIES_PER_ANSWER", entries_max)

    async def scenario() -> None:
        stores = Stores()
        async with whole_broker(stores) as broker:
            topic = await made(broker, "t", 3)
            streams = topic.streams()
            await filled(broker, streams, objects=5)
            plain = BrokerIndex(broker, stores.clock)
            await swapped(plain, streams[1], start=2, end=6, key="compaction/v1/x")
            async with (
                served(ReadIndex(broker, stores.clock)) as ask,
                index_at(_address(ask)) as index,
            ):
                ranges = [wanted(one, 1, 10) for one in streams]
                found = await index.entries([*ranges, wanted(99, 0, 1), wanted(streams[0], 4, 5)])
                edges = [None if one is None else one.entries.edges.tolist() for one in found]
                assert edges == [
                    [0, 2, 4, 6, 8, 10],
                    [0, 2, 6, 8, 10],
                    [0, 2, 4, 6, 8, 10],
                    None,
                    [4, 6],
                ]
                assert found[1] is not None
                assert found[1].entries.entry(1).key == "compaction/v1/x"
                assert await index.bounds([*streams, 99]) == dict.fromkeys(streams, Bounds(0, 10))

    run(scenario)


def _address(ask: Any) -> str:
    """Where a stage listens, out of the function that asks it."""
    found: str = ask.__closure__[ask.__code__.co_freevars.index("address")].cell_contents
    return found


def test_a_broker_that_does_not_answer_is_followed_by_the_next() -> None:
    async def scenario() -> None:
        failing = msgspec.msgpack.encode(FailureAnswer("unavailable", "later"))
        async with (
            server(answering(200, STORE)) as good,
            server(hang_up) as rude,
            server(answering(503, failing)) as busy,
            server(answering(200, b"\xc1")) as mad,
            index_at(NOBODY, rude, busy, mad, good) as index,
        ):
            for _ in range(2):
                assert (await index.store()).url == "s3://b"
        async with server(answering(503, failing)) as busy, index_at(NOBODY, busy) as index:
            with pytest.raises(Unavailable, match=r"no broker answers.*later"):
                await index.store()

    run(scenario)


def test_who_is_no_broker_is_refused_by_name() -> None:
    async def scenario() -> None:
        async with server(answering(404, b"Not Found")) as other, index_at(other) as index:
            with pytest.raises(Refused, match=f"http://{other} is not the HTTP port"):
                await index.store()

    run(scenario)


def longs(*numbers: int) -> bytes:
    return np.array(numbers, "<i8").tobytes()


GOOD = Entries(
    domain=0,
    log_start=0,
    head=9,
    starts=longs(0, 3),
    ends=longs(3, 9),
    kinds=b"\x00\x02",
    byte_starts=longs(0, 0),
    byte_lengths=longs(5, 5),
    max_timestamps_ms=longs(1, 1),
    wal_ids=bytes(32),
    labels=np.array([0, 1], "<i4").tobytes(),
    names=["z", "compaction/v1/x"],
)


@pytest.mark.parametrize(
    "change",
    [
        {"starts": longs(0, 4)},
        {"ends": longs(3)},
        {"starts": b"123"},
        {"kinds": b"\x00"},
        {"kinds": b"\x00\x07"},
        {"byte_lengths": longs(5, 0)},
        {"byte_starts": longs(-1, 0)},
        {"wal_ids": bytes(31)},
        {"wal_ids": b"\xff" * 32},
        {"labels": np.array([0, 2], "<i4").tobytes()},
        {"labels": np.array([0, -1], "<i4").tobytes()},
        {"names": ["z", "../secret"]},
        {"names": ["z", "/etc/passwd"]},
        {"names": ["a=b", "compaction/v1/x"]},
        {"names": []},
    ],
    ids=str,
)
def test_entries_that_make_no_sense_are_not_believed(change: dict[str, Any]) -> None:
    async def scenario() -> None:
        for entries, is_good in ((GOOD, True), (msgspec.structs.replace(GOOD, **change), False)):
            body = msgspec.msgpack.encode(EntriesAnswer([entries]))
            async with server(answering(200, body)) as broker, index_at(broker) as index:
                if is_good:
                    (found,) = await index.entries([wanted(1, 0, 9)])
                    assert found is not None
                    assert found.entries.edges.tolist() == [0, 3, 9]
                else:
                    with pytest.raises(Unavailable):
                        await index.entries([wanted(1, 0, 9)])

    run(scenario)


async def asked_for(index: HttpIndex, name: str) -> None:
    match name:
        case "bounds":
            await index.bounds([1])
        case "times":
            await index.first_at({1: 1})
        case _:
            await index.entries([wanted(1, 0, 9)])


def test_an_answer_about_something_else_is_not_believed() -> None:
    async def scenario() -> None:
        for name, body in (
            ("bounds", {"bounds": []}),
            ("times", {"offsets": {7: 1}}),
            ("entries", {"ranges": []}),
            ("entries", {"ranges": [None, None]}),
        ):
            packed = msgspec.msgpack.encode(body)
            async with server(answering(200, packed)) as broker, index_at(broker) as index:
                with pytest.raises(Unavailable, match=f"answer to {name}"):
                    await asked_for(index, name)

    run(scenario)
