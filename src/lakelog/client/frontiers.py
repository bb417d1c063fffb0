"""The least of many times that move: what rows wait for, found without looking at all. Pure.

It gives what `release.limit` gives, of thousands of partitions and after every answer: a heap whose
old entries are dropped when they come to its top.
"""

import heapq
from typing import Final

from lakelog.client.release import ALL, INT64_MIN, NOTHING, Limit

_STALE_ENTRIES_MAX: Final = 1024


class Frontiers:
    """The partitions that are waited for, and how far each was read."""

    def __init__(self) -> None:
        self._tails: dict[int, int | None] = {}
        self._silent = 0
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        """How many are waited for."""
        return len(self._tails)

    def wait_for(self, index: int, tail_ms: int | None) -> None:
        """Rows wait for this partition, whose tail this is; None before its first row."""
        if index in self._tails and self._tails[index] == tail_ms:
            return
        self.forget(index)
        self._tails[index] = tail_ms
        if tail_ms is None:
            self._silent += 1
        else:
            heapq.heappush(self._heap, (tail_ms, index))
            if len(self._heap) > 2 * len(self._tails) + _STALE_ENTRIES_MAX:
                known = self._tails.items()
                self._heap = [(tail, each) for each, tail in known if tail is not None]
                heapq.heapify(self._heap)

    def forget(self, index: int) -> None:
        """Rows wait no more for this partition."""
        if index in self._tails and self._tails.pop(index) is None:
            self._silent -= 1

    def limit(self, out_of_order_ms: int) -> Limit:
        """The greatest key that may go."""
        if self._silent:
            return NOTHING
        heap = self._heap
        while heap:
            tail_ms, index = heap[0]
            if self._tails.get(index) == tail_ms:
                timestamp_ms = tail_ms - out_of_order_ms
                return NOTHING if timestamp_ms < INT64_MIN else Limit(timestamp_ms, index)
            heapq.heappop(heap)
        return ALL
