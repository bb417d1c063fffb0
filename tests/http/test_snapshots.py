"""Questions about snapshots and groups as a stranger asks them: limits, nonsense, failures."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

import msgspec
import pytest
from starlette.applications import Starlette
from tests.http.test_pipeline import asked

from lakelog.http.pipeline_messages import failure_in
from lakelog.http.reading_messages import PATH
from lakelog.http.service import serve
from lakelog.http.snapshot_messages import (
    ANSWER_BYTES,
    PAGES_PER_QUESTION,
    QUESTION_BYTES_MAX,
    GroupAnswer,
    PagesAnswer,
    SnapshotsAnswer,
)
from lakelog.http.snapshots import snapshot_routes
from lakelog.model.failures import Corrupt, Failure, Refused, Unavailable
from lakelog.server.snapshot_index import Committed, KnownSnapshots, Missing

Ask = Callable[..., Awaitable[tuple[int, bytes]]]
KNOWN = KnownSnapshots(bytes(16), 3, 5, b"live", b"recent", 1, 9)
COMMITTED = Committed(bytes(16), 2, {0: 7})
NOTHING = 404


@dataclass
class Answers:
    """An index that says what a test wants."""

    known: KnownSnapshots | Enum = KNOWN
    committed_ones: Committed | Enum = COMMITTED
    failure: Failure | None = None
    page_bytes: int = 10

    async def snapshots(self, topic: str) -> KnownSnapshots | Enum:
        if self.failure is not None:
            raise self.failure
        assert topic == "t"
        return self.known

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        assert topic_id == bytes(16)
        return None if number == NOTHING else bytes(self.page_bytes)

    async def committed(self, group: str, topic: str) -> Committed | Enum:
        assert (group, topic) == ("g", "t")
        return self.committed_ones


@asynccontextmanager
async def served(index: Answers) -> AsyncIterator[Ask]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        serving = asyncio.create_task(serve(Starlette(routes=snapshot_routes(index)), listening))

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


def run(index: Answers, work: Callable[[Ask], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30), served(index) as ask:
            await work(ask)

    asyncio.run(bounded())


def test_everything_that_is_known_is_told() -> None:
    async def work(ask: Ask) -> None:
        code, body = await ask("snapshots", {"topic": "t"})
        assert code == 200
        assert msgspec.msgpack.decode(body, type=SnapshotsAnswer) == SnapshotsAnswer(
            "", bytes(16), 3, 5, b"live", b"recent", 1, 9
        )
        code, body = await ask("snapshot_pages", {"topic_id": bytes(16), "numbers": [3, NOTHING]})
        assert msgspec.msgpack.decode(body, type=PagesAnswer).pages == [bytes(10), None]
        code, body = await ask("group", {"group": "g", "topic": "t"})
        found = msgspec.msgpack.decode(body, type=GroupAnswer)
        assert found == GroupAnswer("", bytes(16), 2, {0: 7})

    run(Answers(), work)


@pytest.mark.parametrize("missing", list(Missing))
def test_what_there_is_not_is_named(missing: Missing) -> None:
    async def work(ask: Ask) -> None:
        _, body = await ask("snapshots", {"topic": "t"})
        assert msgspec.msgpack.decode(body, type=SnapshotsAnswer).missing == missing.value
        _, body = await ask("group", {"group": "g", "topic": "t"})
        assert msgspec.msgpack.decode(body, type=GroupAnswer).missing == missing.value

    run(Answers(missing, missing), work)


def test_an_answer_with_pages_has_a_limit_and_one_page_at_least() -> None:
    async def work(ask: Ask) -> None:
        question = {"topic_id": bytes(16), "numbers": [0, 1, 2, 3]}
        _, body = await ask("snapshot_pages", question)
        assert len(msgspec.msgpack.decode(body, type=PagesAnswer).pages) == 1

    run(Answers(page_bytes=ANSWER_BYTES + 1), work)
    run(Answers(page_bytes=ANSWER_BYTES - 1), work)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("snapshots", b""),
        ("snapshots", b"\xc1"),
        ("snapshots", {"topic": 5}),
        ("snapshots", {"topic": "x" * 70_000}),
        ("snapshot_pages", {"topic_id": b"short", "numbers": []}),
        ("snapshot_pages", {"topic_id": bytes(16), "numbers": [-1]}),
        ("snapshot_pages", {"topic_id": bytes(16), "numbers": [0] * (PAGES_PER_QUESTION + 1)}),
        ("group", {"group": "g"}),
        ("group", {"group": None, "topic": "t"}),
        ("group", [1, 2]),
    ],
)
def test_nonsense_is_refused(name: str, question: object) -> None:
    async def work(ask: Ask) -> None:
        code, body = await ask(name, question)
        assert code == 400
        assert isinstance(failure_in(body), Refused)

    run(Answers(), work)


def test_only_questions_of_some_size_are_answered() -> None:
    async def work(ask: Ask) -> None:
        assert (await ask("snapshots", bytes(QUESTION_BYTES_MAX + 1)))[0] == 413
        assert (await ask("snapshots", {"topic": "t"}, "GET"))[0] == 405

    run(Answers(), work)


@pytest.mark.parametrize("failure", [Unavailable("later"), Corrupt("broken")])
def test_a_failure_is_told_as_what_it_is(failure: Failure) -> None:
    async def work(ask: Ask) -> None:
        code, body = await ask("snapshots", {"topic": "t"})
        assert code in (500, 503)
        told = failure_in(body)
        assert type(told) is type(failure)
        assert str(told) == str(failure)

    run(Answers(failure=failure), work)
