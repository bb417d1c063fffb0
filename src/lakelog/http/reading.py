"""Topics and index over HTTP for those who read the objects themselves, below /read/v1/.

Whoever can reach the port may ask: what is told is where records lie, not what they are, and the
object store has its own guard. Nothing can be changed here. A body has a limit, and an answer
about many ranges ends after so many entries, so that no question holds up the broker.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import BaseRoute

from lakelog.http import reading_messages as messages
from lakelog.http.asking import Answer, Asking, question_in
from lakelog.http.reading_messages import (
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
from lakelog.index.ports import StreamRange


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
        names = question_in(body, TopicsQuestion).names
        return TopicsAnswer(list(await self.index.named(names)))

    async def bounds(self, body: bytes) -> BoundsAnswer:
        """What streams have."""
        streams = question_in(body, BoundsQuestion).streams
        return BoundsAnswer(list(await self.index.bounds(streams)))

    async def times(self, body: bytes) -> TimesAnswer:
        """Offsets by time."""
        times_ms = question_in(body, TimesQuestion).times_ms
        return TimesAnswer(dict(await self.index.first_at(times_ms)))

    async def entries(self, body: bytes) -> EntriesAnswer:
        """The entries of ranges."""
        wanted = [StreamRange(*one) for one in question_in(body, EntriesQuestion).ranges]
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


def reading_routes(index: ReadableIndex, place: StorePlace) -> list[BaseRoute]:
    """The routes that serve an index to readers."""
    pages = ReadPages(index, place)
    answers: dict[str, Answer] = {
        "store": pages.store,
        "topics": pages.topics,
        "bounds": pages.bounds,
        "times": pages.times,
        "entries": pages.entries,
    }
    return Asking(PATH, QUESTION_BYTES_MAX).routes(answers)
