"""The index over HTTP, for the pipeline: `compaction.ports.LogIndex` below /pipeline/v1/.

Who knows the token may ask and swap, nobody else; it is in the metadata store, so whoever may read
that may do both anyway. The token is checked before a byte of the body is read, and a body has a
limit. A failure travels as what it is: `Unavailable` promises that nothing was written.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakelog.compaction.ports import LogIndex, StreamIndex, StreamRange
from lakelog.compaction.views import StreamView
from lakelog.http import pipeline_messages as messages
from lakelog.http.pipeline_messages import (
    CONTENT_TYPE,
    PATH,
    QUESTION_BYTES_MAX,
    ClusterAnswer,
    FailureAnswer,
    FilesAnswer,
    RangesQuestion,
    StreamsAnswer,
    StreamsQuestion,
    SwapAnswer,
    SwapQuestion,
    TopicsAnswer,
    View,
    ViewsAnswer,
)
from lakelog.model.failures import Failure, Refused

STREAMS_AT_ONCE: Final = 1_000
RANGES_AT_ONCE: Final = 64
ENTRIES_PER_ANSWER: Final = 100_000
"""An answer ends after so many entries: 4 MB, encoded in some milliseconds."""

ENTRIES_PER_SLICE: Final = 4_000
"""Entries that are encoded one by one before the loop is let go."""

Token: TypeAlias = Callable[[], Awaitable[str]]
"""The token that a request must carry; raises `Unavailable`."""

QuestionT = TypeVar("QuestionT")


@dataclass(frozen=True, slots=True)
class PipelinePages:
    """Answers the pipeline's questions from an index."""

    index: LogIndex
    token: Token

    async def cluster(self, _: bytes) -> ClusterAnswer:
        """Which cluster this is."""
        return ClusterAnswer(await self.index.cluster_id())

    async def topics(self, _: bytes) -> TopicsAnswer:
        """Every topic."""
        return TopicsAnswer(list(await self.index.topics()))

    async def named_files(self, _: bytes) -> FilesAnswer:
        """The files that entries name."""
        return FilesAnswer(sorted(await self.index.named_files()))

    async def backlog(self, body: bytes) -> StreamsAnswer:
        """What is not compacted."""
        return await self._indexes(body, self.index.backlog)

    async def columns(self, body: bytes) -> StreamsAnswer:
        """All entries."""
        return await self._indexes(body, self.index.columns)

    async def views(self, body: bytes) -> ViewsAnswer:
        """The entries of ranges."""
        wanted = [StreamRange(*one) for one in _question(body, RangesQuestion).ranges]
        views: list[View | None] = []
        entries = 0
        while len(views) < len(wanted) and entries < ENTRIES_PER_ANSWER:
            some = wanted[len(views) : len(views) + RANGES_AT_ONCE]
            for view in await self.index.views(some):
                entries += 0 if view is None else len(view.entries)
                views.append(None if view is None else await _packed(view))
        return ViewsAnswer(views)

    async def swap(self, body: bytes) -> SwapAnswer:
        """Give the event to the log."""
        question = _question(body, SwapQuestion)
        try:
            event = question.swap()
        except ValueError as reason:
            raise Refused(str(reason)) from reason
        swapped = await self.index.swap(event)
        return SwapAnswer(swapped.accepted, swapped.reason)

    async def _indexes(
        self, body: bytes, find: "Callable[[Sequence[int]], Awaitable[Mapping[int, StreamIndex]]]"
    ) -> StreamsAnswer:
        streams = _question(body, StreamsQuestion).streams
        found: dict[int, messages.Columns] = {}
        asked = entries = 0
        while asked < len(streams) and entries < ENTRIES_PER_ANSWER:
            some = streams[asked : asked + STREAMS_AT_ONCE]
            for stream, index in (await find(some)).items():
                entries += len(index.columns.starts)
                found[stream] = messages.columns_of(index)
            asked += len(some)
            await asyncio.sleep(0)
        return StreamsAnswer(asked, found)

    async def answered(
        self, request: Request, answer: "Callable[[bytes], Awaitable[object]]"
    ) -> Response:
        """The answer to a request that may be asked, or why there is none."""
        try:
            await self._check(request)
            return _response(200, await answer(await _body(request)))
        except Failure as failure:
            status, said = messages.told(failure)
            return _response(status, said)
        except _TooLarge:
            return _response(413, FailureAnswer("refused", "the question is too large"))
        except ClientDisconnect:
            return _response(400, FailureAnswer("refused", "the question never ended"))
        except msgspec.MsgspecError as reason:
            return _response(400, FailureAnswer("refused", f"not a question: {reason}"))

    async def _check(self, request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = await self.token()
        known = hmac.compare_digest(given.strip().encode(), expected.encode())
        if scheme.lower() != "bearer" or not known:
            raise Refused("not the token of this cluster's pipeline")


def pipeline_routes(index: LogIndex, token: Token) -> list[BaseRoute]:
    """The routes that serve an index to those who know the token."""
    pages = PipelinePages(index, token)
    answers: dict[str, Callable[[bytes], Awaitable[object]]] = {
        "cluster": pages.cluster,
        "topics": pages.topics,
        "backlog": pages.backlog,
        "columns": pages.columns,
        "views": pages.views,
        "swap": pages.swap,
        "named-files": pages.named_files,
    }

    def route(name: str, answer: Callable[[bytes], Awaitable[object]]) -> Route:
        async def endpoint(request: Request) -> Response:
            return await pages.answered(request, answer)

        return Route(PATH + name, endpoint, methods=["POST"])

    return [route(name, answer) for name, answer in answers.items()]


class _TooLarge(Exception):  # noqa: N818 - reads as what happened
    """A body beyond the limit."""


async def _body(request: Request) -> bytes:
    parts = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > QUESTION_BYTES_MAX:
            raise _TooLarge
        parts.append(part)
    return b"".join(parts)


async def _packed(view: StreamView) -> View:
    entries: list[messages.Entry] = []
    for start in range(0, len(view.entries), ENTRIES_PER_SLICE):
        entries += map(messages.entry_of, view.entries[start : start + ENTRIES_PER_SLICE])
        await asyncio.sleep(0)
    return View(view.stream, view.log_start, view.first_start, entries)


def _question(body: bytes, kind: type[QuestionT]) -> QuestionT:
    return msgspec.msgpack.decode(body, type=kind)


def _response(status: int, answer: object) -> Response:
    body = msgspec.msgpack.encode(answer)
    return Response(body, status_code=status, media_type=CONTENT_TYPE)
