"""Batches in memory: what was just written, and what was just read. Both bounded in bytes.

The tail cache holds whole objects as their writer had them, or as one read brought them; it serves
consumers at the end of the log without a read of the store, however many there are. What readers
further back need goes through the run cache, so that they never push out the tail.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from lakelog.model.ids import WalId
from lakelog.streams.objects import ObjectName
from lakelog.wal.layout import PREFIX

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64] | NDArray[np.uint32]

HEADER_BYTES: Final = 61
_LAST_DELTA: Final = slice(23, 27)


class Run(Struct, frozen=True, gc=False):
    """Neighbouring batches of a stream, and how many offsets each takes."""

    batches: Sequence[memoryview]
    offset_counts: Sequence[int]
    size_bytes: int


def run_of(batches: Sequence[memoryview]) -> Run:
    """A run of batches whose headers were verified."""
    counts = [int.from_bytes(batch[_LAST_DELTA], "big") + 1 for batch in batches]
    return Run(batches, counts, sum(len(batch) for batch in batches))


class CachedObject:
    """One WAL object as it is stored, and where its batches lie: views are made by readers."""

    __slots__ = ("_counts", "_data", "_lengths", "_starts", "size_bytes")

    def __init__(self, data: memoryview, starts: "Ints", lengths: "Ints", counts: "Ints") -> None:
        self._data = data
        self._starts = starts  # with the length that stands before each batch
        self._lengths = lengths
        self._counts = counts
        self.size_bytes = len(data)

    def run(self, byte_start: int, byte_length: int) -> Run:
        """The batches of the entry that lies at these bytes."""
        first, end = self._starts.searchsorted((byte_start, byte_start + byte_length)).tolist()
        data, prefix = self._data, PREFIX.size
        starts, lengths = self._starts[first:end].tolist(), self._lengths[first:end].tolist()
        return Run(
            [
                data[start + prefix : start + length]
                for start, length in zip(starts, lengths, strict=True)
            ],
            self._counts[first:end].tolist(),
            byte_length - prefix * (end - first),
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
