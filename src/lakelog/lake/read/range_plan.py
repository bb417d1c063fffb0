"""From a request and what the index says to one offset vector and the ranges to read. Pure.

A plan is pinned when it is made: ranges [start, end) of streams, which hold the same records for
ever, whatever files they lie in. Where offsets lie outside of what the log has, the choice is that
of `failOnDataLoss`: an error that names the partition, or what is there, with a note.

A topic that was deleted and made again has other streams under its name, so a range never means
another topic than the one that it was planned for.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakelog.config.named_options import BadOption
from lakelog.index.entries import Entries
from lakelog.index.ports import Bounds, PinnedRange, TopicStreams
from lakelog.lake.read.read_options import ASSIGN, ENDING_OFFSETS, STARTING_OFFSETS, SUBSCRIBE
from lakelog.lake.read.read_request import (
    EARLIEST,
    EVERYTHING,
    LATEST,
    Assigned,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Edge,
    Filters,
    Limit,
    Matching,
    PartitionName,
    Subscribed,
    TimestampStrategy,
    Topics,
)
from lakelog.model.failures import Failure
from lakelog.model.ids import INTERNAL_TOPICS


class DataLoss(Failure):
    """Records that were asked for are not there, or not any more."""


@dataclass(frozen=True, slots=True)
class PartitionStream:
    """A partition and the stream that it is."""

    topic: str
    topic_id: bytes
    partition: int
    stream: int

    @property
    def place(self) -> PartitionName:
        """The partition by name."""
        return PartitionName(self.topic, self.partition)


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRange:
    """A range and the entries that hold it, as they were when it was planned."""

    pinned: PinnedRange
    entries: Entries

    def cut(self, start: int, end: int) -> "PlannedRange":
        """The part [start, end) of it."""
        pinned = replace(self.pinned, start=start, end=end)
        return PlannedRange(pinned, self.entries.overlapping(start=start, end=end))


@dataclass(frozen=True, slots=True)
class Pinned:
    """Ranges, one for each partition that has something to read, and what was not to be had."""

    ranges: tuple[PinnedRange, ...]
    vector: Mapping[PartitionName, tuple[int, int]]
    """Start and end of every partition, also of those with nothing to read."""
    notes: tuple[str, ...]


def chosen_partitions(
    wanted: Topics, topics: Iterable[TopicStreams]
) -> tuple[PartitionStream, ...]:
    """The partitions that are to be read, by topic and number; raises `BadOption`."""
    known = {topic.name: topic for topic in topics}
    match wanted:
        case Matching(pattern=pattern):
            expression = re.compile(pattern)
            names = [
                name for name in sorted(known.keys() - INTERNAL_TOPICS) if expression.search(name)
            ]
            return tuple(partition for name in names for partition in _partitions(known[name]))
        case Subscribed(topics=names):
            _check_known(SUBSCRIBE, names, known)
            return tuple(
                partition for name in sorted(names) for partition in _partitions(known[name])
            )
        case Assigned(places=places):
            _check_known(ASSIGN, [place.topic for place in places], known)
            return tuple(_assigned(place, known[place.topic]) for place in places)


def names_wanted(wanted: Topics) -> tuple[str, ...] | None:
    """The topics that have to be looked up, None for all."""
    match wanted:
        case Matching():
            return None
        case Subscribed(topics=names):
            return names
        case Assigned(places=places):
            return tuple(dict.fromkeys(place.topic for place in places))


def times_wanted(limit: Limit, partitions: Sequence[PartitionStream]) -> dict[int, int]:
    """The streams in which a record has to be found by its time, with the time."""
    match limit:
        case AtTimestamp(time_ms=time_ms):
            return {partition.stream: time_ms for partition in partitions}
        case AtTimestamps(times_ms=times_ms):
            return {
                partition.stream: times_ms[partition.place]
                for partition in partitions
                if partition.place in times_ms
            }
        case _:
            return {}


def resolved(
    limit: Limit,
    partitions: Sequence[PartitionStream],
    by_time: Mapping[int, int],
    *,
    is_start: bool,
) -> dict[PartitionName, int]:
    """An offset for every partition, `EARLIEST` and `LATEST` among them; raises `BadOption`.

    `by_time` has the offset for every stream of `times_wanted` in which there is such a record.
    """
    option = STARTING_OFFSETS if is_start else ENDING_OFFSETS
    match limit:
        case Edge():
            end = EARLIEST if limit is Edge.EARLIEST else LATEST
            return {partition.place: end for partition in partitions}
        case AtOffsets(offsets=offsets):
            _check_same(option, offsets, partitions)
            return dict(offsets)
        case AtTimestamps(times_ms=times_ms, missing=missing):
            _check_same(f"{option}ByTimestamp", times_ms, partitions)
            rule = missing if is_start else TimestampStrategy.LATEST
            return {
                partition.place: _at_time(partition, by_time, times_ms[partition.place], rule)
                for partition in partitions
            }
        case AtTimestamp(time_ms=time_ms, missing=missing):
            rule = missing if is_start else TimestampStrategy.LATEST
            return {
                partition.place: _at_time(partition, by_time, time_ms, rule)
                for partition in partitions
            }


def pinned(
    partitions: Sequence[PartitionStream],
    starts: Mapping[PartitionName, int],
    ends: Mapping[PartitionName, int],
    bounds: Mapping[int, Bounds],
    *,
    fail_on_data_loss: bool,
) -> Pinned:
    """The ranges between these offsets, within what the streams have; raises `DataLoss`.

    A partition whose stream is not in `bounds` was deleted meanwhile.
    """
    ranges, notes = [], []
    vector: dict[PartitionName, tuple[int, int]] = {}
    for partition in partitions:
        place = partition.place
        start, end, lost = _clamped(place, starts[place], ends[place], bounds.get(partition.stream))
        if lost and fail_on_data_loss:
            raise DataLoss(f"{lost}; set failOnDataLoss to false to read what is there")
        if lost:
            notes.append(lost)
        vector[place] = (start, end)
        if start < end:
            ranges.append(
                PinnedRange(
                    partition.topic,
                    partition.topic_id,
                    partition.partition,
                    partition.stream,
                    start,
                    end,
                )
            )
    return Pinned(tuple(ranges), vector, tuple(notes))


def pruned_ranges(ranges: Iterable[PinnedRange], filters: Filters) -> tuple[PinnedRange, ...]:
    """What of the ranges can hold a row that the filters let through, by place and offset."""
    if filters == EVERYTHING:
        return tuple(ranges)
    kept = []
    for whole in ranges:
        start, end = max(whole.start, filters.offset_start), min(whole.end, filters.offset_end)
        if filters.holds(whole.topic, whole.partition) and start < end:
            kept.append(replace(whole, start=start, end=end))
    return tuple(kept)


def pruned_entries(hinted: PlannedRange, filters: Filters) -> Iterator[PlannedRange]:
    """The runs of entries that can hold a row as late as the filters want."""
    start_us = filters.timestamp_start_us
    if start_us is None or not len(hinted.entries):
        yield hinted
        return
    # A timestamp that no column holds is shown as the nearest one that it does.
    least_ms = -(1 << 63) // 1000
    kept = np.maximum(hinted.entries.max_timestamps_ms, least_ms) >= start_us // 1000
    changes = np.flatnonzero(np.diff(np.concatenate(([False], kept, [False])).astype(np.int8)))
    whole = hinted.pinned
    for first, stop in changes.reshape(-1, 2).tolist():
        edges = hinted.entries.edges
        start, end = max(whole.start, int(edges[first])), min(whole.end, int(edges[stop]))
        if start < end:
            yield hinted.cut(start, end)


def _partitions(topic: TopicStreams) -> Iterator[PartitionStream]:
    for number, stream in enumerate(topic.streams):
        yield PartitionStream(topic.name, topic.topic_id, number, stream)


def _assigned(place: PartitionName, topic: TopicStreams) -> PartitionStream:
    if place.partition >= len(topic.streams):
        count = len(topic.streams)
        raise BadOption(ASSIGN, f"{ASSIGN} names {place}, but {place.topic} has {count} partitions")
    stream = topic.streams[place.partition]
    return PartitionStream(topic.name, topic.topic_id, place.partition, stream)


def _check_known(option: str, names: Iterable[str], known: Mapping[str, TopicStreams]) -> None:
    unknown = sorted(set(names) - known.keys())
    if unknown:
        raise BadOption(option, f"{option} names {unknown[0]!r}, and there is no such topic")


def _check_same(
    option: str, given: Mapping[PartitionName, int], partitions: Sequence[PartitionStream]
) -> None:
    places = {partition.place for partition in partitions}
    missing = sorted(map(str, places - given.keys()))
    extra = sorted(map(str, given.keys() - places))
    if missing:
        raise BadOption(
            option,
            f"{option} must name every partition, and lacks {', '.join(missing)};"
            " offsets may be -1 for the latest and -2 for the earliest",
        )
    if extra:
        raise BadOption(option, f"{option} names {', '.join(extra)}, not among those to be read")


def _at_time(
    partition: PartitionStream, offsets: Mapping[int, int], time_ms: int, rule: TimestampStrategy
) -> int:
    offset = offsets.get(partition.stream)
    if offset is not None:
        return offset
    if rule is TimestampStrategy.ERROR:
        raise BadOption(
            "startingTimestamp",
            f"{partition.place} has no record at or after {time_ms};"
            " startingOffsetsByTimestampStrategy=latest begins there at the latest offset",
        )
    return LATEST


def _clamped(
    place: PartitionName, start: int, end: int, bounds: Bounds | None
) -> tuple[int, int, str | None]:
    """Start and end within the bounds, and what that leaves out."""
    if bounds is None:
        return 0, 0, f"{place} is gone: its topic was deleted"
    if 0 <= end < start:
        return start, start, f"{place} would end at {end}, before its start {start}"
    low, head = bounds.log_start, bounds.head
    first = {EARLIEST: low, LATEST: head}.get(start, start)
    after = {EARLIEST: low, LATEST: head}.get(end, end)
    lost = None
    if first > head or after > head:
        lost = f"{place} ends at offset {head}, and [{first}, {after}) is wanted"
    elif first < low or after < low:
        lost = f"{place} begins at offset {low}, and [{first}, {after}) is wanted"
    first = min(max(first, low), head)
    return first, max(first, min(max(after, low), head)), lost
