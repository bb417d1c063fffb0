"""A value that changes, and those who watch it, from any thread and any event loop.

Rules: a value equal to the one before is not published. A watcher gets the newest value, not every
one: whoever is slow misses what was replaced meanwhile, and never holds up the one who publishes.
A closed source ends its watchers, after they have seen its last value; if it was closed with a
failure, they raise that.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Publisher(Generic[T]):
    """The one who publishes. Versions count what was published; nothing was at version 0."""

    def __init__(self, value: T) -> None:
        self._value = value
        self._version = 0
        self._closed = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()

    @property
    def value(self) -> T:
        """What was published last, or what it began with."""
        with self._changed:
            return self._value

    def publish(self, value: T) -> bool:
        """Publish a value; false if it is the one of before, or if the source is closed."""
        with self._changed:
            if self._closed or value == self._value:
                return False
            self._value = value
            self._version += 1
            self._wake()
        return True

    def close(self, failure: Exception | None = None) -> None:
        """End all watchers; the first call decides how."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._failure = failure
            self._wake()

    def watch(self) -> "Watch[T]":
        """A new watcher; it begins with the value that stands, if one was published."""
        return Watch(self)

    def wait(self, watch: "Watch[T]", timeout_s: float | None) -> None:
        """Block until there is something for that watcher, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_due(watch), timeout_s)

    def wake(self) -> None:
        """Have all who wait look again."""
        with self._changed:
            self._wake()

    def after(self, version: int) -> tuple[int, T] | None:
        """What was published after that version, and its own; raises what it was closed with."""
        with self._changed:
            if self._version > version:
                return self._version, self._value
            if self._closed and self._failure is not None:
                raise self._failure
            return None

    def call_later(self, watch: "Watch[T]", waker: Callable[[], None]) -> bool:
        """Call that once, from any thread, to have the watcher look again; false if it is due."""
        with self._changed:
            if self._is_due(watch):
                return False
            self._wakers.add(waker)
            return True

    def forget(self, waker: Callable[[], None]) -> None:
        """Do not call it any more."""
        with self._changed:
            self._wakers.discard(waker)

    def _is_due(self, watch: "Watch[T]") -> bool:
        return self._version > watch.seen or self._closed or watch.is_closed

    def _wake(self) -> None:
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, set()
        for waker in wakers:
            waker()


class Watch(Generic[T]):
    """One watcher: iterate over it with `for` or `async for`, or ask it for the next change.

    It is for one thread or one task at a time; everyone can have their own.
    """

    def __init__(self, source: Publisher[T]) -> None:
        self._source = source
        self.seen = 0
        """The version of the value that it had last."""
        self.is_closed = False
        """Whether it was closed; the source may go on for others."""

    @property
    def value(self) -> T:
        """The value that stands now; looking at it does not count as having had it."""
        return self._source.value

    def next_change(self, timeout_s: float | None = None) -> T | None:
        """Wait for a value that this watcher has not had; None if the time is up or it ended."""
        self._source.wait(self, timeout_s)
        return self._take()

    async def next_change_async(self, timeout_s: float | None = None) -> T | None:
        """The same on an event loop."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._due()
        except TimeoutError:
            return None
        return self._take()

    def close(self) -> None:
        """End the iteration, also from another thread."""
        self.is_closed = True
        self._source.wake()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        found = self.next_change()
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        found = await self.next_change_async()
        if found is None:
            raise StopAsyncIteration
        return found

    def _take(self) -> T | None:
        found = None if self.is_closed else self._source.after(self.seen)
        if found is None:
            return None
        self.seen, value = found
        return value

    async def _due(self) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                # Its loop was closed while it waited: nobody is there to be woken.
                return

        try:
            while self._source.call_later(self, wake):
                await woken.wait()
                woken.clear()
        finally:
            self._source.forget(wake)
