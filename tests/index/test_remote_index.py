"""The index from outside: which broker is asked, and what is known when one does not answer."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from tests.broker.whole import whole_broker
from tests.index.index_stage import ENTROPY, filled, http_port, made, remote_index, swap_of
from tests.index.stub_server import (
    NOBODY,
    QUICK,
    SWAP,
    answering,
    hang_up,
    index_at,
    question,
    run,
    server,
)
from tests.lake.packed import entries
from tests.memory_cluster import MemoryCluster

from lakelog.clock import SystemClock
from lakelog.index import http_server, messages
from lakelog.index import remote_index as remote_module
from lakelog.index.entries import LocatedRange, PackedColumns, packed_range
from lakelog.index.http_client import brokers_at
from lakelog.index.messages import FailureAnswer
from lakelog.index.ports import StreamRange, StreamView
from lakelog.index.remote_index import RemoteIndex
from lakelog.model.failures import NotFound, OutcomeUnknown, Refused, Unavailable
from lakelog.model.ids import BrokerId
from lakelog.topics.cluster import pipeline_token
from lakelog.topics.routing import BrokerNode


def test_a_broker_that_is_down_is_followed_by_the_next() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        async with whole_broker(cluster) as broker, http_port(broker, cluster) as address:
            await made(broker, "t")
            token = await pipeline_token(cluster.metadata, ENTROPY)
            find = brokers_at(f"http://{NOBODY}", f"http://{address}/")
            index = RemoteIndex(find, token, cluster.clock)
            assert [topic.name for topic in await index.topics()] == ["t"]
            assert index._client._brokers == [address, NOBODY]
            outcome = await index.swap(SWAP)
            assert not outcome.accepted
            await index.close()

    run(scenario)


def test_a_broker_that_came_back_elsewhere_is_found_by_the_metadata_store() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        index = await RemoteIndex.open(cluster.metadata, cluster.clock, ENTROPY, QUICK)
        with pytest.raises(Unavailable, match="no broker has an HTTP port"):
            await index.cluster_id()
        views: list[StreamView | None] = []
        for _ in range(2):
            async with whole_broker(cluster) as broker, http_port(broker, cluster) as address:
                own = BrokerNode(BrokerId(1), "127.0.0.1", 9093, http=address)
                await broker.cluster.register(own)
                if not views:
                    (stream,) = (await made(broker, "t")).streams()
                    await filled(broker, [stream], objects=2)
                views += await index.views([StreamRange(1, 0, 4)])
            with pytest.raises(Unavailable):
                await index.named_files()
        assert views[0] == views[1]
        await index.close()

    run(scenario)


def test_a_swap_whose_answer_was_lost_may_have_happened_and_nobody_else_is_asked() -> None:
    async def scenario() -> None:
        asked: list[bytes] = []

        async def second(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            asked.append(await question(reader))

        async with (
            server(hang_up) as first,
            server(second) as other,
            index_at(first, other) as index,
        ):
            with pytest.raises(OutcomeUnknown):
                await index.swap(SWAP)
            assert not asked
            with pytest.raises(Unavailable):
                await index.topics()
            assert asked

    run(scenario)


def test_a_swap_that_nobody_heard_of_did_not_happen() -> None:
    async def scenario() -> None:
        async with index_at(NOBODY) as index:
            with pytest.raises(Unavailable):
                await index.swap(SWAP)

    run(scenario)


@pytest.mark.parametrize(
    ("status", "body", "swap", "read"),
    [
        (200, b"\xc1", OutcomeUnknown, Unavailable),
        (500, b"Internal Server Error", OutcomeUnknown, Unavailable),
        (503, b"Service Unavailable", OutcomeUnknown, Unavailable),
        (503, msgspec.msgpack.encode(FailureAnswer("unavailable", "x")), Unavailable, Unavailable),
        (403, msgspec.msgpack.encode(FailureAnswer("refused", "x")), Refused, Refused),
        (404, msgspec.msgpack.encode(FailureAnswer("not_found", "x")), NotFound, NotFound),
        (
            500,
            msgspec.msgpack.encode(FailureAnswer("outcome_unknown", "x")),
            OutcomeUnknown,
            Unavailable,
        ),
    ],
)
def test_what_a_broker_answers_is_what_is_raised(
    status: int, body: bytes, swap: type[Exception], read: type[Exception]
) -> None:
    async def scenario() -> None:
        async with server(answering(status, body)) as address, index_at(address) as index:
            with pytest.raises(swap):
                await index.swap(SWAP)
            with pytest.raises(read):
                await index.backlog([1])

    run(scenario)


def test_an_answer_about_something_else_is_not_taken() -> None:
    async def scenario() -> None:
        columns = PackedColumns(0, 0, bytes(8), b"", b"", b"", b"")
        for answer in (
            messages.StreamsAnswer(0, {}),
            messages.StreamsAnswer(9, {}),
            messages.StreamsAnswer(1, {1: columns}),
            messages.StreamsAnswer(1, {1: PackedColumns(0, 0, b"x", b"x", b"x", b"x", b"x")}),
        ):
            async with (
                server(answering(200, msgspec.msgpack.encode(answer))) as address,
                index_at(address) as index,
            ):
                with pytest.raises(Unavailable, match="cannot be used"):
                    await index.columns([1])
        located = packed_range(LocatedRange(0, 0, 9, entries([0, 3, 9])))
        for viewed in (
            messages.RangesAnswer([]),
            messages.RangesAnswer([None, None]),
            messages.RangesAnswer([msgspec.structs.replace(located, wal_ids=b"short")]),
            messages.RangesAnswer([msgspec.structs.replace(located, kinds=b"\x00\x07")]),
        ):
            async with (
                server(answering(200, msgspec.msgpack.encode(viewed))) as address,
                index_at(address) as index,
            ):
                with pytest.raises(Unavailable, match="cannot be used"):
                    await index.views([StreamRange(1, 0, 1)])

    run(scenario)


def test_answers_in_many_pages_are_the_same_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        async with whole_broker(cluster) as broker, http_port(broker, cluster) as address:
            streams = (await made(broker, "t", 40)).streams()
            await filled(broker, streams, objects=3)
            ranges = [StreamRange(stream, 0, 6) for stream in streams]
            async with remote_index(address, cluster) as index:
                views = await index.views(ranges)
                whole = await index.columns(streams)
                monkeypatch.setattr(http_server, "PIPELINE_ENTRIES_MAX", 7)
                monkeypatch.setattr(http_server, "STREAMS_AT_ONCE", 2)
                monkeypatch.setattr(http_server, "RANGES_AT_ONCE", 2)
                monkeypatch.setattr(remote_module, "STREAMS_PER_QUESTION", 11)
                monkeypatch.setattr(remote_module, "VIEWS_PER_QUESTION", 11)
                assert await index.views(ranges) == views
                assert None not in views
                paged = await index.columns(streams)
                assert list(paged) == list(whole) == streams
                for stream in streams:
                    left, right = paged[stream].columns, whole[stream].columns
                    assert left.starts.tolist() == right.starts.tolist() == [0, 2, 4]

    run(scenario)


def test_a_swap_is_accepted_through_a_broker_that_did_not_write_the_records() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        async with whole_broker(cluster, 1) as writer, whole_broker(cluster, 2) as other:
            (stream,) = (await made(writer, "t")).streams()
            await filled(writer, [stream], objects=2)
            async with (
                http_port(other, cluster) as address,
                remote_index(address, cluster) as index,
            ):
                (view,) = await index.views([StreamRange(stream, 0, 4)])
                assert view is not None
                swap = swap_of(view, start=0, end=4, key="compaction/v1/a")
                assert (await index.swap(swap)).accepted
            arrived_s = cluster.clock.monotonic_s()
            await writer.log.prove([stream], arrived_s=arrived_s, deadline_s=arrived_s + 5)
            assert [piece.name for piece in writer.log.pieces(stream)] == [swap.file]

    run(scenario)


def test_a_wrong_token_is_refused() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster()
        async with (
            whole_broker(cluster) as broker,
            http_port(broker, cluster) as address,
            index_at(address) as index,
        ):
            with pytest.raises(Refused, match="not the token"):
                await index.topics()
            with pytest.raises(Refused, match="not the token"):
                await index.swap(SWAP)

    run(scenario)


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "https://x:1", "http://", "http://x/a"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="http://HOST:PORT"):
        brokers_at(url)


def test_no_broker_is_asked_twice_in_one_question() -> None:
    async def scenario() -> None:
        asked = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal asked
            asked += 1
            await hang_up(reader, writer)

        async def find() -> Sequence[str]:
            return [address, address]

        async with server(serve) as address:
            index = RemoteIndex(find, "t", SystemClock(), QUICK)
            with pytest.raises(Unavailable):
                await index.topics()
            assert asked == 1
            await index.close()

    run(scenario)
