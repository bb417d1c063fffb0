"""Questions to whichever broker answers: what is known when none does, or a connection ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.index.stub_server import (
    NOBODY,
    SWAP,
    answering,
    hang_up,
    index_at,
    question,
    run,
    server,
)

from lakelog.index.http_client import BrokerClient, CallLimits, Repeat, known_brokers
from lakelog.index.messages import FailureAnswer, FilesAnswer, SwapAnswer
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable

QUICK = CallLimits(connect_s=1.0, answer_s=0.5)


def told(failure: str) -> bytes:
    return msgspec.msgpack.encode(FailureAnswer(failure, "why"))


@asynccontextmanager
async def client_at(*brokers: str, limits: CallLimits = QUICK) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(known_brokers(brokers), "/x/", serves="tests", limits=limits)
    try:
        yield client
    finally:
        await client.close()


def test_unavailable_is_said_only_where_nobody_can_have_done_anything() -> None:
    async def scenario() -> None:
        async with (
            server(answering(503, told("unavailable"))) as busy,
            server(answering(500, told("outcome_unknown"))) as unsure,
            server(answering(500, b"a page")) as broken,
            server(answering(200, b"\xc1")) as mad,
            server(hang_up) as rude,
        ):
            for brokers in ([NOBODY], [busy], [NOBODY, busy, NOBODY]):
                async with client_at(*brokers) as client:
                    with pytest.raises(Unavailable, match="no broker answers"):
                        await client.ask("it", {}, int, repeat=Repeat.IDEMPOTENT)
            for doubtful in (unsure, broken, mad, rude):
                for brokers in ([doubtful], [doubtful, busy], [NOBODY, doubtful, NOBODY]):
                    async with client_at(*brokers) as client:
                        with pytest.raises(OutcomeUnknown):
                            await client.ask("it", {}, int, repeat=Repeat.IDEMPOTENT)
                        with pytest.raises(Unavailable):
                            await client.ask("it", {}, int)

    run(scenario)


def test_a_refusal_is_final_and_a_stranger_is_named() -> None:
    async def scenario() -> None:
        seven = msgspec.msgpack.encode(7)
        async with (
            server(answering(403, told("refused"))) as refusing,
            server(answering(404, b"Not Found")) as stranger,
            server(answering(200, seven)) as good,
        ):
            async with client_at(refusing, good) as client:
                with pytest.raises(Refused, match="why"):
                    await client.ask("it", {}, int, repeat=Repeat.IDEMPOTENT)
            async with client_at(stranger) as client:
                with pytest.raises(Refused, match=f"{stranger} is not .* that serves tests"):
                    await client.ask("it", {}, int)
            async with client_at(NOBODY, good, refusing) as client:
                assert [await client.ask("it", {}, int) for _ in range(3)] == [7] * 3

    run(scenario)


def test_an_answer_has_a_limit() -> None:
    async def scenario() -> None:
        limits = CallLimits(connect_s=1.0, answer_s=0.5, answer_bytes_max=10)
        async with (
            server(answering(200, bytes(11))) as endless,
            client_at(endless, limits=limits) as client,
        ):
            with pytest.raises(Unavailable, match="more than 10 bytes"):
                await client.ask("it", {}, int)

    run(scenario)


def test_a_broker_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await question(reader)
            await ended.wait()

        async with server(silent) as address, index_at(address) as index:
            with pytest.raises(Unavailable, match="did not answer"):
                await index.topics()
            with pytest.raises(OutcomeUnknown):
                await index.swap(SWAP)
            ended.set()

    run(scenario)


def test_closing_ends_a_call_that_waits() -> None:
    async def scenario() -> None:
        heard, ended = asyncio.Event(), asyncio.Event()

        async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await question(reader)
            heard.set()
            await ended.wait()

        patient = CallLimits(answer_s=600)
        async with server(silent) as address, index_at(address, limits=patient) as index:
            asking = asyncio.create_task(index.topics())
            await heard.wait()
            await index.close()
            with pytest.raises(Unavailable):
                await asking
            ended.set()

    run(scenario)


def test_a_connection_is_kept_and_one_that_the_broker_closed_is_not_used_for_a_swap() -> None:
    async def scenario() -> None:
        connections = 0
        answer = msgspec.msgpack.encode(SwapAnswer(False, "no"))
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            for _ in range(3):
                await question(reader)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
                writer.write(answer)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
            closed.set()

        async with server(serve) as address, index_at(address) as index:
            for _ in range(3):
                assert (await index.swap(SWAP)).reason == "no"
            assert connections == 1
            await closed.wait()
            assert (await index.swap(SWAP)).reason == "no"
            assert connections == 2

    run(scenario)


def test_a_read_is_repeated_when_a_kept_connection_ends_as_it_is_used_again() -> None:
    async def scenario() -> None:
        connections = 0
        answer = msgspec.msgpack.encode(FilesAnswer(["a"]))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            await question(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))
            writer.write(answer)
            await hang_up(reader, writer)

        async with server(serve) as address, index_at(address) as index:
            assert await index.named_files() == {"a"}
            assert await index.named_files() == {"a"}
            assert connections == 2
            with pytest.raises(OutcomeUnknown):
                await index.swap(SWAP)
            assert connections == 2

    run(scenario)
