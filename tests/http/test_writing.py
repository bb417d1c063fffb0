"""The way in for objects of others as a stranger meets it: answers, limits, nonsense, failures."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from starlette.applications import Starlette
from tests.broker.whole import Stores, whole_broker
from tests.http.test_pipeline import asked
from tests.log.world import batch
from tests.server.index_stage import made
from tests.server.test_write_index import commit_bytes, head

from lakelog.broker.broker import Broker
from lakelog.http.pipeline_messages import FAILURES, failure_in
from lakelog.http.reading import StorePlace
from lakelog.http.service import serve
from lakelog.http.writing import WritableLog, writing_routes
from lakelog.http.writing_messages import (
    PATH,
    QUESTION_BYTES_MAX,
    CommitAnswer,
    PlaceAnswer,
    TargetsAnswer,
)
from lakelog.log.writes import ObjectPlace, WrittenDomain
from lakelog.model.failures import Failure
from lakelog.server.write_index import WriteIndex
from lakelog.topics.topic import Topic

Ask = Callable[..., Awaitable[tuple[int, bytes]]]
PLACE = StorePlace("s3://bucket/prefix", {"region": "r"})


@asynccontextmanager
async def write_port(log: WritableLog) -> AsyncIterator[str]:
    """Where a log takes objects, as host:port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        app = Starlette(routes=writing_routes(log, PLACE))
        serving = asyncio.create_task(serve(app, listening))
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            serving.cancel()
            await asyncio.wait([serving])


@asynccontextmanager
async def served(log: WritableLog) -> AsyncIterator[Ask]:
    """A way to ask a log through a real port."""
    async with write_port(log) as address:

        async def ask(
            name: str, question: object = None, method: str = "POST"
        ) -> tuple[int, bytes]:
            body = question if isinstance(question, bytes) else msgspec.msgpack.encode(question)
            return await asked(address, PATH + name, body, {}, method)

        yield ask


def run(scenario: Callable[[Ask, Broker, Stores], Awaitable[None]]) -> None:
    async def bounded() -> None:
        stores = Stores()
        async with (
            asyncio.timeout(30),
            whole_broker(stores) as broker,
            served(WriteIndex(broker, stores.clock)) as ask,
        ):
            await scenario(ask, broker, stores)

    asyncio.run(bounded())


def test_a_writer_is_told_targets_and_place_and_commits() -> None:
    async def scenario(ask: Ask, broker: Broker, stores: Stores) -> None:
        topic = await made(broker, "t", 2, max_message_bytes="5000", cleanup_policy="compact")
        status, body = await ask("targets", {"names": ["t", "no name"]})
        (target,) = msgspec.msgpack.decode(body, type=TargetsAnswer).targets
        assert status == 200
        assert (target.topic, target.topic_id, target.streams) == (
            "t",
            bytes(topic.id),
            topic.streams(),
        )
        assert (target.domains, target.max_message_bytes) == ([0, 0], 5_000)
        assert (target.compression, target.log_append_time) == ("producer", False)
        assert target.is_compacted
        _, body = await ask("place")
        place = msgspec.msgpack.decode(body, type=PlaceAnswer)
        assert (place.url, place.options, place.zone) == (PLACE.url, {"region": "r"}, "z")
        assert place.cluster_id == broker.cluster.cluster_id

        (first, _) = topic.streams()
        commit = await commit_bytes(stores, [(first, batch(b"a", b"b"))])
        question = {"application": "job", "version": 3, "placed": [(0, commit)]}
        for is_new in (True, False):
            status, body = await ask("commit", question)
            (taken,) = msgspec.msgpack.decode(body, type=CommitAnswer).domains
            assert (status, taken.domain, taken.is_new) == (200, 0, is_new)
            assert taken.offsets == ([(first, 0, 2)] if is_new else [])
        assert head(broker, first) == 2

    run(scenario)


GOOD = {"application": "job", "version": 0, "placed": [(0, b"x")]}


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("targets", b""),
        ("targets", {}),
        ("targets", {"names": None}),
        ("targets", {"names": ["a"] * 20_000}),
        ("commit", b"\xc1"),
        ("commit", {**GOOD, "application": ""}),
        ("commit", {**GOOD, "application": "a" * 256}),
        ("commit", {**GOOD, "application": 7}),
        ("commit", {**GOOD, "version": -1}),
        ("commit", {**GOOD, "version": 1 << 63}),
        ("commit", {**GOOD, "placed": []}),
        ("commit", {**GOOD, "placed": [(-1, b"x")]}),
        ("commit", {**GOOD, "placed": [(0, b"x", 1)]}),
        ("commit", {**GOOD, "placed": [(0, b"x")] * 70_000}),
    ],
)
def test_what_is_no_question_is_refused(name: str, question: object) -> None:
    async def scenario(ask: Ask, _: Broker, __: Stores) -> None:
        status, answer = await ask(name, question)
        assert status == 400
        assert isinstance(failure_in(answer), Failure)

    run(scenario)


def test_a_question_has_a_limit_and_is_a_post() -> None:
    async def scenario(ask: Ask, _: Broker, __: Stores) -> None:
        for name in ("targets", "place", "commit"):
            assert (await ask(name, bytes(QUESTION_BYTES_MAX + 1)))[0] == 413
            assert (await ask(name, {}, "GET"))[0] == 405
        status, answer = await ask("commit", GOOD)
        assert status == 403
        assert "not a commit" in str(failure_in(answer))
        assert (await ask("commit", {**GOOD, "placed": [(1 << 40, b"x")]}))[0] == 403

    run(scenario)


class Failing:
    """A log that fails in one way."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    async def cluster_id(self) -> str:
        raise self._failure

    async def place(self) -> ObjectPlace:
        raise self._failure

    async def targets(self, names: Sequence[str]) -> Sequence[tuple[Topic, Sequence[int]]]:
        raise self._failure

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[WrittenDomain]:
        raise self._failure


@pytest.mark.parametrize(("name", "expected"), sorted(FAILURES.items()))
def test_a_failure_travels_as_what_it_is(name: str, expected: tuple[type[Failure], int]) -> None:
    async def scenario() -> None:
        async with served(Failing(expected[0]("why"))) as ask:
            for page, question in (("place", None), ("targets", {"names": []}), ("commit", GOOD)):
                status, body = await ask(page, question)
                assert status == expected[1], name
                found = failure_in(body)
                assert type(found) is expected[0]
                assert str(found) == "why"

    asyncio.run(scenario())
