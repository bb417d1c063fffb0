"""Keys that fall due, the earliest first. Pure.

A deadline is moved far more often than it is reached: each heartbeat moves one. So moving it later
changes a number and leaves the heap alone; what the heap says too early is put right when it comes
up.
"""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
SLACK: Final = 64
"""A heap with so many more entries than keys, and twice as many, is made anew."""


class Deadlines(Generic[KeyT]):
    """A time for each key."""

    def __init__(self) -> None:
        self._entries: dict[KeyT, list[float]] = {}
        """By key: when it is due, and the time at which the heap has it, which is not later."""
        self._heap: list[tuple[float, int, KeyT]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: KeyT) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._entries)

    def due_s(self, key: KeyT) -> float | None:
        """When the key is due; None for one that is not here."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def set(self, key: KeyT, due_s: float) -> None:
        """Have the key fall due then, and not when it was to before."""
        entry = self._entries.get(key)
        if entry is not None and entry[1] <= due_s:
            entry[0] = due_s
            return
        self._entries[key] = [due_s, due_s]
        self._push(key, due_s)

    def drop(self, key: KeyT) -> None:
        """Forget the key."""
        self._entries.pop(key, None)
        if not self._entries:
            self._heap.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._heap.clear()

    def take_due(self, now_s: float) -> list[KeyT]:
        """Take out the keys that are due, in the order of their times."""
        taken: list[KeyT] = []
        heap = self._heap
        while heap and heap[0][0] <= now_s:
            at_s, _, key = heappop(heap)
            entry = self._entries.get(key)
            if entry is None or entry[1] != at_s:
                continue  # dropped, or in the heap once more at another time
            if entry[0] > at_s:  # it was moved, and comes up again in its place
                entry[1] = entry[0]
                self._push(key, entry[0])
            else:
                del self._entries[key]
                taken.append(key)
        return taken

    def _push(self, key: KeyT, at_s: float) -> None:
        self._pushed += 1  # so that keys at one time need no order of their own
        heappush(self._heap, (at_s, self._pushed, key))
        if len(self._heap) > 2 * len(self._entries) + SLACK:
            self._tidy()

    def _tidy(self) -> None:
        """Let go of what was dropped long before its time."""
        entries = self._entries
        for number, (key, entry) in enumerate(entries.items()):
            entry[1] = entry[0]
            self._heap[number] = (entry[0], number, key)
        del self._heap[len(entries) :]
        heapify(self._heap)
