"""A broker's topics and index as the pipeline sees them: `compaction.ports.LogIndex` in process.

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
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from lakelog.clock import Clock
from lakelog.domain.event_queue import EventTooLarge
from lakelog.domain.events import Swap
from lakelog.domain.outcomes import Swapped
from lakelog.domain.state import DomainState
from lakelog.index.ports import (
    PIECES_MAX,
    IndexedTopic,
    StreamEntry,
    StreamIndex,
    StreamRange,
    StreamView,
)
from lakelog.model.failures import Refused
from lakelog.objects.confinement import is_key
from lakelog.server.entry_columns import (
    EntryTable,
    Gathered,
    entry_counts,
    entry_table,
    file_keys,
    gather,
    stream_indexes,
)
from lakelog.streams.objects import FileKind
from lakelog.streams.table import Int64s
from lakelog.topics.configs import Format
from lakelog.topics.topic import Topic

if TYPE_CHECKING:
    from lakelog.broker.broker import Broker

ANSWER_S: Final = 10.0
"""How long the proof, or the commit of a swap, may take."""

STREAMS_PER_SLICE: Final = 1_000
ENTRIES_PER_SLICE: Final = 50_000
"""Between two slices the loop is let go: each takes some milliseconds."""

STREAMS_PER_PROOF: Final = 10_000
TOPICS_PER_SLICE: Final = 500
VALUES_PER_SLICE: Final = 4_000
"""Entries that become values, one by one, before the loop is let go."""

DIGEST_BYTES: Final = 8
INT64_END: Final = 1 << 63

ItemT = TypeVar("ItemT")


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
        by_stream: dict[int, list[int]] = {}
        for number, one in enumerate(ranges):
            by_stream.setdefault(one.stream, []).append(number)
        views: list[StreamView | None] = [None] * len(ranges)
        async for domain, some in self._slices(list(by_stream), of_wal=False):
            state = self._log.state(domain)
            found = gather(state, some)
            taken = {
                number: _taken(state, found, place, ranges[number])
                for place, stream in enumerate(some.tolist())
                for number in by_stream[stream]
            }
            for number, part in taken.items():  # what was taken stays as it was, the state does not
                views[number] = await part.view()
        return views

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


class _Taken:
    """What a view of a range is made of, taken from the state at one moment."""

    __slots__ = ("_first_start", "_log_start", "_stream", "_table")

    def __init__(self, stream: int, log_start: int, first_start: int, table: EntryTable) -> None:
        self._stream = stream
        self._log_start = log_start
        self._first_start = first_start
        self._table = table

    async def view(self) -> StreamView:
        """The view, made without holding up the loop."""
        table = self._table
        columns = zip(
            table.starts.tolist(),
            table.ends.tolist(),
            table.byte_starts.tolist(),
            table.byte_lengths.tolist(),
            table.max_timestamps_ms.tolist(),
            strict=True,
        )
        entries: list[StreamEntry] = []
        for some in _chunks(list(columns), VALUES_PER_SLICE):
            for start, end, byte_start, byte_length, max_timestamp_ms in some:
                name = table.name(len(entries))
                entries.append(
                    StreamEntry(start, end, name, byte_start, byte_length, max_timestamp_ms)
                )
            await asyncio.sleep(0)
        return StreamView(self._stream, self._log_start, self._first_start, tuple(entries))


def _taken(state: DomainState, found: Gathered, place: int, wanted: StreamRange) -> _Taken:
    """The entries of one range out of those gathered; `place` is that of its stream."""
    first, stop = int(found.firsts[place]), int(found.stops[place])
    begin = first + int(np.searchsorted(found.ends[first:stop], wanted.start, side="right"))
    end = first + int(np.searchsorted(found.starts[first:stop], wanted.end, side="left"))
    row = int(found.stream_rows[place])
    columns = state.streams.columns.arrays
    head = int(columns["head"][row])
    return _Taken(
        wanted.stream,
        int(columns["log_start"][row]),
        int(found.starts[first]) if first < stop else head,
        entry_table(state, found.entry_rows[begin : max(begin, end)]),
    )


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
    if any(len(one) != DIGEST_BYTES for one in swap.replaces):
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


def _chunks(items: Sequence[ItemT], size: int) -> Iterator[Sequence[ItemT]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
