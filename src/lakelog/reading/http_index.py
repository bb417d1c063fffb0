"""The index of a running cluster, asked over HTTP from any process: `lakelog.reading.index.Index`.

All brokers give the same answers, so one that does not answer is followed by the next. Nothing is
changed by a question, so it may always be asked again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from lakelog.http import reading_messages as messages
from lakelog.http.client import BrokerClient, CallLimits, known_brokers
from lakelog.http.reading_messages import (
    NAMES_PER_QUESTION,
    PATH,
    RANGES_PER_QUESTION,
    STREAMS_PER_QUESTION,
    TIMES_PER_QUESTION,
)
from lakelog.model.failures import Unavailable
from lakelog.reading.index import StorePlace, extended, located
from lakelog.reading.ranges import Bounds, Located, PinnedRange, TopicStreams


class HttpIndex:
    """The index through whichever of these brokers (host:port) answers."""

    def __init__(self, brokers: Sequence[str], limits: CallLimits | None = None) -> None:
        self._client = BrokerClient(known_brokers(brokers), PATH, serves="readers", limits=limits)

    async def close(self) -> None:
        """End the connections and threads."""
        await self._client.close()

    async def store(self) -> StorePlace:
        """Where the objects are."""
        found = await self._client.ask("store", None, messages.StoreAnswer)
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
            answer = await self._client.ask("topics", question, messages.TopicsAnswer)
            found += (TopicStreams(name, one, tuple(ids)) for name, one, ids in answer.topics)
        return found

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        """What the streams have; those that are gone are left out."""
        found: dict[int, Bounds] = {}
        for at in range(0, len(streams), STREAMS_PER_QUESTION):
            some = list(streams[at : at + STREAMS_PER_QUESTION])
            question = messages.BoundsQuestion(some)
            answer = await self._client.ask("bounds", question, messages.BoundsAnswer)
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
            answer = await self._client.ask("times", question, messages.TimesAnswer)
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
        answer = await self._client.ask("entries", question, messages.EntriesAnswer)
        _check(0 < len(answer.ranges) <= len(ranges), "entries")
        return [None if one is None else located(one) for one in answer.ranges]


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise Unavailable(f"the answer to {name} is not about what was asked")
