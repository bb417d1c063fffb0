"""Every limit of the Kafka port, reached over real sockets, on both loops."""

import asyncio
import socket

import pytest
from tests.server.port_stub import (
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
    settled,
)

from lakelog.broker.call import Answer, Call, Later
from lakelog.server.connection import ClientConnection
from lakelog.server.options import ServerOptions

both_loops = pytest.mark.parametrize("loop", LOOPS)
MIB = 1024 * 1024


@both_loops
def test_requests_beyond_the_limit_wait_until_earlier_ones_are_answered(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held, ServerOptions(connection_requests_max=8)) as (_, address):
            talk = await Talk.open(address)
            talk.send(*(request(number) for number in range(100)))
            assert await settled(lambda: len(held.futures)) == 8
            answered = 0
            while answered < 100:
                await held.came(answered + 1)
                held.futures[answered].set_result(answer())
                assert await talk.receive() == answered
                answered += 1
            await talk.close()

    run(loop, scenario())


@both_loops
def test_bytes_beyond_the_limit_are_not_read(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        options = ServerOptions(connection_bytes_max=4 * MIB, total_bytes_max=64 * MIB)
        async with port(held, options) as (listener, address):
            talk = await Talk.open(address)
            frame = request(1, key=METADATA, version=1, body=bytes(MIB))
            talk.send(*[frame] * 40)
            await settled(lambda: len(held.futures))
            assert listener.held_bytes <= 7 * MIB  # the limit, a frame, and a read's worth
            for number in range(40):
                await held.came(number + 1)
                held.futures[number].set_result(answer())
                await talk.receive()
            await eventually(lambda: listener.held_bytes == 0)
            await talk.close()

    run(loop, scenario())


@both_loops
def test_one_request_larger_than_the_connection_s_limit_still_passes(loop: str) -> None:
    async def scenario() -> None:
        options = ServerOptions(connection_bytes_max=MIB // 4, total_bytes_max=64 * MIB)
        async with port(echo, options) as (_, address):
            talk = await Talk.open(address)
            for number in range(3):
                talk.send(request(number, body=bytes(MIB)))
            assert [await talk.receive() for _ in range(3)] == [0, 1, 2]
            await talk.close()

    run(loop, scenario())


@both_loops
def test_all_connections_together_stay_below_the_total(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        options = ServerOptions(connection_bytes_max=2 * MIB, total_bytes_max=4 * MIB)
        async with port(held, options) as (listener, address):
            talks = [await Talk.open(address) for _ in range(16)]
            for talk in talks:
                talk.send(request(1, body=bytes(MIB)))
            await settled(lambda: len(held.futures))
            # One large read before room is scarce, then a small one of each connection.
            assert listener.held_bytes <= 5 * MIB + 16 * 64 * 1024
            answered = 0
            while answered < 16:
                await held.came(answered + 1)
                held.futures[answered].set_result(answer())
                answered += 1
            assert [await talk.receive() for talk in talks] == [1] * 16
            for talk in talks:
                await talk.close()

    run(loop, scenario())


@both_loops
def test_a_client_that_does_not_read_is_not_served_more(loop: str) -> None:
    served = 0

    async def dispatch(_key: int, _call: Call, _body: memoryview) -> Answer | Later:
        nonlocal served
        served += 1
        return answer(MIB)

    async def scenario() -> None:
        async with port(dispatch) as (_, address):
            talk = await Talk.open(address)
            talk.writer.transport.pause_reading()  # type: ignore[attr-defined] # it is a transport for both ways
            talk.send(*(request(number) for number in range(60)))
            # What the kernel's buffers and our own limit take, and not one answer more.
            assert await settled(lambda: served) < 30
            talk.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            assert [await talk.receive() for _ in range(60)] == list(range(60))
            await talk.close()

    run(loop, scenario())


@both_loops
def test_one_connection_too_many_is_closed_and_its_place_can_be_had_again(loop: str) -> None:
    async def scenario() -> None:
        async with port(echo, ServerOptions(connections_max=2)) as (listener, address):
            talks = [await Talk.open(address) for _ in range(2)]
            await eventually(lambda: listener.connections == 2)
            refused = await Talk.open(address)
            assert await refused.is_closed()
            await refused.close()
            await talks[0].close()
            await eventually(lambda: listener.connections == 1)
            again = await Talk.open(address)
            again.send(request(5))
            assert await again.receive() == 5
            await again.close()
            await talks[1].close()

    run(loop, scenario())


@both_loops
def test_an_idle_connection_is_closed_and_a_busy_one_is_not(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held, ServerOptions(idle_timeout_s=0.1)) as (_, address):
            idle = await Talk.open(address)
            busy = await Talk.open(address)
            busy.send(request(1))
            assert await idle.is_closed()
            await held.came(1)
            held.futures[0].set_result(answer())
            assert await busy.receive() == 1
            await idle.close()
            await busy.close()

    run(loop, scenario())


@both_loops
def test_a_request_that_stalls_half_way_ends_its_connection(loop: str) -> None:
    async def scenario() -> None:
        options = ServerOptions(frame_timeout_s=0.1, frame_rate_min_bytes=1 << 30)
        async with port(echo, options) as (listener, address):
            stalled = await Talk.open(address)
            patient = await Talk.open(address)
            stalled.send(request(1)[:-1])
            assert await stalled.is_closed()
            assert listener.held_bytes == 0
            patient.send(request(2))
            assert await patient.receive() == 2
            await stalled.close()
            await patient.close()

    run(loop, scenario())


@both_loops
def test_a_drain_answers_what_was_asked_and_closes(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held) as (listener, address):
            idle = await Talk.open(address)
            talk = await Talk.open(address)
            talk.send(request(1), request(2))
            await held.came(2)
            drained = asyncio.create_task(listener.drain())
            assert await idle.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await Talk.open(address)
            assert not drained.done()
            for future in held.futures:
                future.set_result(answer())
            assert [await talk.receive() for _ in range(2)] == [1, 2]
            assert await talk.is_closed()
            await drained
            assert listener.connections == 0
            await idle.close()
            await talk.close()

    run(loop, scenario())


@both_loops
def test_a_drain_gives_up_after_its_time_out(loop: str) -> None:
    async def scenario() -> None:
        held = Held()
        async with port(held, ServerOptions(drain_timeout_s=0.05)) as (listener, address):
            talk = await Talk.open(address)
            talk.send(request(1))
            await held.came(1)
            await listener.drain()
            assert listener.connections == 1
            await listener.close()
            assert await talk.is_closed()
            await talk.close()

    run(loop, scenario())


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="idle_timeout_s must be greater than 0"):
        ServerOptions(idle_timeout_s=0)
    with pytest.raises(ValueError, match="must not be greater than total_bytes_max"):
        ServerOptions(connection_bytes_max=2, total_bytes_max=1)


@both_loops
def test_the_system_takes_no_more_of_an_answer_at_once_than_was_set(loop: str) -> None:
    async def scenario() -> None:
        buffer_bytes = 16 * 1024
        async with port(echo, ServerOptions(send_buffer_bytes=buffer_bytes)) as (listener, address):
            talk = await Talk.open(address)
            talk.send(request(1))
            await talk.receive()
            (connection,) = listener._port.connections
            assert isinstance(connection, ClientConnection)
            assert connection._transport is not None
            taken: socket.socket = connection._transport.get_extra_info("socket")
            found_bytes = taken.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
            await talk.close()
        assert found_bytes <= 2 * buffer_bytes  # Linux counts what it needs itself, too

    run(loop, scenario())
