"""Questions to whichever broker answers: what is known, and what is not, when none does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.http.stub_server import NOBODY, answering, hang_up, server

from lakelog.http.client import BrokerClient, CallLimits, Repeat, known_brokers
from lakelog.http.pipeline_messages import FailureAnswer
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


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


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
