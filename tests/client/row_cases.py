"""Rows and partitions as tests need them: made by hand, or any that Hypothesis thinks of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from lakelog.client.watermark import ALL, INT64_MIN, NOTHING, Limit, Progress, Rule, is_live
from lakelog.records.columns import fill_views
from lakelog.records.fetched import FetchedRows

if TYPE_CHECKING:
    from lakelog.records.kernels import Ints


@dataclass(frozen=True, slots=True)
class Row:
    """One record."""

    offset: int
    timestamp_ms: int
    key: bytes | None = None
    value: bytes | None = b"value"


def fetched(rows: Sequence[Row]) -> FetchedRows:
    """The rows as a fetch brings them."""
    data = b"".join((row.key or b"") + (row.value or b"") for row in rows)
    starts = np.zeros((2, len(rows)), np.int32)
    ends = np.zeros((2, len(rows)), np.int32)
    place = 0
    for number, row in enumerate(rows):
        for side, content in enumerate((row.key, row.value)):
            starts[side, number] = -1 if content is None else place
            place += len(content or b"")
            ends[side, number] = -1 if content is None else place
    nulls = starts < 0
    view = memoryview(data)
    return FetchedRows(
        offsets=np.array([row.offset for row in rows], np.int64),
        timestamps_ms=np.array([row.timestamp_ms for row in rows], np.int64),
        key_views=_views(view, starts[0], ends[0]),
        value_views=_views(view, starts[1], ends[1]),
        key_nulls=nulls[0].copy() if nulls[0].any() else None,
        value_nulls=nulls[1].copy() if nulls[1].any() else None,
        data=view,
        header_starts=None,
        header_counts=None,
    )


def _views(data: memoryview, starts: "Ints", ends: "Ints") -> "Ints":
    views = fill_views(data, starts, ends)
    views[starts < 0] = 0
    return views


def at(*times_ms: int, first: int = 0) -> FetchedRows:
    """Rows at these times, one offset after the other."""
    return fetched([Row(first + place, time_ms) for place, time_ms in enumerate(times_ms)])


@dataclass(frozen=True, slots=True)
class Log:
    """What one partition holds: rows out of order by so much at most, and where it ends."""

    rows: tuple[Row, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """Partitions, and the order in which portions of them arrive."""

    logs: tuple[Log, ...]
    arrivals: tuple[tuple[int, int], ...]
    """Partition and how many rows; whatever is left arrives at the end."""
    rule: Rule
    rows_max: int

    def steps(self) -> "Iterator[Step]":
        """The arrivals one after the other, with every partition's progress before any and then
        after each."""
        places = [0] * len(self.logs)
        tails: list[int | None] = [None] * len(self.logs)
        lives = [False] * len(self.logs)
        yield Step(0, (), self._progresses(places, tails, lives))
        rest = [(index, len(log.rows)) for index, log in enumerate(self.logs)]
        for index, count in (*self.arrivals, *rest):
            rows = self.logs[index].rows[places[index] : places[index] + count]
            if rows:
                places[index] += len(rows)
                tails[index] = min(row.timestamp_ms for row in rows[-2:])
                yield Step(index, rows, self._progresses(places, tails, lives))

    def _progresses(
        self, places: list[int], tails: list[int | None], lives: list[bool]
    ) -> tuple[Progress, ...]:
        """How far all are; whoever is live now will be."""
        found = []
        for index, log in enumerate(self.logs):
            # The position passes gaps at the end, where there is nothing else to read.
            more = places[index] < len(log.rows)
            position = log.rows[places[index]].offset if more else log.end
            progress = Progress(index, 0, log.end, position, tails[index], was_live=lives[index])
            lives[index] = is_live(progress, self.rule)
            found.append(progress)
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Step:
    """Rows that arrived from a partition, and how far all are now."""

    index: int
    rows: tuple[Row, ...]
    progresses: tuple[Progress, ...]


@st.composite
def logs(draw: st.DrawFn, out_of_order_ms: int) -> Log:
    """A partition whose rows are late by at most so much."""
    steps = draw(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, out_of_order_ms)), max_size=12)
    )
    rows = []
    offset, base_ms = draw(st.integers(0, 3)), draw(st.integers(-3, 20))
    for advance_ms, early_ms in steps:
        base_ms += advance_ms
        rows.append(Row(offset, base_ms + early_ms, None, b"%d" % offset))
        offset += draw(st.integers(1, 3))
    return Log(tuple(rows), offset if rows else 0)


@st.composite
def scenarios(draw: st.DrawFn, *, with_cutoff: bool = True) -> Scenario:
    """Some partitions, and any order in which their portions arrive."""
    out_of_order_ms = draw(st.integers(0, 6))
    partitions = draw(st.lists(logs(out_of_order_ms), min_size=1, max_size=4))
    arrival = st.tuples(st.integers(0, len(partitions) - 1), st.integers(1, 6))
    cutoff_ms = draw(st.none() | st.integers(0, 40)) if with_cutoff else None
    return Scenario(
        tuple(partitions),
        tuple(draw(st.lists(arrival, max_size=16))),
        Rule(cutoff_ms, out_of_order_ms),
        draw(st.integers(1, 40)),
    )


def limit(progresses: Iterable[Progress], rule: Rule) -> Limit:
    """What may go now: up to the least key that a priming partition could still deliver."""
    least = ALL
    for progress in progresses:
        if progress.is_idle or is_live(progress, rule):
            continue
        if progress.tail_ms is None:
            return NOTHING
        timestamp_ms = progress.tail_ms - rule.out_of_order_ms
        if timestamp_ms < INT64_MIN:
            return NOTHING
        least = min(least, Limit(timestamp_ms, progress.index))
    return least
