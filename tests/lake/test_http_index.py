"""The index over HTTP: answers in parts, brokers that fail, answers that make no sense."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import filled, made, port, swapped
from tests.index.stub_server import NOBODY, answering, hang_up, run, server
from tests.lake.packed import entries
from tests.memory_cluster import MemoryCluster

from lakelog.index import http_server
from lakelog.index.broker_index import BrokerIndex
from lakelog.index.entries import LocatedRange, PackedRange
from lakelog.index.http_client import CallLimits
from lakelog.index.http_server import read_routes
from lakelog.index.messages import FailureAnswer, RangesAnswer, StoreAnswer
from lakelog.index.ports import Bounds, PinnedRange, StorePlace
from lakelog.index.remote_index import HttpIndex, extended
from lakelog.model.failures import Refused, Unavailable

QUICK = CallLimits(connect_s=1.0, answer_s=0.5)
STORE = msgspec.msgpack.encode(StoreAnswer("c", "s3://b", {}))


@asynccontextmanager
async def index_at(*brokers: str) -> AsyncIterator[HttpIndex]:
    index = HttpIndex(brokers, QUICK)
    try:
        yield index
    finally:
        await index.close()


def wanted(stream: int, start: int, end: int) -> PinnedRange:
    return PinnedRange("t", bytes(16), 0, stream, start, end)


@pytest.mark.parametrize("entries_max", [1, 2, 3, 1000])
def test_ranges_are_whole_however_many_entries_an_answer_has(
    monkeypatch: pytest.MonkeyPatch, entries_max: int
) -> None:
    monkeypatch.setattr(http_server, "READ_ENTRIES_MAX", entries_max)

    async def scenario() -> None:
        cluster = MemoryCluster()
        async with whole_broker(cluster) as broker:
            topic = await made(broker, "t", 3)
            streams = topic.streams()
            await filled(broker, streams, objects=5)
            plain = BrokerIndex(broker, cluster.clock)
            await swapped(plain, streams[1], start=2, end=6, key="compaction/v1/x")
            async with (
                port(read_routes(plain, StorePlace("s3://b", {}))) as address,
                index_at(address) as index,
            ):
                ranges = [wanted(one, 1, 10) for one in streams]
                found = await index.located([*ranges, wanted(99, 0, 1), wanted(streams[0], 4, 5)])
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


GOOD = PackedRange(
    domain=0,
    log_start=0,
    first_start=0,
    head=9,
    edges=longs(0, 3, 9),
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
        {"edges": longs(0, 3)},
        {"edges": longs(0, 9, 3)},
        {"edges": b"123"},
        {"edges": b""},
        {"domain": -1},
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
        for located, is_good in ((GOOD, True), (msgspec.structs.replace(GOOD, **change), False)):
            body = msgspec.msgpack.encode(RangesAnswer([located]))
            async with server(answering(200, body)) as broker, index_at(broker) as index:
                if is_good:
                    (found,) = await index.located([wanted(1, 0, 9)])
                    assert found is not None
                    assert found.entries.edges.tolist() == [0, 3, 9]
                else:
                    with pytest.raises(Unavailable):
                        await index.located([wanted(1, 0, 9)])

    run(scenario)


async def asked_for(index: HttpIndex, name: str) -> None:
    match name:
        case "bounds":
            await index.bounds([1])
        case "times":
            await index.first_at({1: 1})
        case _:
            await index.located([wanted(1, 0, 9)])


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


def part(*edges: int, log_start: int = 0) -> LocatedRange:
    return LocatedRange(log_start, 0, 99, entries(edges))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([[0, 3, 6]], [0, 3, 6]),
        ([[0, 3, 6], [6, 9]], [0, 3, 6, 9]),
        ([[0, 3, 6], [3, 9]], [0, 3, 9]),
        ([[0, 3, 6], [0, 9], [9, 12]], [0, 9, 12]),
    ],
    ids=str,
)
def test_what_took_the_place_of_entries_stands_for_them(
    parts: Sequence[Sequence[int]], expected: list[int]
) -> None:
    assert extended([part(*one) for one in parts]).entries.edges.tolist() == expected


def test_the_newest_answer_knows_the_stream_best() -> None:
    assert extended([part(0, 3), part(3, 6, log_start=2)]).log_start == 2


def test_parts_that_do_not_meet_are_not_put_together() -> None:
    for late in (part(4, 9), part(2, 9)):
        with pytest.raises(Unavailable):
            extended([part(0, 3), late])
