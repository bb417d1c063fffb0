"""The index behind a broker's HTTP port: which questions there are, and who answers them.

A question is a POST with a body in msgpack (`lakelog.index.messages`). Whether it may be asked is
checked before a byte of its body is read, a body has a limit, and an answer about many streams or
ranges ends after so many entries, so that no question holds up the broker.

/pipeline/v1/   topics, columns, ranges and swaps for the pipeline. Who knows the token may ask and
                swap, nobody else; it is in the metadata store, so whoever may read that may do both
                anyway.
/read/v1/       topics and index for those who read the objects themselves, snapshots of tables and
                offsets of groups for `lakelog.tables`. Whoever can reach the port may ask: what is
                told is where records lie, not what they are, and the object store has its own
                guard. Nothing can be changed here.
/write/v1/      topics, a place, and commits for those who put WAL objects themselves. No token is
                asked for: the Kafka port takes records from everyone who can reach it, and so does
                this one. It lets in nothing that a producer could not send, and whoever commits an
                object must have been able to put it into the store. An object that is committed is
                looked at first, so a commit cannot point the log at nothing.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lakelog.index import messages
from lakelog.index.entries import (
    PackedColumns,
    PackedRange,
    StreamIndex,
    packed_columns,
    packed_range,
)
from lakelog.index.messages import FailureAnswer, QuestionPath
from lakelog.index.ports import ServedIndex, StorePlace, StreamRange
from lakelog.log.writes import ObjectPlace, WrittenDomain
from lakelog.model.failures import Failure, Refused

STREAMS_AT_ONCE: Final = 1_000
RANGES_AT_ONCE: Final = 64
PIPELINE_ENTRIES_MAX: Final = 100_000
"""An answer to the pipeline ends after so many entries: some MB, made of a few arrays."""

READ_ENTRIES_MAX: Final = 200_000
"""An answer to a reader ends after so many entries: about 10 MB."""

PAGES_BYTES_MAX: Final = 8 << 20
"""An answer with pages ends after so many bytes, but has one page at least."""

QuestionT = TypeVar("QuestionT")

AnswerBody: TypeAlias = Callable[[bytes], Awaitable[object]]
"""Makes the answer to a body; raises what `told` can tell, or msgspec's errors for nonsense."""

Token: TypeAlias = Callable[[], Awaitable[str]]
"""The token that a request must carry; raises `Unavailable`."""


class WritableLog(Protocol):
    """Where the records of writers go. Raises `Refused`, `Unavailable` or `OutcomeUnknown`."""

    async def cluster_id(self) -> str:
        """The id of the cluster."""

    async def place(self) -> ObjectPlace:
        """What objects must be called now."""

    async def targets(self, names: Sequence[str]) -> Sequence[messages.WriteTarget]:
        """What a writer must know of those of these topics that exist."""

    async def commit(
        self, application: str, version: int, placed: Mapping[int, Sequence[bytes]]
    ) -> Sequence[WrittenDomain]:
        """Make the objects visible, by domain; each is the bytes of a Commit."""


class ReadableSnapshots(Protocol):
    """What is known of tables and groups. Raises `Unavailable`."""

    async def snapshots(self, topic: str) -> messages.SnapshotsAnswer:
        """What is known of the snapshots of a topic's table."""

    async def page(self, topic_id: bytes, number: int) -> bytes | None:
        """A page of older snapshots; None when it was deleted."""

    async def committed(self, group: str, topic: str) -> messages.GroupAnswer:
        """What a group has committed in a topic."""


def pipeline_routes(index: ServedIndex, token: Token) -> list[BaseRoute]:
    """The routes that serve an index to those who know the token."""
    pipeline = _Pipeline(index)

    async def check(request: Request) -> None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = await token()
        known = hmac.compare_digest(given.strip().encode(), expected.encode())
        if scheme.lower() != "bearer" or not known:
            raise Refused("not the token of this cluster's pipeline")

    answers: dict[str, AnswerBody] = {
        "cluster": pipeline.cluster,
        "topics": pipeline.topics,
        "backlog": pipeline.backlog,
        "columns": pipeline.columns,
        "views": pipeline.views,
        "swap": pipeline.swap,
        "named-files": pipeline.named_files,
    }
    return _Endpoints(messages.PIPELINE, check).routes(answers)


def read_routes(index: ServedIndex, place: StorePlace) -> list[BaseRoute]:
    """The routes that serve an index to readers."""
    readers = _Readers(index, place)
    answers: dict[str, AnswerBody] = {
        "store": readers.store,
        "topics": readers.topics,
        "bounds": readers.bounds,
        "times": readers.times,
        "entries": readers.entries,
    }
    return _Endpoints(messages.READ).routes(answers)


def snapshot_routes(tables: ReadableSnapshots) -> list[BaseRoute]:
    """The routes that serve snapshots and groups to readers of tables."""
    snapshots = _Snapshots(tables)
    answers: dict[str, AnswerBody] = {
        "snapshots": snapshots.snapshots,
        "snapshot_pages": snapshots.pages,
        "group": snapshots.group,
    }
    return _Endpoints(messages.SNAPSHOTS).routes(answers)


def write_routes(log: WritableLog, place: StorePlace) -> list[BaseRoute]:
    """The routes that take objects from writers."""
    writers = _Writers(log, place)
    answers: dict[str, AnswerBody] = {
        "targets": writers.targets,
        "place": writers.place,
        "commit": writers.commit,
    }
    return _Endpoints(messages.WRITE).routes(answers)


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """Answers the pipeline's questions."""

    index: ServedIndex

    async def cluster(self, _: bytes) -> messages.ClusterAnswer:
        return messages.ClusterAnswer(await self.index.cluster_id())

    async def topics(self, _: bytes) -> messages.IndexedTopicsAnswer:
        return messages.IndexedTopicsAnswer(list(await self.index.topics()))

    async def named_files(self, _: bytes) -> messages.FilesAnswer:
        return messages.FilesAnswer(sorted(await self.index.named_files()))

    async def backlog(self, body: bytes) -> messages.StreamsAnswer:
        return await self._indexes(body, self.index.backlog)

    async def columns(self, body: bytes) -> messages.StreamsAnswer:
        return await self._indexes(body, self.index.columns)

    async def views(self, body: bytes) -> messages.RangesAnswer:
        wanted = _ranges(body)
        packed: list[PackedRange | None] = []
        entries = 0
        while len(packed) < len(wanted) and entries < PIPELINE_ENTRIES_MAX:
            some = wanted[len(packed) : len(packed) + RANGES_AT_ONCE]
            for located in await self.index.located(some):  # whole: the pipeline acts on it
                entries += 0 if located is None else len(located.entries)
                packed.append(None if located is None else packed_range(located))
            await asyncio.sleep(0)
        return messages.RangesAnswer(packed)

    async def swap(self, body: bytes) -> messages.SwapAnswer:
        question = _question(body, messages.SwapQuestion)
        try:
            event = question.swap()
        except ValueError as reason:
            raise Refused(str(reason)) from reason
        swapped = await self.index.swap(event)
        return messages.SwapAnswer(swapped.accepted, swapped.reason)

    async def _indexes(
        self, body: bytes, find: "Callable[[Sequence[int]], Awaitable[Mapping[int, StreamIndex]]]"
    ) -> messages.StreamsAnswer:
        streams = _question(body, messages.StreamsQuestion).streams
        packed: dict[int, PackedColumns] = {}
        asked = entries = 0
        while asked < len(streams) and entries < PIPELINE_ENTRIES_MAX:
            some = streams[asked : asked + STREAMS_AT_ONCE]
            for stream, index in (await find(some)).items():
                entries += len(index.columns.starts)
                packed[stream] = packed_columns(index)
            asked += len(some)
            await asyncio.sleep(0)
        return messages.StreamsAnswer(asked, packed)


@dataclass(frozen=True, slots=True)
class _Readers:
    """Answers a reader's questions."""

    index: ServedIndex
    place: StorePlace

    async def store(self, _: bytes) -> messages.StoreAnswer:
        cluster_id = await self.index.cluster_id()
        return messages.StoreAnswer(cluster_id, self.place.url, dict(self.place.options))

    async def topics(self, body: bytes) -> messages.TopicsAnswer:
        names = _question(body, messages.TopicsQuestion).names
        topics = await self.index.topic_streams(names)
        return messages.TopicsAnswer(
            [(topic.name, topic.topic_id, topic.streams) for topic in topics]
        )

    async def bounds(self, body: bytes) -> messages.BoundsAnswer:
        streams = _question(body, messages.BoundsQuestion).streams
        found = await self.index.bounds(streams)
        return messages.BoundsAnswer(
            [None if bounds is None else (bounds.log_start, bounds.head) for bounds in found]
        )

    async def times(self, body: bytes) -> messages.TimesAnswer:
        times_ms = _question(body, messages.TimesQuestion).times_ms
        return messages.TimesAnswer(dict(await self.index.first_at(times_ms)))

    async def entries(self, body: bytes) -> messages.RangesAnswer:
        packed: list[PackedRange | None] = []
        room = READ_ENTRIES_MAX
        for located in await self.index.located(_ranges(body), entries_max=READ_ENTRIES_MAX):
            count = 0 if located is None else len(located.entries)
            if packed and count > room:
                break
            packed.append(None if located is None else packed_range(located))
            room -= count
            if count:
                await asyncio.sleep(0)
        return messages.RangesAnswer(packed)


@dataclass(frozen=True, slots=True)
class _Snapshots:
    """Answers questions about snapshots and groups."""

    tables: ReadableSnapshots

    async def snapshots(self, body: bytes) -> messages.SnapshotsAnswer:
        return await self.tables.snapshots(_question(body, messages.SnapshotsQuestion).topic)

    async def pages(self, body: bytes) -> messages.PagesAnswer:
        question = _question(body, messages.PagesQuestion)
        pages: list[bytes | None] = []
        size = 0
        for number in question.numbers:
            page = await self.tables.page(question.topic_id, number)
            size += len(page or b"")
            if pages and size > PAGES_BYTES_MAX:
                break
            pages.append(page)
        return messages.PagesAnswer(pages)

    async def group(self, body: bytes) -> messages.GroupAnswer:
        question = _question(body, messages.GroupQuestion)
        return await self.tables.committed(question.group, question.topic)


@dataclass(frozen=True, slots=True)
class _Writers:
    """Answers a writer's questions."""

    log: WritableLog
    store: StorePlace

    async def targets(self, body: bytes) -> messages.TargetsAnswer:
        names = _question(body, messages.TargetsQuestion).names
        return messages.TargetsAnswer(list(await self.log.targets(names)))

    async def place(self, _: bytes) -> messages.WriteStore:
        found = await self.log.place()
        return messages.WriteStore(
            await self.log.cluster_id(),
            self.store.url,
            dict(self.store.options),
            found.zone,
            found.id_time_ms_min,
            found.object_ttl_ms,
        )

    async def commit(self, body: bytes) -> messages.CommitAnswer:
        question = _question(body, messages.CommitQuestion)
        placed: dict[int, list[bytes]] = {}
        for domain, commit in question.placed:
            placed.setdefault(domain, []).append(commit)
        written = await self.log.commit(question.application, question.version, placed)
        return messages.CommitAnswer(
            [messages.DomainResult(part.domain, part.is_new, part.offsets) for part in written]
        )


@dataclass(frozen=True, slots=True)
class _Endpoints:
    """How the questions below one path are answered."""

    questions: QuestionPath
    check: Callable[[Request], Awaitable[None]] | None = None
    """Raises what speaks against answering the request at all."""

    def routes(self, answers: Mapping[str, AnswerBody]) -> list[BaseRoute]:
        """A route for each question, by its name."""
        return [self._route(name, answer) for name, answer in answers.items()]

    def _route(self, name: str, answer: AnswerBody) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._answered(request, answer)

        return Route(self.questions.path + name, endpoint, methods=["POST"])

    async def _answered(self, request: Request, answer: AnswerBody) -> Response:
        try:
            if self.check is not None:
                await self.check(request)
            return _response(200, await answer(await self._body(request)))
        except Failure as failure:
            status, said = messages.told(failure)
            return _response(status, said)
        except _TooLarge:
            return _response(413, FailureAnswer("refused", "the question is too large"))
        except ClientDisconnect:
            return _response(400, FailureAnswer("refused", "the question never ended"))
        except msgspec.MsgspecError as reason:
            return _response(400, FailureAnswer("refused", f"not a question: {reason}"))

    async def _body(self, request: Request) -> bytes:
        parts = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > self.questions.question_bytes_max:
                raise _TooLarge
            parts.append(part)
        return b"".join(parts)


class _TooLarge(Exception):  # noqa: N818 - reads as what happened
    """A body beyond the limit."""


def _question(body: bytes, kind: type[QuestionT]) -> QuestionT:
    """The question; raises msgspec's errors, which are told to whoever asked."""
    return msgspec.msgpack.decode(body, type=kind)


def _ranges(body: bytes) -> list[StreamRange]:
    return [StreamRange(*wanted) for wanted in _question(body, messages.RangesQuestion).ranges]


def _response(status: int, answer: object) -> Response:
    body = msgspec.msgpack.encode(answer)
    return Response(body, status_code=status, media_type=messages.CONTENT_TYPE)
