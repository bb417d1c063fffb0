"""Batches in memory: what was just written, and what was just read. Both bounded in bytes.

The tail cache holds whole objects as their writer had them, or as one read brought them; it serves
consumers at the end of the log without a read of the store, however many there are. What readers
further back need goes through the run cache, so that they never push out the tail.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
from msgspec import Struct

from lakelog.model.ids import WalId
from lakelog.streams.objects import ObjectName
from lakelog.wal.layout import PREFIX

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]

HEADER_BYTES: Final = 61
_LAST_DELTA: Final = slice(23, 27)


class Run(Struct, frozen=True, gc=False):
    """Neighbouring batches of a stream in one buffer, and how many offsets each takes."""

    data: memoryview
    starts: "Longs"
    ends: "Longs"
    offset_counts: "Longs"
    size_bytes: int

    @property
    def batches(self) -> list[memoryview]:
        """The batches as they are stored, one by one."""
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.data[start:end] for start, end in places]


def run_of(batches: Sequence[memoryview]) -> Run:
    """A run of batches whose headers were verified, copied into one buffer."""
    ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    counts = [int.from_bytes(batch[_LAST_DELTA], "big") + 1 for batch in batches]
    size_bytes = int(ends[-1]) if len(ends) else 0
    data = memoryview(b"".join(batches))
    return Run(data, starts, ends, np.array(counts, dtype=np.int64), size_bytes)


def run_behind_lengths(data: memoryview, batches: Sequence[memoryview]) -> Run:
    """The same for batches that lie in `data` one after another, each behind its length."""
    lengths = np.array([len(batch) for batch in batches], dtype=np.int64)
    ends = np.cumsum(lengths + PREFIX.size)
    counts = [int.from_bytes(batch[_LAST_DELTA], "big") + 1 for batch in batches]
    counted = np.array(counts, dtype=np.int64)
    return Run(data, ends - lengths, ends, counted, int(lengths.sum()))


class CachedObject:
    """One WAL object as it is stored, and where its batches lie."""

    __slots__ = ("_counts", "_data", "_ends", "_starts", "size_bytes")

    def __init__(self, data: memoryview, starts: "Longs", ends: "Longs", counts: "Longs") -> None:
        self._data = data
        self._starts = starts  # of the batches, behind the length that stands before each
        self._ends = ends
        self._counts = counts
        self.size_bytes = len(data)

    def run(self, byte_start: int, byte_length: int) -> Run:
        """The batches of the entry that lies at these bytes."""
        first, end = self._ends.searchsorted(
            (byte_start, byte_start + byte_length), side="right"
        ).tolist()
        return Run(
            self._data,
            self._starts[first:end],
            self._ends[first:end],
            self._counts[first:end],
            byte_length - PREFIX.size * (end - first),
        )


KeyT = TypeVar("KeyT")
SizedT = TypeVar("SizedT", Run, CachedObject)


class Cache(Generic[KeyT, SizedT]):
    """What was used last, up to a number of bytes."""

    __slots__ = ("_bytes_max", "_entries", "size_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[KeyT, SizedT] = OrderedDict()
        self.size_bytes = 0

    def __contains__(self, key: KeyT) -> bool:
        return key in self._entries

    def get(self, key: KeyT) -> SizedT | None:
        """What is kept under this key; it becomes the last used."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: KeyT, value: SizedT) -> None:
        """Keep this, and let go of what was not used for longest."""
        before = self._entries.pop(key, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
        self._entries[key] = value
        self.size_bytes += value.size_bytes
        while self.size_bytes > self._bytes_max and len(self._entries) > 1:
            _, gone = self._entries.popitem(last=False)
            self.size_bytes -= gone.size_bytes

    def demote(self, key: KeyT) -> bool:
        """Let this go before anything else, once room is needed; whether it is kept at all."""
        if key not in self._entries:
            return False
        self._entries.move_to_end(key, last=False)
        return True

    def drop(self, key: KeyT) -> None:
        """Forget what is kept under this key."""
        gone = self._entries.pop(key, None)
        if gone is not None:
            self.size_bytes -= gone.size_bytes


TailCache = Cache[WalId, CachedObject]
RunCache = Cache[tuple[ObjectName, int], Run]


class PartCache(RunCache):
    """Runs of parts of files, by object and place; it knows which were read to their end.

    Those may go before all others, but somebody may come for them yet.
    """

    __slots__ = ("_spent",)

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max)
        self._spent: dict[tuple[ObjectName, int], int] = {}
        """The sizes of runs that were read to their end."""

    def use(self, key: tuple[ObjectName, int]) -> Run | None:
        """The run for somebody who reads it, perhaps again."""
        self._spent.pop(key, None)
        return self.get(key)

    def spend(self, key: tuple[ObjectName, int], run: Run) -> None:
        """Somebody read this run to its end."""
        if self.demote(key):
            self._spent[key] = run.size_bytes

    def room_bytes(self) -> int:
        """What can be brought in without pushing out what somebody has not read to its end."""
        self._spent = {key: size for key, size in self._spent.items() if key in self}
        return self._bytes_max - self.size_bytes + sum(self._spent.values())
