"""Snapshots and offsets as values, and how one leads to the other. Pure.

A snapshot holds of each partition the offsets before its own; both grow with every snapshot, so
"the newest whose every offset is at most this" is one snapshot, or none.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from lakelog.catalog.snapshot_page import SnapshotFact
from lakelog.lake.read.read_request import EARLIEST, LATEST
from lakelog.model.failures import Corrupt, Failure

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class TablesFailure(Failure):
    """The base of what can be wrong with a question about snapshots and groups."""


class TopicNotFound(TablesFailure):
    """There is no such topic."""


class NoTable(TablesFailure):
    """The topic has no table, or tables are switched off."""


class UnknownSnapshot(TablesFailure):
    """The topic's table has no such snapshot, and none is remembered that it had."""


class NoSnapshot(TablesFailure):
    """No snapshot is as old as that."""


class UnknownGroup(TablesFailure):
    """There is no such group."""


class NothingCommitted(TablesFailure):
    """The group is there, but has committed nothing in this topic."""


@dataclass(frozen=True, slots=True, eq=False)
class Offsets(Mapping[int, int]):
    """For every partition of a topic the offset that comes next; -2 where there was nothing yet.

    -2 stands for the earliest offset in `lakelog.read`, in Spark and in Kafka's clients alike, so
    this can be given to all of them as the place to begin.
    """

    topic: str
    by_partition: Mapping[int, int]

    def __getitem__(self, partition: int) -> int:
        return self.by_partition[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_partition)

    def __len__(self) -> int:
        return len(self.by_partition)

    def as_mapping(self) -> dict[int, int]:
        """The offsets by partition, as a plain dict."""
        return dict(self.by_partition)

    def as_spark(self) -> str:
        """The JSON that Spark takes as `startingOffsets`."""
        by_partition = {str(partition): offset for partition, offset in self.by_partition.items()}
        return json.dumps({self.topic: by_partition}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One snapshot of a topic's table."""

    id: int
    time: datetime
    operation: str
    """What made it: `append` brought rows, `replace` only moved them, `delete` took old ones."""
    offsets: Offsets
    """The first offset of each partition that it does not hold."""
    is_live: bool
    """Whether the table still has it; otherwise it cannot be queried any more."""


def offsets_of(topic: str, ends: Mapping[int, int], *, partition_count: int) -> Offsets:
    """The offsets of all partitions of a topic, given those of some."""
    partitions = sorted({*range(partition_count), *ends})
    return Offsets(topic, {one: ends.get(one, EARLIEST) for one in partitions})


def snapshot_of(
    fact: SnapshotFact, topic: str, *, partition_count: int, is_live: bool
) -> TableSnapshot:
    """A fact as users see it."""
    try:
        time = _EPOCH + fact.timestamp_ms * _MILLISECOND
    except OverflowError as error:
        raise Corrupt(f"snapshot {fact.snapshot_id} has an impossible time") from error
    offsets = offsets_of(topic, fact.vector, partition_count=partition_count)
    return TableSnapshot(fact.snapshot_id, time, fact.operation, offsets, is_live)


def is_within(vector: Mapping[int, int], offsets: Mapping[int, int]) -> bool:
    """Whether these offsets hold all that a snapshot with this vector holds.

    A partition that they do not name, or name with -2, holds nothing; -1 stands for its end.
    """
    for partition, end in vector.items():
        given = offsets.get(partition, EARLIEST)
        if given != LATEST and end > max(given, 0):
            return False
    return True


def newest(facts: Iterable[SnapshotFact]) -> SnapshotFact | None:
    """The one that was made last."""
    return max(facts, key=lambda one: one.sequence_number, default=None)


def milliseconds(time: datetime) -> int:
    """A time with its zone, in milliseconds since 1970; `ValueError` without a zone."""
    if time.tzinfo is None:
        raise ValueError(f"{time!r} needs a time zone, as datetime.UTC")
    return (time - _EPOCH) // _MILLISECOND
