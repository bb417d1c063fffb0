"""The index of a running cluster, asked over HTTP: `compaction.ports.LogIndex` from outside.

Brokers are found by the metadata store. All of them give the same answers, so one that does not
answer is followed by the next; when none does, they are looked for again. A swap is different: once
its first byte left, what became of it is unknown, and nobody else is asked to do it again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from lakelog.clock import Clock, Entropy
from lakelog.compaction.ports import StreamIndex, StreamRange, TopicView
from lakelog.compaction.views import StreamView
from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.http import pipeline_messages as messages
from lakelog.http.pipeline_messages import (
    CONTENT_TYPE,
    PATH,
    QUESTION_BYTES_MAX,
    RANGES_PER_QUESTION,
    STREAMS_PER_QUESTION,
    ClusterAnswer,
    FilesAnswer,
    StreamsAnswer,
    StreamsQuestion,
    SwapAnswer,
    TopicsAnswer,
    ViewsAnswer,
)
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Corrupt, Failure, OutcomeUnknown, Refused, Unavailable
from lakelog.pipeline.http_calls import CallLimits, HttpCalls, Lost, Reply, Unsent
from lakelog.topics.cluster import http_addresses
from lakelog.topics.pipeline_access import pipeline_token

SWAP: Final = "swap"

Find: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
"""The addresses (host:port) of brokers; raises `Unavailable`."""

AnswerT = TypeVar("AnswerT")


def brokers_at(*urls: str) -> Find:
    """Brokers whose HTTP ports are known, as http://HOST:PORT; raises `Refused`."""
    addresses = []
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.netloc or parts.path.strip("/"):
            raise Refused(f"{url!r} is not the address of a broker's HTTP port: http://HOST:PORT")
        addresses.append(parts.netloc)

    async def find() -> Sequence[str]:
        return addresses

    return find


class RemoteIndex:
    """The topics and the index of a cluster, through whichever of its brokers answers."""

    def __init__(
        self, find: Find, token: str, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self._find = find
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": CONTENT_TYPE}
        self._calls = HttpCalls(clock, limits)
        self._brokers: list[str] = []

    @classmethod
    async def open(
        cls,
        store: MetadataStore,
        clock: Clock,
        entropy: Entropy,
        limits: CallLimits | None = None,
    ) -> "RemoteIndex":
        """The index of the cluster whose metadata store this is."""

        async def find() -> Sequence[str]:
            return await http_addresses(store)

        return cls(find, await pipeline_token(store, entropy), clock, limits)

    async def close(self) -> None:
        """End the connections and threads."""
        await self._calls.close()

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return (await self._asked("cluster", b"", ClusterAnswer)).cluster_id

    async def topics(self) -> Sequence[TopicView]:
        """Every topic there is, by name."""
        return (await self._asked("topics", b"", TopicsAnswer)).topics

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that have WAL entries, without what is long compacted."""
        return await self._indexes("backlog", streams)

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""
        return await self._indexes("columns", streams)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""
        views: list[StreamView | None] = []
        while len(views) < len(ranges):
            some = ranges[len(views) : len(views) + RANGES_PER_QUESTION]
            question = msgspec.msgpack.encode(messages.ranges_question(some))
            answer = await self._asked("views", question, ViewsAnswer)
            _check(0 < len(answer.views) <= len(some), "views")
            try:
                views += map(messages.view_in, answer.views)
            except ValueError as reason:
                raise _nonsense("views", reason) from reason
        return views

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        question = msgspec.msgpack.encode(messages.swap_question(swap))
        if len(question) > QUESTION_BYTES_MAX:
            raise Refused(f"a swap of {len(question)} bytes")
        answer = await self._asked(SWAP, question, SwapAnswer)
        return Swapped(answer.accepted, answer.reason)

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        return frozenset((await self._asked("named-files", b"", FilesAnswer)).keys)

    async def _indexes(self, name: str, streams: Sequence[int]) -> dict[int, StreamIndex]:
        found: dict[int, StreamIndex] = {}
        asked = 0
        while asked < len(streams):
            some = list(streams[asked : asked + STREAMS_PER_QUESTION])
            question = msgspec.msgpack.encode(StreamsQuestion(some))
            answer = await self._asked(name, question, StreamsAnswer)
            _check(0 < answer.asked <= len(some), name)
            try:
                found |= {at: messages.index_of(one) for at, one in answer.found.items()}
            except ValueError as reason:
                raise _nonsense(name, reason) from reason
            asked += answer.asked
        return found

    async def _asked(self, name: str, question: bytes, kind: type[AnswerT]) -> AnswerT:
        reply = await self._replied(name, question)
        try:
            return msgspec.msgpack.decode(reply.body, type=kind)
        except msgspec.MsgspecError as reason:
            if name == SWAP:
                raise OutcomeUnknown(f"an answer that cannot be read: {reason}") from reason
            raise _nonsense(name, reason) from reason

    async def _replied(self, name: str, question: bytes) -> Reply:
        """The answer of the first broker that has one; raises what a broker told."""
        failure: Failure = Unavailable("no broker has an HTTP port")
        tried: set[str] = set()
        for known in (self._brokers, None):
            brokers = list(await self._find()) if known is None else known
            for address in brokers:
                if address in tried:
                    continue
                tried.add(address)
                try:
                    reply = await self._reply_of(address, name, question)
                except Unavailable as reason:
                    failure = reason
                    continue
                self._brokers = [address, *(one for one in brokers if one != address)]
                return reply
        raise Unavailable(f"no broker answers: {failure}") from failure

    async def _reply_of(self, address: str, name: str, question: bytes) -> Reply:
        """One broker's answer; `Unavailable`: nothing happened there, so another may be asked."""
        try:
            reply = await self._posted(address, name, question)
        except Unsent as reason:
            raise Unavailable(str(reason)) from reason
        except Lost as reason:
            if name == SWAP:
                raise OutcomeUnknown(str(reason)) from reason
            raise Unavailable(str(reason)) from reason
        if reply.status == 200:
            return reply
        told = messages.failure_in(reply.body)
        if told is not None and (name == SWAP or not isinstance(told, OutcomeUnknown | Corrupt)):
            raise told
        what = f"{address} answered {reply.status}" + ("" if told is None else f": {told}")
        raise OutcomeUnknown(what) if name == SWAP else Unavailable(what)

    async def _posted(self, address: str, name: str, question: bytes) -> Reply:
        try:
            return await self._calls.post(address, PATH + name, question, self._headers)
        except Lost as reason:
            if name == SWAP or not reason.was_kept:
                raise
            # The broker let go of a connection that nobody used, as we took it up again.
            return await self._calls.post(address, PATH + name, question, self._headers)


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise _nonsense(name, "it is not about what was asked")


def _nonsense(name: str, reason: object) -> Unavailable:
    return Unavailable(f"the answer to {name} cannot be used: {reason}")
