"""The index of a running cluster, asked over HTTP by the pipeline and by readers.

Brokers are found by the metadata store. All of them give the same answers, so one that does not
answer is followed by the next; when none does, they are looked for again. A swap is different: once
its first byte left, what became of it is unknown, and nobody else is asked to do it again.

All brokers give the same answers, so one that does not answer is followed by the next. Nothing is
changed by a question, so it may always be asked again. An answer is checked before it is believed:
what does not fit is `Unavailable`, like a broker that does not answer, since another may do better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from lakelog.clock import Clock, Entropy
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index import messages
from lakelog.index.entries import (
    LocatedRange,
    StreamIndex,
    joined,
    unpacked_columns,
    unpacked_range,
)
from lakelog.index.http_client import BrokerClient, CallLimits, FindBrokers, Repeat, known_brokers
from lakelog.index.messages import (
    BOUNDS_PER_QUESTION,
    NAMES_PER_QUESTION,
    PIPELINE,
    RANGES_PER_QUESTION,
    READ,
    STREAMS_PER_QUESTION,
    TIMES_PER_QUESTION,
)
from lakelog.index.ports import (
    Bounds,
    IndexedTopic,
    PinnedRange,
    StreamRange,
    StreamView,
    TopicStreams,
)
from lakelog.meta.port import MetadataStore
from lakelog.model.failures import Refused, Unavailable
from lakelog.topics.cluster import http_addresses, pipeline_token

VIEWS_PER_QUESTION: Final = 1_000


class RemoteIndex:
    """The topics and the index of a cluster, through whichever of its brokers answers."""

    def __init__(
        self, find: FindBrokers, token: str, clock: Clock, limits: CallLimits | None = None
    ) -> None:
        self._client = BrokerClient(find, PIPELINE.path, token=token, clock=clock, limits=limits)

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
        await self._client.close()

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return (await self._client.ask("cluster", None, messages.ClusterAnswer)).cluster_id

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, by name."""
        return (await self._client.ask("topics", None, messages.IndexedTopicsAnswer)).topics

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
            some = ranges[len(views) : len(views) + VIEWS_PER_QUESTION]
            question = messages.ranges_question(some)
            packed = (await self._client.ask("views", question, messages.RangesAnswer)).ranges
            _check(0 < len(packed) <= len(some), "views")
            try:
                views += [
                    None if range_ is None else StreamView.of(wanted.stream, unpacked_range(range_))
                    for wanted, range_ in zip(some, packed, strict=False)
                ]
            except ValueError as reason:
                raise _nonsense("views", reason) from reason
        return views

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        question = messages.swap_question(swap)
        size_bytes = len(msgspec.msgpack.encode(question))
        if size_bytes > PIPELINE.question_bytes_max:
            raise Refused(f"a swap of {size_bytes} bytes")
        answer = await self._client.ask("swap", question, messages.SwapAnswer, repeat=Repeat.NEVER)
        return Swapped(answer.accepted, answer.reason)

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        return frozenset((await self._client.ask("named-files", None, messages.FilesAnswer)).keys)

    async def _indexes(self, name: str, streams: Sequence[int]) -> dict[int, StreamIndex]:
        found: dict[int, StreamIndex] = {}
        asked = 0
        while asked < len(streams):
            some = list(streams[asked : asked + STREAMS_PER_QUESTION])
            answer = await self._client.ask(
                name, messages.StreamsQuestion(some), messages.StreamsAnswer
            )
            _check(0 < answer.asked <= len(some), name)
            try:
                found |= {
                    stream: unpacked_columns(columns) for stream, columns in answer.found.items()
                }
            except ValueError as reason:
                raise _nonsense(name, reason) from reason
            asked += answer.asked
        return found


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise _nonsense(name, "it is not about what was asked")


def _nonsense(name: str, reason: object) -> Unavailable:
    return Unavailable(f"the answer to {name} cannot be used: {reason}")


class HttpIndex:
    """The index through whichever of these brokers (host:port) answers."""

    def __init__(self, brokers: Sequence[str], limits: CallLimits | None = None) -> None:
        self._client = BrokerClient(
            known_brokers(brokers), READ.path, serves="readers", limits=limits
        )

    async def close(self) -> None:
        """End the connections and threads."""
        await self._client.close()

    async def store(self) -> messages.StoreAnswer:
        """Where the objects are."""
        return await self._client.ask("store", None, messages.StoreAnswer)

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""
        parts: list[list[str] | None] = [None]
        if names is not None:
            step = NAMES_PER_QUESTION
            parts = [list(names[at : at + step]) for at in range(0, len(names), step)]
        found: list[TopicStreams] = []
        for some in parts:
            question = messages.TopicsQuestion(some)
            answer = await self._client.ask("topics", question, messages.TopicsAnswer)
            found += (TopicStreams(*topic) for topic in answer.topics)
        return found

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        """What the streams have; those that are gone are left out."""
        found: dict[int, Bounds] = {}
        for at in range(0, len(streams), BOUNDS_PER_QUESTION):
            some = list(streams[at : at + BOUNDS_PER_QUESTION])
            question = messages.BoundsQuestion(some)
            answer = await self._client.ask("bounds", question, messages.BoundsAnswer)
            _check_read(len(answer.bounds) == len(some), "bounds")
            pairs = zip(some, answer.bounds, strict=True)
            found |= {stream: Bounds(*one) for stream, one in pairs if one is not None}
        return found

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""
        found: dict[int, int] = {}
        left = iter(times_ms.items())
        while some := dict(islice(left, TIMES_PER_QUESTION)):
            question = messages.TimesQuestion(some)
            answer = await self._client.ask("times", question, messages.TimesAnswer)
            _check_read(answer.offsets.keys() <= some.keys(), "times")
            found |= answer.offsets
        return found

    async def located(self, ranges: Sequence[PinnedRange]) -> Sequence[LocatedRange | None]:
        """Where each range lies, as far as its stream has it; None for a stream that is gone."""
        found: list[LocatedRange | None] = []
        parts: list[LocatedRange] = []
        while len(found) < len(ranges):
            some = list(ranges[len(found) : len(found) + RANGES_PER_QUESTION])
            if parts:
                some[0] = replace(some[0], start=parts[-1].entries.end)
            for wanted, one in zip(some, await self._ask(some), strict=False):
                if one is None:
                    found.append(None)
                    parts = []
                    continue
                _check_read(not len(one.entries) or one.entries.end > wanted.start, "entries")
                parts.append(one)
                if len(one.entries) and one.entries.end < min(wanted.end, one.head):
                    break  # there is more of this one, and it is asked for next
                found.append(extended(parts))
                parts = []
        return found

    async def _ask(self, ranges: Sequence[PinnedRange]) -> list[LocatedRange | None]:
        question = messages.ranges_question(ranges)
        packed = (await self._client.ask("entries", question, messages.RangesAnswer)).ranges
        _check_read(0 < len(packed) <= len(ranges), "entries")
        try:
            return [None if one is None else unpacked_range(one) for one in packed]
        except ValueError as reason:
            raise Unavailable(f"the answer to entries cannot be used: {reason}") from reason


def extended(parts: Sequence[LocatedRange]) -> LocatedRange:
    """What several answers about one range say together; the newest knows the stream best.

    Between two answers a file may have taken the place of entries that both of them name.
    """
    newest = parts[-1]
    entries = parts[0].entries
    for part in parts[1:]:
        at = int(np.searchsorted(entries.edges, part.entries.start))
        if at == len(entries.edges) or int(entries.edges[at]) != part.entries.start:
            raise Unavailable("the index changed while it was asked")
        entries = joined([entries.part(0, at), part.entries])
    return replace(newest, entries=entries)


def _check_read(holds: bool, name: str) -> None:
    if not holds:
        raise Unavailable(f"the answer to {name} is not about what was asked")
