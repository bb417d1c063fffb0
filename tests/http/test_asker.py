"""Questions to whichever broker answers: what is known, and what is not, when none does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.pipeline.http_stage import NOBODY, answering, hang_up, server

from lakelog.http.asker import Asker, AskLimits
from lakelog.http.pipeline_messages import FailureAnswer
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable

QUICK = AskLimits(connect_s=1.0, answer_s=0.5)


def told(failure: str) -> bytes:
    return msgspec.msgpack.encode(FailureAnswer(failure, "why"))


@asynccontextmanager
async def asker_at(*brokers: str, limits: AskLimits = QUICK) -> AsyncIterator[Asker]:
    asker = Asker(brokers, "/x/", serves="tests", limits=limits)
    try:
        yield asker
    finally:
        await asker.close()


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
                async with asker_at(*brokers) as asker:
                    with pytest.raises(Unavailable, match="no broker answers"):
                        await asker.asked_for("it", {}, int)
            for doubtful in (unsure, broken, mad, rude):
                for brokers in ([doubtful], [doubtful, busy], [NOBODY, doubtful, NOBODY]):
                    async with asker_at(*brokers) as asker:
                        with pytest.raises(OutcomeUnknown):
                            await asker.asked_for("it", {}, int)
                        with pytest.raises(Unavailable):
                            await asker.asked("it", {}, int)

    run(scenario)


def test_a_refusal_is_final_and_a_stranger_is_named() -> None:
    async def scenario() -> None:
        seven = msgspec.msgpack.encode(7)
        async with (
            server(answering(403, told("refused"))) as refusing,
            server(answering(404, b"Not Found")) as stranger,
            server(answering(200, seven)) as good,
        ):
            async with asker_at(refusing, good) as asker:
                with pytest.raises(Refused, match="why"):
                    await asker.asked_for("it", {}, int)
            async with asker_at(stranger) as asker:
                with pytest.raises(Refused, match=f"{stranger} is not .* that serves tests"):
                    await asker.asked("it", {}, int)
            async with asker_at(NOBODY, good, refusing) as asker:
                assert [await asker.asked("it", {}, int) for _ in range(3)] == [7] * 3

    run(scenario)


def test_an_answer_has_a_limit() -> None:
    async def scenario() -> None:
        limits = AskLimits(connect_s=1.0, answer_s=0.5, answer_bytes_max=10)
        async with (
            server(answering(200, bytes(11))) as endless,
            asker_at(endless, limits=limits) as asker,
        ):
            with pytest.raises(Unavailable, match="more than 10 bytes"):
                await asker.asked("it", {}, int)

    run(scenario)
