"""A broker's topics and index for those who read objects themselves: `lakelog.http.reading`.

As in `lakelog.server.pipeline_index`, every answer is proved current after the question came, each
stream is answered as it was at one moment, and the loop is let go between slices.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lakelog.domain.state import DomainState
from lakelog.index.ports import StreamRange
from lakelog.model.failures import Unavailable
from lakelog.server.entry_columns import WAL_ID_BYTES, Gathered, entry_table, gather
from lakelog.server.pipeline_index import ANSWER_S, BrokerIndex
from lakelog.streams.table import NONE, Int64s

SEARCHES_AT_ONCE: Final = 16
"""Searches by time that run together: each may read an object."""


@dataclass(frozen=True, slots=True, eq=False)
class RangeColumns:
    """The first entries of a range, in order, and what their stream has."""

    domain: int
    log_start: int
    head: int
    starts: Int64s
    ends: Int64s
    kinds: npt.NDArray[np.int8]
    byte_starts: Int64s
    byte_lengths: Int64s
    max_timestamps_ms: Int64s
    wal_ids: bytes
    labels: npt.NDArray[np.int32]
    """Which of the names is the zone of a WAL object, or the key of a file."""
    names: tuple[str, ...]


class ReadIndex(BrokerIndex):
    """What a reader asks a broker before it goes to the object store."""

    async def named(self, names: Sequence[str] | None) -> Sequence[tuple[str, bytes, list[int]]]:
        """Name, id and streams of these topics, as far as they exist; of all without names."""
        wanted = None if names is None else frozenset(names)
        return [
            (topic.name, bytes(topic.id), topic.streams())
            for topic in await self._broker.topics.all()
            if wanted is None or topic.name in wanted
        ]

    async def bounds(self, streams: Sequence[int]) -> Sequence[tuple[int, int] | None]:
        """Log start and head of each stream, in the order asked for; None for one that is gone."""
        arrived_s = self._clock.monotonic_s()
        await self._log.prove(streams, arrived_s=arrived_s, deadline_s=arrived_s + ANSWER_S)
        found: dict[int, tuple[int, int]] = {}
        for domain, ids in self._by_domain(streams).items():
            table = self._log.state(domain).streams
            rows = table.rows(ids)
            there = rows != NONE
            starts = table.columns["log_start"][rows[there]].tolist()
            heads = table.columns["head"][rows[there]].tolist()
            found |= zip(ids[there].tolist(), zip(starts, heads, strict=True), strict=True)
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
                    searches = (self._log.find_timestamp(one, times_ms[one]) for one in some)
                    for stream, found in zip(some, await asyncio.gather(*searches), strict=True):
                        if found is not None:
                            offsets[stream] = found.offset
        except TimeoutError as reason:
            raise Unavailable(f"not found within {ANSWER_S:g} s") from reason
        return offsets

    async def entries(
        self, ranges: Sequence[StreamRange], *, entries_max: int
    ) -> Sequence[RangeColumns | None]:
        """The first entries of each range, in the order asked for; None for a stream gone."""
        by_stream: dict[int, list[int]] = {}
        for number, one in enumerate(ranges):
            by_stream.setdefault(one.stream, []).append(number)
        columns: list[RangeColumns | None] = [None] * len(ranges)
        async for domain, some in self._slices(list(by_stream), of_wal=False):
            state = self._log.state(domain)
            found = gather(state, some)
            for place, stream in enumerate(some.tolist()):
                for number in by_stream[stream]:
                    rows = _rows(found, place, ranges[number], entries_max)
                    row = int(found.stream_rows[place])
                    columns[number] = _columns(state, domain, row, rows)
        return columns


def _rows(found: Gathered, place: int, wanted: StreamRange, entries_max: int) -> Int64s:
    """The rows of the first entries that hold an offset of the range."""
    first, stop = int(found.firsts[place]), int(found.stops[place])
    begin = first + int(np.searchsorted(found.ends[first:stop], wanted.start, side="right"))
    end = first + int(np.searchsorted(found.starts[first:stop], wanted.end, side="left"))
    return found.entry_rows[begin : min(max(begin, end), begin + entries_max)]


def _columns(state: DomainState, domain: int, stream_row: int, rows: Int64s) -> RangeColumns:
    table = entry_table(state, rows)
    assert len(table.wal_ids) == len(rows) * WAL_ID_BYTES, len(rows)
    labels = table.zones.astype(np.int32)
    names = list(table.zone_names)
    for number, key in table.keys.items():
        labels[number] = len(names)
        names.append(key)
    streams = state.streams.columns.arrays
    return RangeColumns(
        domain,
        int(streams["log_start"][stream_row]),
        int(streams["head"][stream_row]),
        table.starts,
        table.ends,
        table.kinds,
        table.byte_starts,
        table.byte_lengths,
        table.max_timestamps_ms,
        table.wal_ids,
        labels,
        tuple(names),
    )
