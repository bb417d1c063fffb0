"""Connections: kept, given up, and what is known when one ends."""

import asyncio

import msgspec
import pytest
from tests.http.stub_server import SWAP, answering, hang_up, index_at, question, run, server

from lakelog.http import pipeline_messages as messages
from lakelog.http.client import CallLimits
from lakelog.model.failures import OutcomeUnknown, Unavailable


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
        answer = msgspec.msgpack.encode(messages.SwapAnswer(False, "no"))
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
        answer = msgspec.msgpack.encode(messages.FilesAnswer(["a"]))

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


def test_an_answer_beyond_the_limit_is_not_taken() -> None:
    async def scenario() -> None:
        small = CallLimits(answer_bytes_max=100, answer_s=1.0)
        async with (
            server(answering(200, bytes(101))) as address,
            index_at(address, limits=small) as index,
        ):
            with pytest.raises(Unavailable, match="more than 100 bytes"):
                await index.topics()

    run(scenario)
