"""The index as it was at the first look: for a run that ends when what was there is compacted.

Everything is due at once, and what came later is left to others. Without this a run beside a busy
producer would never end, and one right after a quiet one would find nothing due.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.index.ports import IndexedTopic, LogIndex, StreamIndex, StreamRange, StreamView
from lakelog.streams.objects import FileKind


class UntilNow:
    """An index that leaves out streams once they are compacted up to their first-seen end."""

    def __init__(self, index: LogIndex) -> None:
        self._index = index
        self._heads: dict[int, int] = {}

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return await self._index.cluster_id()

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, its backlog due however fresh it is."""
        return [replace(topic, freshness_ms=0) for topic in await self._index.topics()]

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that are not compacted up to where they ended at first."""
        found = await self._index.backlog(streams)
        for stream in streams:
            # One that had nothing at first has nothing to compact: all of it is later.
            self._heads.setdefault(stream, found[stream].head if stream in found else 0)
        return {at: one for at, one in found.items() if _first_wal(one) < self._heads[at]}

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""
        return await self._index.columns(streams)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""
        return await self._index.views(ranges)

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        return await self._index.swap(swap)

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        return await self._index.named_files()


def _first_wal(index: StreamIndex) -> int:
    """Where the first WAL entry starts; the end of the stream when there is none."""
    starts = index.columns.starts[index.columns.kinds == FileKind.WAL]
    return int(starts[0]) if len(starts) else index.head
