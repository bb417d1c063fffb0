"""What reaches the reader's thread: rows and news of partitions, in the order they happened.

One queue and one condition: whoever waits, on a thread or on a loop, is woken by what is put in.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lakelog.client.merge_buffer import SortedRun
from lakelog.client.watermark import PartitionState
from lakelog.kafka_client.admin import LogBounds
from lakelog.kafka_client.failures import ClientFailure


@dataclass(frozen=True, slots=True, eq=False)
class RowsArrived:
    """Rows of one partition, perhaps none; it was read up to `next_offset`."""

    index: int
    version: int
    run: SortedRun
    next_offset: int


@dataclass(frozen=True, slots=True)
class PositionReset:
    """A partition is read on from another offset, because its own is gone (auto.offset.reset)."""

    index: int
    version: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class PartitionAdded:
    """A partition that was not there before; perhaps in the place of one that is no more."""

    partition: PartitionState
    span: LogBounds
    position: int
    """Where it is read from: its own moves on before anybody hears of this."""
    replaced: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ReadFailed:
    """Something the reader has to hear of; sticky until a seek if it is about one partition."""

    failure: ClientFailure
    index: int | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class BufferFull:
    """Memory is full, and nothing more comes before rows are given out."""


Event: TypeAlias = RowsArrived | PositionReset | PartitionAdded | ReadFailed | BufferFull


class ConsumerEvents:
    """The queue between those who read and decode, and the one who gives out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._wakers: list[Callable[[], None]] = []
        self._is_closed = False

    def put(self, events: Iterable[Event]) -> None:
        """Add events and wake whoever waits."""
        with self._changed:
            self._events.extend(events)
            self._wake()

    def drain(self) -> list[Event]:
        """All events so far, taken out."""
        if not self._events:
            return []
        with self._changed:
            found = list(self._events)
            self._events.clear()
        return found

    def wait(self, timeout_s: float) -> None:
        """Return when there is an event, when it is closed, or after so long."""
        with self._changed:
            if not self._events and not self._is_closed:
                self._changed.wait(timeout_s)

    def call_when_changed(self, waker: Callable[[], None]) -> None:
        """Call a function once, from any thread, when there is an event or it is closed."""
        with self._changed:
            if not self._events and not self._is_closed:
                self._wakers.append(waker)
                return
        waker()

    def forget(self, waker: Callable[[], None]) -> None:
        """Call it no more."""
        with self._changed:
            if waker in self._wakers:
                self._wakers.remove(waker)

    def close(self) -> None:
        """Wake all who wait, for the last time."""
        with self._changed:
            self._is_closed = True
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()
