"""The index of a running cluster, asked over HTTP from any process: the port `ReadIndex`.

All brokers give the same answers, so one that does not answer is followed by the next. Nothing is
changed by a question, so it may always be asked again. An answer is checked before it is believed:
what does not fit is `Unavailable`, like a broker that does not answer, since another may do better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from lakelog.index import messages
from lakelog.index.entries import LocatedRange, joined, unpacked_range
from lakelog.index.http_client import BrokerClient, CallLimits, known_brokers
from lakelog.index.messages import (
    BOUNDS_PER_QUESTION,
    NAMES_PER_QUESTION,
    RANGES_PER_QUESTION,
    READ,
    TIMES_PER_QUESTION,
)
from lakelog.index.ports import Bounds, PinnedRange, TopicStreams
from lakelog.model.failures import Unavailable


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
                _check(not len(one.entries) or one.entries.end > wanted.start, "entries")
                parts.append(one)
                if len(one.entries) and one.entries.end < min(wanted.end, one.head):
                    break  # there is more of this one, and it is asked for next
                found.append(extended(parts))
                parts = []
        return found

    async def _ask(self, ranges: Sequence[PinnedRange]) -> list[LocatedRange | None]:
        question = messages.ranges_question(ranges)
        packed = (await self._client.ask("entries", question, messages.RangesAnswer)).ranges
        _check(0 < len(packed) <= len(ranges), "entries")
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


def _check(holds: bool, name: str) -> None:
    if not holds:
        raise Unavailable(f"the answer to {name} is not about what was asked")
