"""The index over HTTP as a stranger meets it: tokens, limits, nonsense, failures."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

import msgspec
import pytest
from tests.index.index_stage import Ask, port

from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import LocatedRange, StreamIndex
from lakelog.index.http_server import pipeline_routes, read_routes, snapshot_routes, write_routes
from lakelog.index.messages import (
    FAILURES,
    PAGES_PER_QUESTION,
    PIPELINE,
    READ,
    SNAPSHOTS,
    WRITE,
    FailureAnswer,
    GroupAnswer,
    QuestionPath,
    SnapshotsAnswer,
    WriteTarget,
    failure_in,
    told,
)
from lakelog.index.ports import (
    Bounds,
    IndexedTopic,
    StorePlace,
    StreamRange,
    StreamView,
    TopicStreams,
    public_options,
)
from lakelog.log.writes import ObjectPlace, WrittenDomain
from lakelog.model.failures import Failure, OutcomeUnknown, Refused, WriterFenced

TOKEN = "0123456789abcdef"
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
COMMIT = {"application": "job", "version": 0, "placed": [(0, b"x")]}
PAGES = {"topic_id": bytes(16), "numbers": [0]}

QUESTIONS: list[tuple[QuestionPath, str, object]] = [
    (PIPELINE, "cluster", b""),
    (PIPELINE, "topics", b""),
    (PIPELINE, "backlog", {"streams": [1]}),
    (PIPELINE, "columns", {"streams": [1]}),
    (PIPELINE, "views", {"ranges": [(1, 0, 1)]}),
    (PIPELINE, "swap", SWAP),
    (PIPELINE, "named-files", b""),
    (READ, "store", b""),
    (READ, "topics", {}),
    (READ, "bounds", {"streams": [1]}),
    (READ, "times", {"times_ms": {1: 1}}),
    (READ, "entries", {"ranges": [(1, 0, 1)]}),
    (SNAPSHOTS, "snapshots", {"topic": "t"}),
    (SNAPSHOTS, "snapshot_pages", PAGES),
    (SNAPSHOTS, "group", {"group": "g", "topic": "t"}),
    (WRITE, "targets", {"names": []}),
    (WRITE, "place", b""),
    (WRITE, "commit", COMMIT),
]
"""Every question there is."""


class Failing:
    """An index, a log and tables that fail in one way."""

    def __init__(self, failure: Failure) -> None:
        self._failure = failure

    def _fail(self) -> NoReturn:
        raise self._failure

    async def cluster_id(self) -> str:
        self._fail()

    async def topics(self) -> Sequence[IndexedTopic]:
        self._fail()

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        self._fail()

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        self._fail()

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        self._fail()

    async def swap(self, swap: Swap) -> Swapped:
        self._fail()

    async def named_files(self) -> frozenset[str]:
        self._fail()

    async def located(
        self, ranges: Sequence[StreamRange], *, entries_max: int | None = None
    ) -> Sequence[LocatedRange | None]:
        self._fail()

    async def topic_streams(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        self._fail()

    async def bounds(self, streams: Sequence[int]) -> Sequence[Bounds | None]:
        self._fail()

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        self._fail()

    async def snapshots(self, topic: str) -> SnapshotsAnswer:
        self._fail()

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        self._fail()

    async def committed(self, group: str, topic: str) -> GroupAnswer:
        self._fail()

    async def place(self) -> ObjectPlace:
        self._fail()

    async def targets(self, names: Sequence[str]) -> Sequence[WriteTarget]:
        self._fail()

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[WrittenDomain]:
        self._fail()


@asynccontextmanager
async def failing(failure: Failure) -> AsyncIterator[Ask]:
    """All routes there are, before an index that fails."""

    async def token() -> str:
        return TOKEN

    behind, place = Failing(failure), StorePlace("s3://bucket", {})
    routes = [
        *pipeline_routes(behind, token),
        *read_routes(behind, place),
        *snapshot_routes(behind),
        *write_routes(behind, place),
    ]
    async with port(routes) as address:
        yield Ask(address, {"Authorization": f"Bearer {TOKEN}"})


def run(scenario: Callable[[Ask], Awaitable[None]], failure: Failure | None = None) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), failing(failure or Failure("not to be told")) as ask:
            await scenario(ask)

    asyncio.run(bounded())


@pytest.mark.parametrize(("name", "expected"), sorted(FAILURES.items()))
def test_a_failure_travels_as_what_it_is(name: str, expected: tuple[type[Failure], int]) -> None:
    async def scenario(ask: Ask) -> None:
        for path, page, question in QUESTIONS:
            status, body = await ask(path, page, question)
            assert status == expected[1], page
            found = failure_in(body)
            assert type(found) is expected[0], page
            assert str(found) == "why"

    run(scenario, expected[0]("why"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(FailureAnswer(name, "")))


def test_a_failure_without_a_name_may_have_changed_something() -> None:
    status, said = told(WriterFenced("replaced"))
    assert status == 500
    assert isinstance(failure_in(msgspec.msgpack.encode(said)), OutcomeUnknown)
    assert failure_in(b"Internal Server Error") is None
    assert failure_in(msgspec.msgpack.encode(FailureAnswer("mood", ""))) is None


def test_nothing_is_told_to_the_pipeline_without_the_token() -> None:
    async def scenario(ask: Ask) -> None:
        for path, name, question in QUESTIONS:
            if path is not PIPELINE:
                continue
            for given in ("", "Bearer", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", "Bearer \xe9"):
                status, body = await ask(path, name, question, headers={"Authorization": given})
                assert status == 403
                assert isinstance(failure_in(body), Refused)
            given = f"bearer {TOKEN}"
            assert (await ask(path, name, question, headers={"Authorization": given}))[0] == 500

    run(scenario)


def test_a_question_has_a_limit_and_is_a_post() -> None:
    async def scenario(ask: Ask) -> None:
        for path, name, question in QUESTIONS:
            assert (await ask(path, name, bytes(path.question_bytes_max + 1)))[0] == 413, name
            assert (await ask(path, name, question, method="GET"))[0] == 405, name

    run(scenario)


JUNK = (b"", b"\xc1", b"\x81", b"\x93\x01", bytes(1 << 20), [1, 2])
NEGATIVE = {"streams": [-1], "ranges": [(-1, 0, 0)], "times_ms": {-1: 0}, "names": [7]}
HUGE = {"streams": [1 << 63], "ranges": [(1, 2)], "times_ms": {1: 1 << 63}, "names": 1}
MANY = {
    "streams": [1] * 30_000,
    "ranges": [(1, 0, 1)] * 20_000,
    "times_ms": dict.fromkeys(range(1_000), 1),
    "names": ["a"] * 20_000,
}


@pytest.mark.parametrize(
    ("path", "name", "questions"),
    [
        *((PIPELINE, name, (NEGATIVE, HUGE, MANY)) for name in ("backlog", "columns", "views")),
        (PIPELINE, "swap", (NEGATIVE, {**SWAP, "start": -1}, {**SWAP, "key": 7})),
        *((READ, name, (NEGATIVE, HUGE, MANY)) for name in ("topics", "bounds", "times")),
        (READ, "entries", (NEGATIVE, HUGE, MANY)),
        (SNAPSHOTS, "snapshots", ({"topic": 5}, {"topic": "x" * 70_000})),
        (
            SNAPSHOTS,
            "snapshot_pages",
            (
                {**PAGES, "topic_id": b"short"},
                {**PAGES, "numbers": [-1]},
                {**PAGES, "numbers": [0] * (PAGES_PER_QUESTION + 1)},
            ),
        ),
        (SNAPSHOTS, "group", ({"group": "g"}, {"group": None, "topic": "t"})),
        (WRITE, "targets", ({}, {"names": None}, {"names": ["a"] * 20_000})),
        (
            WRITE,
            "commit",
            (
                {**COMMIT, "application": ""},
                {**COMMIT, "application": "a" * 256},
                {**COMMIT, "application": 7},
                {**COMMIT, "version": -1},
                {**COMMIT, "version": 1 << 63},
                {**COMMIT, "placed": []},
                {**COMMIT, "placed": [(-1, b"x")]},
                {**COMMIT, "placed": [(0, b"x", 1)]},
                {**COMMIT, "placed": [(0, b"x")] * 70_000},
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_question_is_refused(
    path: QuestionPath, name: str, questions: Sequence[object]
) -> None:
    async def scenario(ask: Ask) -> None:
        for question in (*JUNK, *questions):
            status, answer = await ask(path, name, question)
            assert status == 400, question
            assert isinstance(failure_in(answer), Refused)

    run(scenario)


def test_only_settings_that_are_no_secret_are_told() -> None:
    told_ones = public_options(
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
    assert sorted(told_ones.values()) == ["a", "http://h", "r", "true"]
