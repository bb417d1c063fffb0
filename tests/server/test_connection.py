"""Order, overlap and the ways a connection ends, over real sockets, on both loops."""

import asyncio
import functools
import inspect
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.server.port_stub import (
    API_VERSIONS,
    FETCH,
    LOOPS,
    METADATA,
    Held,
    Talk,
    answer,
    echo,
    eventually,
    port,
    request,
    run,
)

from lakelog.broker.call import Answer, Call, CloseConnection, Later, NoAnswer
from lakelog.broker.loop_turn import SLOW_ITEMS_MIN
from lakelog.server import requests
from lakelog.server.answers import encoded
from lakelog.server.connection import ClientConnection
from lakelog.server.listener import Listener
from lakelog.server.options import ServerOptions
from lakelog.wire.apis import APIS
from lakelog.wire.framing import RequestHeader, decode_response
from lakelog.wire.messages.api_versions import ApiVersionsResponse
from lakelog.wire.schema import Buffer

both_loops = pytest.mark.parametrize("loop", LOOPS)


@both_loops
def test_answers_leave_in_the_order_of_the_requests_whatever_finishes_first(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held) as (_, address):
            talk = await Talk.open(address)
            talk.send(*(request(number) for number in range(5)))
            await held.came(5)  # overlapped: none was answered yet
            for future in reversed(held.futures):
                future.set_result(answer())
            assert [await talk.receive() for _ in range(5)] == [0, 1, 2, 3, 4]
            await talk.close()

    run(loop, scenario())


@both_loops
def test_the_next_request_begins_when_the_handler_before_it_has_returned(loop: str) -> None:
    seen: list[str] = []

    async def dispatch(_key: int, call: Call, _body: memoryview) -> Answer | Later:
        seen.append(f"begin {call.version}")
        await asyncio.sleep(0)
        seen.append(f"end {call.version}")
        return answer()

    async def scenario() -> None:
        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            talk.send(request(0, version=0), request(1, version=1))
            assert [await talk.receive() for _ in range(2)] == [0, 1]
            await talk.close()

    run(loop, scenario())
    assert seen == ["begin 0", "end 0", "begin 1", "end 1"]


@both_loops
@pytest.mark.parametrize("later", [False, True])
def test_a_large_answer_keeps_its_place_while_a_thread_encodes_it(
    loop: str, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_thread: list[bool] = []

    def noted(header: RequestHeader, made: Answer) -> list[Buffer]:
        on_thread.append(threading.current_thread() is not threading.main_thread())
        return encoded(header, made)

    async def dispatch(_key: int, call: Call, _body: memoryview) -> Answer | Later:
        made = answer(6 * SLOW_ITEMS_MIN if call.version == 0 else 6)
        if not later:
            return made
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        outcome.set_result(made)
        return Later(outcome)

    async def scenario() -> None:
        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            talk.send(*(request(number, version=number % 2) for number in range(6)))
            assert [await talk.receive() for _ in range(6)] == [0, 1, 2, 3, 4, 5]
            await talk.close()

    monkeypatch.setattr(requests, "encoded", noted)
    run(loop, scenario())
    assert sorted(on_thread) == [False] * 3 + [True] * 3


@both_loops
def test_a_request_may_come_byte_by_byte(loop: str) -> None:
    async def scenario() -> None:
        bodies: list[bytes] = []

        async def dispatch(_key: int, _call: Call, body: memoryview) -> Answer | Later:
            bodies.append(bytes(body))
            return answer()

        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            for byte in request(7, body=b"abc") + request(8, body=b""):
                talk.send(bytes([byte]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert [await talk.receive() for _ in range(2)] == [7, 8]
            await talk.close()
        assert bodies == [b"abc", b""]

    run(loop, scenario())


@both_loops
@pytest.mark.parametrize("size", [-1, 0, 7, 2**31 - 1, 2 * 1024 * 1024 + 1, -(2**31)])
def test_a_hostile_length_ends_the_connection_behind_the_answers_it_owes(
    loop: str, size: int
) -> None:
    async def scenario() -> None:
        async with port(echo) as (listener, address):
            talk = await Talk.open(address)
            talk.send(request(1), size.to_bytes(4, "big", signed=True), b"\0\x12" + b"x" * 20)
            assert await talk.receive() == 1
            assert await talk.is_closed()
            await talk.close()
            other = await Talk.open(address)
            other.send(request(2))
            assert await other.receive() == 2
            await other.close()
            await eventually(lambda: listener.connections == 0)
            assert listener.held_bytes == 0

    run(loop, scenario())


@both_loops
@pytest.mark.parametrize("failure", [CloseConnection("no"), ValueError("bug"), KeyError()])
def test_a_handler_that_fails_ends_its_connection_only_and_is_told_of_once(
    loop: str, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def dispatch(key: int, _call: Call, _body: memoryview) -> Answer | Later:
        if key == METADATA:
            raise failure
        return answer()

    async def scenario() -> None:
        async with port(dispatch) as (_, address):
            other = await Talk.open(address)
            talk = await Talk.open(address)
            talk.send(request(1), request(2, key=METADATA), request(3))
            assert await talk.receive() == 1
            assert await talk.is_closed()
            other.send(request(4))
            assert await other.receive() == 4
            await talk.close()
            await other.close()

    run(loop, scenario())
    told = [record for record in caplog.records if record.name == "lakelog.server"]
    assert len(told) == 1
    assert bool(told[0].exc_info) == (not isinstance(failure, CloseConnection))


@both_loops
def test_a_failure_of_work_that_was_promised_ends_the_connection_in_its_turn(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held) as (_, address):
            talk = await Talk.open(address)
            talk.send(request(1), request(2), request(3))
            await held.came(3)
            held.futures[1].set_exception(RuntimeError("lost"))
            held.futures[2].set_result(answer())
            held.futures[0].set_result(answer())
            assert await talk.receive() == 1
            assert await talk.is_closed()
            await talk.close()

    run(loop, scenario())


@both_loops
def test_work_may_be_a_coroutine_and_its_result_is_finished_by_the_handler(loop: str) -> None:
    async def slow() -> int:
        await asyncio.sleep(0)
        return 12

    async def dispatch(_key: int, _call: Call, _body: memoryview) -> Answer | Later:
        return Later(slow(), answer)

    async def scenario() -> None:
        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            talk.send(request(1), request(2))
            assert [await talk.receive() for _ in range(2)] == [1, 2]
            await talk.close()

    run(loop, scenario())


@both_loops
def test_a_request_without_an_answer_does_not_hold_up_the_next(loop: str) -> None:
    async def scenario() -> None:
        held = Held()

        async def dispatch(key: int, call: Call, body: memoryview) -> Answer | Later:
            return NoAnswer() if key == METADATA else await held(key, call, body)

        async with port(dispatch) as (listener, address):
            talk = await Talk.open(address)
            frames = [request(1), request(2, key=METADATA), request(3), request(4, key=METADATA)]
            talk.send(*frames)
            await held.came(2)
            for future in held.futures:
                future.set_result(answer())
            assert [await talk.receive() for _ in range(2)] == [1, 3]
            await eventually(lambda: listener.held_bytes == 0)
            await talk.close()

    run(loop, scenario())


@both_loops
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(loop: str) -> None:
    async def scenario() -> None:
        async with port(echo) as (_, address):
            talk = await Talk.open(address)
            # Header version 2: the newer version of the client counts as flexible.
            talk.send(request(9, version=99, body=b"\0"))
            size = int.from_bytes(await talk.reader.readexactly(4), "big")
            frame = memoryview(await talk.reader.readexactly(size))
            correlation_id, found = decode_response(ApiVersionsResponse, 0, frame)
            assert (correlation_id, found.error_code) == (9, 0)
            await talk.close()

    run(loop, scenario())


@both_loops
def test_an_api_that_is_unknown_ends_the_connection(loop: str) -> None:
    async def scenario() -> None:
        async with port(echo) as (_, address):
            talk = await Talk.open(address)
            assert 999 not in APIS
            talk.send(request(1, key=999))
            assert await talk.is_closed()
            await talk.close()

    run(loop, scenario())


@both_loops
def test_a_client_that_leaves_ends_its_parked_fetch_and_nothing_else(loop: str) -> None:
    ended: list[str] = []
    began: list[int] = []

    async def scenario() -> None:
        go_on = asyncio.Event()

        async def dispatch(key: int, _call: Call, _body: memoryview) -> Answer | Later:
            began.append(key)
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                ended.append(f"cancelled {key}")
                raise
            ended.append(f"done {key}")
            return answer()

        async with port(dispatch) as (listener, address):
            for key in (FETCH, METADATA):
                talk = await Talk.open(address)
                talk.send(request(1, key=key, version=4))
                await eventually(functools.partial(began.__contains__, key))
                await talk.close()
            await eventually(lambda: listener.connections == 0)
            await eventually(lambda: ended == [f"cancelled {FETCH}"])
            go_on.set()
            await eventually(lambda: ended == [f"cancelled {FETCH}", f"done {METADATA}"])

    run(loop, scenario())


@both_loops
def test_a_client_that_leaves_ends_a_fetch_whose_answer_was_promised(loop: str) -> None:
    async def scenario() -> None:
        waiting, ended = asyncio.Event(), asyncio.Event()

        async def parked() -> Answer:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return answer()

        async def dispatch(_key: int, _call: Call, _body: memoryview) -> Answer | Later:
            return Later(parked())

        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            talk.send(request(1, key=FETCH, version=4))
            await waiting.wait()
            await talk.close()
            await asyncio.wait_for(ended.wait(), 10)

    run(loop, scenario())


@both_loops
def test_a_promise_that_never_began_leaves_nothing_behind(loop: str) -> None:
    """The client is gone in the very turn in which its fetch was promised an answer."""

    async def scenario() -> None:
        promises: list[Coroutine[Any, Any, Answer]] = []
        ports: list[Listener] = []

        async def parked() -> Answer:
            raise AssertionError("nobody waits for this any more")

        async def dispatch(_key: int, _call: Call, _body: memoryview) -> Answer | Later:
            promises.append(parked())
            for connection in ports[0]._port.connections:
                assert isinstance(connection, ClientConnection)
                asyncio.get_running_loop().call_soon(connection._requests.end)
            return Later(promises[0])

        async with port(dispatch) as (listener, address):
            ports.append(listener)
            talk = await Talk.open(address)
            talk.send(request(1, key=FETCH, version=4))
            while not promises or inspect.getcoroutinestate(promises[0]) != inspect.CORO_CLOSED:
                await asyncio.sleep(0.001)
            await talk.close()

    run(loop, scenario())


@both_loops
def test_a_handler_sees_where_the_request_came_from_and_how_it_reached_us(loop: str) -> None:
    calls: list[Call] = []

    async def dispatch(key: int, call: Call, _body: memoryview) -> Answer | Later:
        assert key == API_VERSIONS
        calls.append(call)
        return answer()

    async def scenario() -> int:
        async with port(dispatch, ServerOptions()) as (_, address):
            for _ in range(2):
                talk = await Talk.open(address)
                talk.send(request(1))
                await talk.receive()
                await talk.close()
            return address.port

    number = run(loop, scenario())
    first, second = calls
    assert (first.client_host, first.server_host, first.server_port) == (
        "127.0.0.1",
        "127.0.0.1",
        number,
    )
    assert first.connection != second.connection
    assert first.request_bytes == len(request(1))
