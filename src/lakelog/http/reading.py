"""Topics and index over HTTP for those who read the objects themselves, below /read/v1/.

Whoever can reach the port may ask: what is told is where records lie, not what they are, and the
object store has its own guard. Nothing can be changed here. A body has a limit, and an answer
about many ranges ends after so many entries, so that no question holds up the broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakelog.compaction.ports import StreamRange
from lakelog.http import reading_messages as messages
from lakelog.http.pipeline_messages import FailureAnswer, told
from lakelog.http.reading_messages import (
    CONTENT_TYPE,
    ENTRIES_PER_ANSWER,
    PATH,
    QUESTION_BYTES_MAX,
    BoundsAnswer,
    BoundsQuestion,
    EntriesAnswer,
    EntriesQuestion,
    RangeColumns,
    StoreAnswer,
    TimesAnswer,
    TimesQuestion,
    TopicsAnswer,
    TopicsQuestion,
)
from lakelog.model.failures import Failure

QuestionT = TypeVar("QuestionT")


class ReadableIndex(Protocol):
    """What is asked about; answers are proved current. Raises `Unavailable`."""

    async def cluster_id(self) -> str:
        """The id of the cluster."""

    async def named(self, names: Sequence[str] | None) -> Sequence[tuple[str, bytes, list[int]]]:
        """Name, id and streams of these topics, as far as they exist; of all without names."""

    async def bounds(self, streams: Sequence[int]) -> Sequence[tuple[int, int] | None]:
        """Log start and head of each stream; None for one that is gone."""

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""

    async def entries(
        self, ranges: Sequence[StreamRange], *, entries_max: int
    ) -> Sequence[RangeColumns | None]:
        """The first entries of each range; None for a stream that is gone."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the objects are: a URL, and settings without any secret."""

    url: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReadPages:
    """Answers a reader's questions."""

    index: ReadableIndex
    place: StorePlace

    async def store(self, _: bytes) -> StoreAnswer:
        """Where the objects are."""
        cluster_id = await self.index.cluster_id()
        return StoreAnswer(cluster_id, self.place.url, dict(self.place.options))

    async def topics(self, body: bytes) -> TopicsAnswer:
        """Topics and their streams."""
        names = _question(body, TopicsQuestion).names
        return TopicsAnswer(list(await self.index.named(names)))

    async def bounds(self, body: bytes) -> BoundsAnswer:
        """What streams have."""
        streams = _question(body, BoundsQuestion).streams
        return BoundsAnswer(list(await self.index.bounds(streams)))

    async def times(self, body: bytes) -> TimesAnswer:
        """Offsets by time."""
        times_ms = _question(body, TimesQuestion).times_ms
        return TimesAnswer(dict(await self.index.first_at(times_ms)))

    async def entries(self, body: bytes) -> EntriesAnswer:
        """The entries of ranges."""
        wanted = [StreamRange(*one) for one in _question(body, EntriesQuestion).ranges]
        found: list[messages.Entries | None] = []
        room = ENTRIES_PER_ANSWER
        for columns in await self.index.entries(wanted, entries_max=ENTRIES_PER_ANSWER):
            count = 0 if columns is None else len(columns.starts)
            if found and count > room:
                break
            found.append(None if columns is None else messages.entries_of(columns))
            room -= count
            if count:
                await asyncio.sleep(0)
        return EntriesAnswer(found)

    async def answered(
        self, request: Request, answer: Callable[[bytes], Awaitable[object]]
    ) -> Response:
        """The answer to a request, or why there is none."""
        try:
            return _response(200, await answer(await _body(request)))
        except Failure as failure:
            status, said = told(failure)
            return _response(status, said)
        except _TooLarge:
            return _response(413, FailureAnswer("refused", "the question is too large"))
        except ClientDisconnect:
            return _response(400, FailureAnswer("refused", "the question never ended"))
        except msgspec.MsgspecError as reason:
            return _response(400, FailureAnswer("refused", f"not a question: {reason}"))


def reading_routes(index: ReadableIndex, place: StorePlace) -> list[BaseRoute]:
    """The routes that serve an index to readers."""
    pages = ReadPages(index, place)
    answers: dict[str, Callable[[bytes], Awaitable[object]]] = {
        "store": pages.store,
        "topics": pages.topics,
        "bounds": pages.bounds,
        "times": pages.times,
        "entries": pages.entries,
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


def _question(body: bytes, kind: type[QuestionT]) -> QuestionT:
    return msgspec.msgpack.decode(body, type=kind)


def _response(status: int, answer: object) -> Response:
    body = msgspec.msgpack.encode(answer)
    return Response(body, status_code=status, media_type=CONTENT_TYPE)
