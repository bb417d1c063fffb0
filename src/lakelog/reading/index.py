"""The index as a reader sees it, and its answers over HTTP made into values.

An answer is checked before it is believed: columns fit together, entries follow each other, names
are keys of ours. What does not fit is `Unavailable`, like a broker that does not answer: another
one may do better.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from lakelog.http import reading_messages as messages
from lakelog.model.failures import Unavailable
from lakelog.objects.confinement import is_key
from lakelog.reading.entries import WAL_ID_BYTES, Entries, follow, joined, no_entries
from lakelog.reading.ranges import Bounds, Located, PinnedRange, TopicStreams
from lakelog.streams.objects import FileKind
from lakelog.wal.ids import TIME_MS_END

TIME_BYTES: Final = 6
_PLACES: Final = np.array([1 << 8 * at for at in reversed(range(TIME_BYTES))], np.int64)
_ZONE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class StorePlace:
    """Where the objects of a cluster are, as a broker tells it."""

    cluster_id: str
    url: str
    options: Mapping[str, str]


class Index(Protocol):
    """What is asked before the object store is read. Raises `Unavailable`."""

    async def store(self) -> StorePlace:
        """Where the objects are."""

    async def topics(self, names: Sequence[str] | None) -> Sequence[TopicStreams]:
        """Those of these topics that exist; all topics without names."""

    async def bounds(self, streams: Sequence[int]) -> Mapping[int, Bounds]:
        """What the streams have; those that are gone are left out."""

    async def first_at(self, times_ms: Mapping[int, int]) -> Mapping[int, int]:
        """The first offset at or after a time, for each stream that has one."""

    async def entries(self, ranges: Sequence[PinnedRange]) -> Sequence[Located | None]:
        """Where each range lies, as far as its stream has it; None for a stream that is gone."""


def located(found: messages.Entries) -> Located:
    """The entries of an answer; raises `Unavailable` when they make no sense."""
    try:
        entries = _entries(found)
    except ValueError as reason:
        raise Unavailable(f"the entries of an answer cannot be read: {reason}") from reason
    if not follow(entries) or not _named(entries):
        raise Unavailable("the entries of an answer make no sense")
    return Located(found.log_start, found.head, entries)


def _entries(found: messages.Entries) -> Entries:
    starts, ends = np.frombuffer(found.starts, "<i8"), np.frombuffer(found.ends, "<i8")
    if not len(starts):
        return no_entries(found.domain, found.head)
    if len(ends) != len(starts) or not np.array_equal(starts[1:], ends[:-1]):
        raise ValueError("they do not follow each other")
    return Entries(
        found.domain,
        np.append(starts, ends[-1]),
        np.frombuffer(found.kinds, np.uint8),
        np.frombuffer(found.byte_starts, "<i8"),
        np.frombuffer(found.byte_lengths, "<i8"),
        np.frombuffer(found.max_timestamps_ms, "<i8"),
        np.frombuffer(found.wal_ids, np.uint8).reshape(-1, WAL_ID_BYTES),
        np.frombuffer(found.labels, "<i4"),
        tuple(found.names),
    )


def extended(parts: Sequence[Located]) -> Located:
    """What several answers about one range say together; the newest knows the stream best.

    Between two answers a file may have taken the place of entries that both of them name.
    """
    newest = parts[-1]
    entries = parts[0].entries
    for one in parts[1:]:
        at = int(np.searchsorted(entries.edges, one.entries.start))
        if at == len(entries.edges) or int(entries.edges[at]) != one.entries.start:
            raise Unavailable("the index changed while it was asked")
        entries = joined([entries.part(0, at), one.entries])
    return Located(newest.log_start, newest.head, entries)


def _named(entries: Entries) -> bool:
    """Whether files have keys, and WAL objects ids and zones that keys are made of."""
    is_wal = entries.kinds == FileKind.WAL
    keys = {entries.names[at] for at in set(entries.labels[~is_wal].tolist())}
    zones = {entries.names[at] for at in set(entries.labels[is_wal].tolist())}
    times_ms = entries.wal_ids[is_wal, :TIME_BYTES].astype(np.int64) @ _PLACES
    timely = bool((times_ms < TIME_MS_END).all())
    return timely and all(map(is_key, keys)) and all(map(_ZONE.fullmatch, zones))
