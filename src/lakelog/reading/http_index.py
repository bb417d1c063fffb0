"""The index of a running cluster, asked over HTTP from any process: `lakelog.reading.index.Index`.

All brokers give the same answers, so one that does not answer is followed by the next. Nothing is
changed by a question, so it may always be asked again.
"""

import asyncio
import http.client
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

import msgspec

from lakelog.http import reading_messages as messages
from lakelog.http.pipeline_messages import failure_in
from lakelog.http.reading_messages import (
    CONTENT_TYPE,
    NAMES_PER_QUESTION,
    PATH,
    RANGES_PER_QUESTION,
    STREAMS_PER_QUESTION,
    TIMES_PER_QUESTION,
)
from lakelog.model.failures import Failure, Refused, Unavailable
from lakelog.reading.index import StorePlace, extended, located
from lakelog.reading.plan import Bounds, PinnedRange, TopicStreams
from lakelog.reading.rows import Located

_HEADERS: Final = {"Content-Type": CONTENT_TYPE}

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class AskLimits:
    """How long questions take and how large an answer may be."""

    threads: int = 2
    connect_s: float = 3.0
    answer_s: float = 30.0
    answer_bytes_max: int = 512 << 20


class HttpIndex:
    """The index through whichever of these brokers (host:port) answers."""

    def __init__(self, brokers: Sequence[str], limits: AskLimits | None = None) -> None:
        assert brokers, "an index without a broker"
        self._brokers = list(brokers)
        self._limits = limits or AskLimits()
        self._pool = ThreadPoolExecutor(self._limits.threads, thread_name_prefix="lakelog-index")
        self._kept = threading.local()
        self._open: set[http.client.HTTPConnection] = set()

    async def close(self) -> None:
        """End the connections and threads."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._open:
            connection.close()

    async def store(self) -> StorePlace:
        """Where the objects are."""
        found = await self._asked("store", None, messages.StoreAnswer)
        return StorePlace(found.cluster_id, found.url, found.options)

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""
        parts: list[list[str] | None] = [None]
        if names is not None:
            step = NAMES_PER_QUESTION
            parts = [list(names[at : at + step]) for at in range(0, len(names), step)]
        found: list[TopicStreams] = []
        for some in parts:
            question = messages.TopicsQuestion(some)
            answer = await self._asked("topics", question, messages.TopicsAnswer)
            found += (TopicStreams(name, one, tuple(ids)) for name, one, ids in answer.topics)
        return found

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        """What the streams have; those that are gone are left out."""
        found: dict[int, Bounds] = {}
        for at in range(0, len(streams), STREAMS_PER_QUESTION):
            some = list(streams[at : at + STREAMS_PER_QUESTION])
            question = messages.BoundsQuestion(some)
            answer = await self._asked("bounds", question, messages.BoundsAnswer)
            _check(len(answer.bounds) == len(some), "bounds")
            pairs = zip(some, answer.bounds, strict=True)
            found |= {stream: Bounds(*one) for stream, one in pairs if one is not None}
        return found

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""
        found: dict[int, int] = {}
        left = iter(times_ms.items())
        while some := dict(islice(left, TIMES_PER_QUESTION)):
            question = messages.TimesQuestion(some)
            answer = await self._asked("times", question, messages.TimesAnswer)
            _check(answer.offsets.keys() <= some.keys(), "times")
            found |= answer.offsets
        return found

    async def entries(self, ranges: Sequence[PinnedRange]) -> Sequence[Located | None]:
        """Where each range lies, as far as its stream has it; None for a stream that is gone."""
        found: list[Located | None] = []
        parts: list[Located] = []
        while len(found) < len(ranges):
            some = list(ranges[len(found) : len(found) + RANGES_PER_QUESTION])
            if parts:
                some[0] = replace(some[0], start=parts[-1].entries.end)
            for wanted, one in zip(some, await self._entries(some), strict=False):
                if one is None:
                    found.append(None)
                    parts = []
                    continue
                _check(not len(one.entries) or one.entries.end > wanted.start, "entries")
                parts.append(one)
                if len(one.entries) and one.entries.end < min(wanted.end, one.head):
                    break  # there is more of this one, and it is asked for next
                found.append(extended(parts))
                parts = []
        return found

    async def _entries(self, ranges: Sequence[PinnedRange]) -> list[Located | None]:
        question = messages.EntriesQuestion([(one.stream, one.start, one.end) for one in ranges])
        answer = await self._asked("entries", question, messages.EntriesAnswer)
        _check(0 < len(answer.ranges) <= len(ranges), "entries")
        return [None if one is None else located(one) for one in answer.ranges]

    async def _asked(self, name: str, question: object, kind: type[AnswerT]) -> AnswerT:
        body = b"" if question is None else msgspec.msgpack.encode(question)
        loop = asyncio.get_running_loop()
        failure: Failure | None = None
        for broker in list(self._brokers):
            try:
                answer = await loop.run_in_executor(self._pool, self._ask, broker, name, body)
                found = msgspec.msgpack.decode(answer, type=kind)
            except Unavailable as reason:
                failure = reason
            except msgspec.MsgspecError as reason:
                failure = Unavailable(f"{broker}: the answer to {name} cannot be read: {reason}")
            else:
                if self._brokers[0] != broker:
                    self._brokers.remove(broker)
                    self._brokers.insert(0, broker)
                return found
        raise Unavailable(f"no broker answers: {failure}") from failure

    def _ask(self, broker: str, name: str, body: bytes) -> bytes:
        """One broker's answer, on a thread; a connection that was kept may have ended."""
        kept = getattr(self._kept, "connections", None)
        if kept is None:
            kept = self._kept.connections = {}
        if broker in kept:
            try:
                return self._exchanged(kept[broker], broker, name, body)
            except (OSError, http.client.HTTPException):
                self._dropped(kept.pop(broker))
        connection = http.client.HTTPConnection(broker, timeout=self._limits.connect_s)
        self._open.add(connection)
        try:
            connection.connect()
            connection.sock.settimeout(self._limits.answer_s)
            answer = self._exchanged(connection, broker, name, body)
        except (OSError, http.client.HTTPException) as reason:
            self._dropped(connection)
            raise Unavailable(f"{broker} does not answer: {reason!r}") from reason
        except Failure:
            self._dropped(connection)
            raise
        kept[broker] = connection
        return answer

    def _exchanged(
        self, connection: http.client.HTTPConnection, broker: str, name: str, body: bytes
    ) -> bytes:
        connection.request("POST", PATH + name, body, _HEADERS)
        answer = connection.getresponse()
        limit = self._limits.answer_bytes_max
        content = answer.read(limit + 1)
        if len(content) > limit:
            raise http.client.HTTPException(f"an answer of more than {limit} bytes")
        if answer.status == 200:
            return content
        told = failure_in(content)
        if isinstance(told, Refused):
            raise told
        if answer.status == 404 and told is None:
            raise Refused(f"http://{broker} is not the HTTP port of a broker that serves readers")
        raise Unavailable(f"{broker} answered {answer.status}: {told}")

    def _dropped(self, connection: http.client.HTTPConnection) -> None:
        self._open.discard(connection)
        connection.close()


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise Unavailable(f"the answer to {name} is not about what was asked")
