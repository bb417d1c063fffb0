"""The index over HTTP, for the pipeline: `compaction.ports.LogIndex` below /pipeline/v1/.

Who knows the token may ask and swap, nobody else; it is in the metadata store, so whoever may read
that may do both anyway. The token is checked before a byte of the body is read, and a body has a
limit. A failure travels as what it is: `Unavailable` promises that nothing was written.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.routing import BaseRoute

from lakelog.http import pipeline_messages as messages
from lakelog.http.asking import Answer, Asking, question_in
from lakelog.http.pipeline_messages import (
    PATH,
    QUESTION_BYTES_MAX,
    ClusterAnswer,
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
from lakelog.index.ports import LogIndex, StreamIndex, StreamRange, StreamView
from lakelog.model.failures import Refused

STREAMS_AT_ONCE: Final = 1_000
RANGES_AT_ONCE: Final = 64
ENTRIES_PER_ANSWER: Final = 100_000
"""An answer ends after so many entries: 4 MB, encoded in some milliseconds."""

ENTRIES_PER_SLICE: Final = 4_000
"""Entries that are encoded one by one before the loop is let go."""

Token: TypeAlias = Callable[[], Awaitable[str]]
"""The token that a request must carry; raises `Unavailable`."""


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
        wanted = [StreamRange(*one) for one in question_in(body, RangesQuestion).ranges]
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
        question = question_in(body, SwapQuestion)
        try:
            event = question.swap()
        except ValueError as reason:
            raise Refused(str(reason)) from reason
        swapped = await self.index.swap(event)
        return SwapAnswer(swapped.accepted, swapped.reason)

    async def _indexes(
        self, body: bytes, find: "Callable[[Sequence[int]], Awaitable[Mapping[int, StreamIndex]]]"
    ) -> StreamsAnswer:
        streams = question_in(body, StreamsQuestion).streams
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

    async def check(self, request: Request) -> None:
        """Whether the request carries the token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = await self.token()
        known = hmac.compare_digest(given.strip().encode(), expected.encode())
        if scheme.lower() != "bearer" or not known:
            raise Refused("not the token of this cluster's pipeline")


def pipeline_routes(index: LogIndex, token: Token) -> list[BaseRoute]:
    """The routes that serve an index to those who know the token."""
    pages = PipelinePages(index, token)
    answers: dict[str, Answer] = {
        "cluster": pages.cluster,
        "topics": pages.topics,
        "backlog": pages.backlog,
        "columns": pages.columns,
        "views": pages.views,
        "swap": pages.swap,
        "named-files": pages.named_files,
    }
    return Asking(PATH, QUESTION_BYTES_MAX, pages.check).routes(answers)


async def _packed(view: StreamView) -> View:
    entries: list[messages.Entry] = []
    for start in range(0, len(view.entries), ENTRIES_PER_SLICE):
        entries += map(messages.entry_of, view.entries[start : start + ENTRIES_PER_SLICE])
        await asyncio.sleep(0)
    return View(view.stream, view.log_start, view.first_start, entries)
