"""The index over HTTP as a stranger meets it: tokens, limits, nonsense, failures."""

import asyncio
import http.client
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing

import msgspec
import pytest
from starlette.applications import Starlette
from tests.broker.whole import Stores, whole_broker
from tests.server.index_stage import ENTROPY, http_port, made

from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.http.pipeline import pipeline_routes
from lakelog.http.pipeline_messages import (
    FAILURES,
    QUESTION_BYTES_MAX,
    FailureAnswer,
    StreamsQuestion,
    failure_in,
    told,
)
from lakelog.http.service import serve
from lakelog.index.ports import IndexedTopic, StreamIndex, StreamRange, StreamView
from lakelog.model.failures import Failure, OutcomeUnknown, WriterFenced
from lakelog.topics.cluster import pipeline_token

Ask = Callable[..., Awaitable[tuple[int, bytes]]]
SWAP = {
    "stream": 1,
    "start": 0,
    "end": 1,
    "kind": 2,
    "key": "a",
    "size_bytes": 1,
    "max_timestamp_ms": 0,
    "replaces": [bytes(8)],
}


async def asked(
    address: str, path: str, body: bytes, headers: dict[str, str], method: str = "POST"
) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection(address, timeout=10)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    return await asyncio.get_running_loop().run_in_executor(None, ask)


def run(scenario: Callable[[Ask, str], Awaitable[None]]) -> None:
    """A scenario with a way to ask a real broker, and its token."""

    async def bounded() -> None:
        stores = Stores()
        async with asyncio.timeout(30), whole_broker(stores) as broker:
            await made(broker, "t")
            async with http_port(broker, stores) as address:
                token = await pipeline_token(stores.metadata, ENTROPY)

                async def ask(
                    name: str, body: bytes = b"", authorization: str = f"Bearer {token}"
                ) -> tuple[int, bytes]:
                    headers = {"Authorization": authorization}
                    return await asked(address, f"/pipeline/v1/{name}", body, headers)

                await scenario(ask, token)

    asyncio.run(bounded())


def test_nothing_is_told_without_the_token() -> None:
    async def scenario(ask: Ask, token: str) -> None:
        assert len(token) == 32
        for name in ("cluster", "topics", "backlog", "columns", "views", "swap", "named-files"):
            for given in ("", "Bearer", f"Bearer {token[:-1]}", f"Basic {token}", "Bearer \xe9"):
                status, body = await ask(name, b"", given)
                assert status == 403
                assert isinstance(failure_in(body), Failure)
        assert (await ask("cluster"))[0] == 200
        assert (await ask("cluster", b"", f"bearer {token}"))[0] == 200

    run(scenario)


@pytest.mark.parametrize("name", ["backlog", "columns", "views", "swap"])
def test_a_body_that_is_no_question_is_refused(name: str) -> None:
    async def scenario(ask: Ask, _: str) -> None:
        huge = msgspec.msgpack.encode({"streams": [1 << 63], "ranges": [(1, 2)]})
        negative = msgspec.msgpack.encode({"streams": [-1], "ranges": [(-1, 0, 0)]})
        many = msgspec.msgpack.encode({"streams": [1] * 20_000, "ranges": [(1, 0, 1)] * 2_000})
        for body in (b"", b"\xc1", b"\x81", b"\x93\x01", huge, negative, many, bytes(1 << 20)):
            status, answer = await ask(name, body)
            assert status == 400, body[:20]
            assert isinstance(failure_in(answer), Failure)

    run(scenario)


def test_a_body_beyond_the_limit_is_refused() -> None:
    async def scenario(ask: Ask, _: str) -> None:
        status, _body = await ask("backlog", bytes(QUESTION_BYTES_MAX + 1))
        assert status == 413

    run(scenario)


def test_a_swap_of_a_kind_that_is_none_is_refused_and_the_log_goes_on() -> None:
    async def scenario(ask: Ask, _: str) -> None:
        for change in ({"kind": 9}, {"kind": 0}, {"key": "/etc"}, {"replaces": [b""]}):
            status, _body = await ask("swap", msgspec.msgpack.encode({**SWAP, **change}))
            assert status == 403, change
        status, body = await ask("swap", msgspec.msgpack.encode(SWAP))
        assert status == 200
        assert msgspec.msgpack.decode(body)["accepted"] is False

    run(scenario)


class Failing:
    """An index that fails in one way."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    async def cluster_id(self) -> str:
        raise self._failure

    async def topics(self) -> Sequence[IndexedTopic]:
        raise self._failure

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        raise self._failure

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        raise self._failure

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        raise self._failure

    async def swap(self, swap: Swap) -> Swapped:
        raise self._failure

    async def named_files(self) -> frozenset[str]:
        raise self._failure


@pytest.mark.parametrize(("name", "expected"), sorted(FAILURES.items()))
def test_a_failure_travels_as_what_it_is(name: str, expected: tuple[type[Failure], int]) -> None:
    async def token() -> str:
        return "x"

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            routes = pipeline_routes(Failing(expected[0]("why")), token)
            serving = asyncio.create_task(serve(Starlette(routes=routes), listening))
            headers = {"Authorization": "Bearer x"}
            question = msgspec.msgpack.encode(StreamsQuestion([1]))
            status, body = await asked(address, "/pipeline/v1/backlog", question, headers)
            assert status == expected[1]
            found = failure_in(body)
            assert type(found) is expected[0]
            assert str(found) == "why"
            status, _ = await asked(address, "/pipeline/v1/backlog", b"", headers, "GET")
            assert status == 405
            serving.cancel()
            await asyncio.wait([serving])

    asyncio.run(scenario())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(FailureAnswer(name, "")))


def test_a_failure_without_a_name_may_have_changed_something() -> None:
    status, said = told(WriterFenced("replaced"))
    assert status == 500
    assert isinstance(failure_in(msgspec.msgpack.encode(said)), OutcomeUnknown)
    assert failure_in(b"Internal Server Error") is None
    assert failure_in(msgspec.msgpack.encode(FailureAnswer("mood", ""))) is None
