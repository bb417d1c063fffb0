"""The index for readers as a stranger meets it: what is told, limits, nonsense, failures."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from starlette.applications import Starlette
from tests.broker.whole import Stores, whole_broker
from tests.http.test_pipeline import asked
from tests.server.index_stage import filled, made, swapped

from lakelog.http import reading
from lakelog.http.pipeline_messages import FAILURES, failure_in
from lakelog.http.reading import ReadableIndex, StorePlace, reading_routes
from lakelog.http.reading_messages import (
    PATH,
    QUESTION_BYTES_MAX,
    BoundsAnswer,
    EntriesAnswer,
    RangeColumns,
    StoreAnswer,
    TimesAnswer,
    TopicsAnswer,
    public_options,
)
from lakelog.http.service import serve
from lakelog.index.ports import StreamRange
from lakelog.model.failures import Failure
from lakelog.server.pipeline_index import BrokerIndex
from lakelog.server.read_index import ReadIndex

Ask = Callable[..., Awaitable[tuple[int, bytes]]]
PLACE = StorePlace("s3://bucket/prefix", {"region": "r"})


@asynccontextmanager
async def served(index: ReadableIndex) -> AsyncIterator[Ask]:
    """A way to ask an index through a real port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        routes = reading_routes(index, PLACE)
        serving = asyncio.create_task(serve(Starlette(routes=routes), listening))

        async def ask(
            name: str, question: object = None, method: str = "POST"
        ) -> tuple[int, bytes]:
            body = question if isinstance(question, bytes) else msgspec.msgpack.encode(question)
            return await asked(address, PATH + name, body, {}, method)

        try:
            yield ask
        finally:
            serving.cancel()
            await asyncio.wait([serving])


def run(scenario: Callable[[Ask, BrokerIndex], Awaitable[None]]) -> None:
    """A scenario with a broker that has the topics `a` (two partitions) and `b`, filled."""

    async def bounded() -> None:
        stores = Stores()
        async with asyncio.timeout(30), whole_broker(stores) as broker:
            for name, partitions in (("a", 2), ("b", 1)):
                topic = await made(broker, name, partitions)
                await filled(broker, topic.streams(), objects=2)
            async with served(ReadIndex(broker, stores.clock)) as ask:
                await scenario(ask, BrokerIndex(broker, stores.clock))

    asyncio.run(bounded())


def test_a_reader_is_told_topics_bounds_times_entries_and_the_store() -> None:
    async def scenario(ask: Ask, index: BrokerIndex) -> None:
        status, body = await ask("store")
        store = msgspec.msgpack.decode(body, type=StoreAnswer)
        assert (status, store.url, store.options) == (200, PLACE.url, {"region": "r"})
        assert store.cluster_id == await index.cluster_id()

        _, body = await ask("topics", {})
        topics = msgspec.msgpack.decode(body, type=TopicsAnswer).topics
        assert [(name, len(one), len(streams)) for name, one, streams in topics] == [
            ("a", 16, 2),
            ("b", 16, 1),
        ]
        _, body = await ask("topics", {"names": ["b", "none"]})
        assert msgspec.msgpack.decode(body, type=TopicsAnswer).topics == topics[1:]

        first, second = topics[0][2]
        _, body = await ask("bounds", {"streams": [second, 99, first]})
        bounds = msgspec.msgpack.decode(body, type=BoundsAnswer).bounds
        assert bounds == [(0, 4), None, (0, 4)]

        _, body = await ask("times", {"times_ms": {first: 1001, second: 5000, 99: 1}})
        assert msgspec.msgpack.decode(body, type=TimesAnswer).offsets == {first: 1}

        await swapped(index, first, start=0, end=2, key="compaction/v1/x")
        _, body = await ask("entries", {"ranges": [(first, 1, 4), (99, 0, 1), (second, 2, 3)]})
        one, gone, other = msgspec.msgpack.decode(body, type=EntriesAnswer).ranges
        assert gone is None
        assert one is not None
        assert other is not None
        assert list(one.kinds) == [2, 0]
        assert one.names[one.labels[0]] == "compaction/v1/x"
        assert (one.log_start, one.head, one.domain) == (0, 4, 0)
        assert (list(other.kinds), len(other.wal_ids)) == ([0], 16)

    run(scenario)


def test_an_answer_ends_after_so_many_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENTRIES_PER_ANSWER", 3)

    async def scenario(ask: Ask, index: BrokerIndex) -> None:
        a, b = await index.topics()
        ranges = [(stream, 0, 4) for stream in (*a.streams, *b.streams)]
        _, body = await ask("entries", {"ranges": ranges})
        found = msgspec.msgpack.decode(body, type=EntriesAnswer).ranges
        assert [len(one.kinds) for one in found if one is not None] == [2]

    run(scenario)


@pytest.mark.parametrize("name", ["topics", "bounds", "times", "entries"])
def test_what_is_no_question_is_refused(name: str) -> None:
    async def scenario(ask: Ask, _: BrokerIndex) -> None:
        negative = {"streams": [-1], "ranges": [(-1, 0, 0)], "times_ms": {-1: 0}, "names": [7]}
        huge = {"streams": [1 << 63], "ranges": [(1, 2)], "times_ms": {1: 1 << 63}, "names": 1}
        many = {
            "streams": [1] * 30_000,
            "ranges": [(1, 0, 1)] * 20_000,
            "times_ms": dict.fromkeys(range(1_000), 1),
            "names": ["a"] * 20_000,
        }
        for question in (b"", b"\xc1", b"\x93\x01", negative, huge, many):
            status, answer = await ask(name, question)
            assert status == 400, question
            assert isinstance(failure_in(answer), Failure)
        assert (await ask(name, bytes(QUESTION_BYTES_MAX + 1)))[0] == 413
        assert (await ask(name, {}, "GET"))[0] == 405

    run(scenario)


class Failing:
    """An index that fails in one way."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    async def cluster_id(self) -> str:
        raise self._failure

    async def named(self, names: Sequence[str] | None) -> Sequence[tuple[str, bytes, list[int]]]:
        raise self._failure

    async def bounds(self, streams: Sequence[int]) -> Sequence[tuple[int, int] | None]:
        raise self._failure

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        raise self._failure

    async def entries(
        self, ranges: Sequence[StreamRange], *, entries_max: int
    ) -> Sequence[RangeColumns | None]:
        raise self._failure


@pytest.mark.parametrize(("name", "expected"), sorted(FAILURES.items()))
def test_a_failure_travels_as_what_it_is(name: str, expected: tuple[type[Failure], int]) -> None:
    async def scenario() -> None:
        async with served(Failing(expected[0]("why"))) as ask:
            for page, question in (("store", None), ("bounds", {"streams": [1]})):
                status, body = await ask(page, question)
                assert status == expected[1], name
                found = failure_in(body)
                assert type(found) is expected[0]
                assert str(found) == "why"

    asyncio.run(scenario())


def test_only_settings_that_are_no_secret_are_told() -> None:
    told = public_options(
        {
            "region": "r",
            "AWS_ENDPOINT_URL": "http://h",
            "virtual_hosted_style_request": "true",
            "azure_storage_account_name": "a",
            "access_key_id": "k",
            "aws_secret_access_key": "s",
            "session_token": "t",
            "token": "t",
            "account_key": "k",
            "sas_key": "s",
            "google_service_account_key": "k",
            "something_new": "x",
        }
    )
    assert sorted(told.values()) == ["a", "http://h", "r", "true"]
