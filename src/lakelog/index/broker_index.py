"""A broker's topics and index, for all who ask over HTTP and for a pipeline in the same process.

Rules:

- Every answer is proved current after the question came (rule 16). Each stream is answered as it
  was at one moment; two streams may be of two moments.
- The loop is let go between slices of streams and entries, so that a question about everything
  does not hold up a fetch (R2).
- A swap is checked whole before it is given to the log: what nobody can read would stop the domain
  everywhere (rule 11).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from lakelog.clock import Clock
from lakelog.domain.event_queue import EventTooLarge
from lakelog.domain.events import Swap
from lakelog.domain.state import Swapped
from lakelog.index.entries import LocatedRange, StreamIndex
from lakelog.index.gather import entry_counts, file_keys, locate, stream_indexes
from lakelog.index.ports import (
    PIECES_MAX,
    Bounds,
    IndexedTopic,
    StreamRange,
    StreamView,
    TopicStreams,
)
from lakelog.model.failures import Refused, Unavailable
from lakelog.objects.port import is_key
from lakelog.streams.objects import FileKind
from lakelog.streams.table import NONE, Int64s
from lakelog.topics.configs import Format
from lakelog.topics.topic import Topic

if TYPE_CHECKING:
    from lakelog.broker.call import Broker

ANSWER_S: Final = 10.0
"""How long the proof, or the commit of a swap, may take."""

STREAMS_PER_SLICE: Final = 1_000
ENTRIES_PER_SLICE: Final = 50_000
"""Between two slices the loop is let go: each takes some milliseconds."""

STREAMS_PER_PROOF: Final = 10_000
TOPICS_PER_SLICE: Final = 500
SEARCHES_AT_ONCE: Final = 16
"""Searches by time that run together: each may read an object."""

DIGEST_BYTES: Final = 8
INT64_END: Final = 1 << 63


class BrokerIndex:
    """The topics and the offset index of the cluster that a broker is part of."""

    def __init__(self, broker: "Broker", clock: Clock) -> None:
        self._broker = broker
        self._log = broker.log
        self._clock = clock

    async def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._broker.cluster.cluster_id

    async def topics(self) -> Sequence[IndexedTopic]:
        """Every topic there is, by name."""
        found = []
        for number, topic in enumerate(await self._broker.topics.all()):
            found.append(_topic_view(topic))
            if number % TOPICS_PER_SLICE == TOPICS_PER_SLICE - 1:
                await asyncio.sleep(0)
        return found

    async def backlog(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """Those of these streams that have WAL entries, without what is long compacted."""
        return await self._indexes(streams, backlog_only=True)

    async def columns(self, streams: Sequence[int]) -> Mapping[int, StreamIndex]:
        """All entries of these streams; streams that are gone are left out."""
        return await self._indexes(streams, backlog_only=False)

    async def views(self, ranges: Sequence[StreamRange]) -> Sequence[StreamView | None]:
        """The entries of each range, in the order asked for; None for a stream that is gone."""
        found = await self.located(ranges)
        return [
            None if located is None else StreamView.of(wanted.stream, located)
            for wanted, located in zip(ranges, found, strict=True)
        ]

    async def located(
        self, ranges: Sequence[StreamRange], *, entries_max: int | None = None
    ) -> Sequence[LocatedRange | None]:
        """The entries of each range, the first so many of them; None for a stream that is gone."""
        by_stream: dict[int, list[int]] = {}
        for number, wanted in enumerate(ranges):
            by_stream.setdefault(wanted.stream, []).append(number)
        found: list[LocatedRange | None] = [None] * len(ranges)
        async for domain, streams in self._slices(list(by_stream), of_wal=False):
            numbers = [number for stream in streams.tolist() for number in by_stream[stream]]
            some = [ranges[number] for number in numbers]
            state = self._log.state(domain)
            placed = locate(state, domain, some, entries_max=entries_max)
            for number, located in zip(numbers, placed, strict=True):
                found[number] = located
        return found

    async def topic_streams(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""
        wanted = None if names is None else frozenset(names)
        return [
            TopicStreams(topic.name, bytes(topic.id), tuple(topic.streams()))
            for topic in await self._broker.topics.all()
            if wanted is None or topic.name in wanted
        ]

    async def bounds(self, streams: Sequence[int]) -> Sequence[Bounds | None]:
        """What each stream has, in the order asked for; None for one that is gone."""
        arrived_s = self._clock.monotonic_s()
        await self._log.prove(streams, arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S)
        found: dict[int, Bounds] = {}
        for domain, ids in self._by_domain(streams).items():
            table = self._log.state(domain).streams
            rows = table.rows(ids)
            there = rows != NONE
            starts = table.columns["log_start"][rows[there]].tolist()
            heads = table.columns["head"][rows[there]].tolist()
            found |= zip(ids[there].tolist(), map(Bounds, starts, heads), strict=True)
        return [found.get(stream) for stream in streams]

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""
        arrived_s = self._clock.monotonic_s()
        streams = list(times_ms)
        await self._log.prove(streams, arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S)
        offsets: dict[int, int] = {}
        try:
            async with asyncio.timeout(ANSWER_S):
                for start in range(0, len(streams), SEARCHES_AT_ONCE):
                    some = streams[start : start + SEARCHES_AT_ONCE]
                    searches = (
                        self._log.find_timestamp(stream, times_ms[stream]) for stream in some
                    )
                    for stream, found in zip(some, await asyncio.gather(*searches), strict=True):
                        if found is not None:
                            offsets[stream] = found.offset
        except TimeoutError as reason:
            raise Unavailable(f"not found within {ANSWER_S:g} s") from reason
        return offsets

    async def swap(self, swap: Swap) -> Swapped:
        """Append the event and return what `apply` made of it."""
        fault = swap_fault(swap)
        if fault is not None:
            raise Refused(f"not a swap: {fault}")
        try:
            return await self._log.swap(swap, deadline_s=self._clock.monotonic_s() + ANSWER_S)
        except EventTooLarge as error:
            raise Refused(str(error)) from error

    async def named_files(self) -> frozenset[str]:
        """The keys of all segments and data files that any entry of any stream names."""
        arrived_s = self._clock.monotonic_s()
        keys: list[str] = []
        for domain in range(len(self._log.replicas)):
            await self._log.prove_domains(
                [domain], arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S
            )
            keys += file_keys(self._log.state(domain))
            await asyncio.sleep(0)
        return frozenset(keys)

    async def _indexes(
        self, streams: Sequence[int], *, backlog_only: bool
    ) -> dict[int, StreamIndex]:
        indexes: dict[int, StreamIndex] = {}
        async for domain, some in self._slices(streams, of_wal=backlog_only):
            state = self._log.state(domain)
            indexes |= stream_indexes(state, some, backlog_only=backlog_only)
        return indexes

    async def _slices(
        self, streams: Sequence[int], *, of_wal: bool
    ) -> AsyncIterator[tuple[int, Int64s]]:
        """Streams of one domain that exist now, proved, some at a time; `of_wal`: with WAL entries.

        Whoever takes a slice uses it before it awaits anything.
        """
        arrived_s = self._clock.monotonic_s()
        for start in range(0, len(streams), STREAMS_PER_PROOF):
            some = streams[start : start + STREAMS_PER_PROOF]
            await self._log.prove(some, arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S)
            for domain, ids in self._by_domain(some).items():
                counts = entry_counts(self._log.state(domain), ids, of_wal=of_wal)
                for part in _parts(ids, counts, least=1 if of_wal else 0):
                    await asyncio.sleep(0)
                    there = part[self._log.state(domain).streams.rows(part) >= 0]
                    if len(there):
                        yield domain, there

    def _by_domain(self, streams: Sequence[int]) -> dict[int, Int64s]:
        found: dict[int, list[int]] = {}
        for stream in streams:
            found.setdefault(self._log.domain_of(stream), []).append(stream)
        return {domain: np.unique(np.array(ids, dtype=np.int64)) for domain, ids in found.items()}


def swap_fault(swap: Swap) -> str | None:
    """Why no log may hold this event, or None."""
    numbers = (swap.stream, swap.start, swap.end, swap.size_bytes)
    fit = all(0 <= number < INT64_END for number in numbers)
    if not fit or not -INT64_END <= swap.max_timestamp_ms < INT64_END:
        return "a number that no index holds"
    if swap.start >= swap.end or not swap.size_bytes:
        return "an empty range or file"
    if swap.file.kind is FileKind.WAL or not is_key(swap.file.key):
        return "the file is neither a segment nor a data file of ours"
    if not 0 < len(swap.replaces) <= PIECES_MAX:
        return f"it replaces {len(swap.replaces)} objects"
    if any(len(digest) != DIGEST_BYTES for digest in swap.replaces):
        return "an object that it replaces is not named by 8 bytes"
    return None


def _topic_view(topic: Topic) -> IndexedTopic:
    chosen = topic.settings
    return IndexedTopic(
        name=topic.name,
        topic_id=topic.id,
        streams=tuple(topic.streams()),
        has_table=chosen.format is Format.PARQUET,
        freshness_ms=chosen.table_freshness_ms,
        message_bytes_max=chosen.message_bytes_max,
        table_retention_ms=chosen.table_retention_ms,
        is_compacted=chosen.compacted,
        delete_retention_ms=chosen.delete_retention_ms,
        min_compaction_lag_ms=chosen.min_compaction_lag_ms,
        max_compaction_lag_ms=chosen.max_compaction_lag_ms,
        dirty_ratio_min=chosen.dirty_ratio_min,
        snapshots_history_ms=chosen.snapshots_history_ms,
    )


def _parts(streams: Int64s, counts: Int64s, *, least: int) -> Iterator[Int64s]:
    """The streams that have so many entries at least, some at a time: one, or a slice's worth."""
    chosen = counts >= least
    streams, counts = streams[chosen], counts[chosen]
    first = 0
    while first < len(streams):
        totals = np.cumsum(counts[first : first + STREAMS_PER_SLICE])
        size = max(1, int(np.searchsorted(totals, ENTRIES_PER_SLICE, side="right")))
        yield streams[first : first + size]
        first += size
