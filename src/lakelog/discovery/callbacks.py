"""A user's callbacks, on one thread of their own.

Rules: they run one after the other, in the order of what happened, and never on the thread that
keeps a node in its group: whatever they do, heartbeats go on. How long the one that runs has run is
known, so that somebody can draw the conclusion. What a callback raises is logged and ends nothing.
The thread starts with the first call and is a daemon's: a callback that never returns must not hold
up the end of a process.
"""

import functools
import inspect
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, Generic, TypeVar

from lakelog.clock import Clock

T = TypeVar("T")
Call = Callable[[], object]

log: Final = logging.getLogger("lakelog.discovery")


class CallbackThread:
    """The thread on which callbacks run."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[Sequence[Call], Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._closed = False
        self._busy_since_s: float | None = None

    def run(self, calls: Sequence[Call]) -> Future[None]:
        """Have these called in turn; the future is done when all have returned."""
        done: Future[None] = Future()
        with self._lock:
            if self._closed or not calls:
                done.set_result(None)
                return done
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._waiting.put((calls, done))
        return done

    @property
    def is_current(self) -> bool:
        """Whether this is asked by a callback."""
        return self._thread is threading.current_thread()

    def busy_s(self) -> float:
        """For how long the callback that runs has run; 0 if none does."""
        since_s = self._busy_since_s
        return 0.0 if since_s is None else self._clock.monotonic_s() - since_s

    def close(self, timeout_s: float) -> bool:
        """Call nothing new, and wait for what was asked before; false if it takes longer.

        A callback may close its own thread: that ends when the callback returns.
        """
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _work(self) -> None:
        while (next_up := self._waiting.get()) is not None:
            calls, done = next_up
            for call in calls:
                self._busy_since_s = self._clock.monotonic_s()
                try:
                    call()
                except Exception:
                    log.exception("a callback of discovery failed")
                finally:
                    self._busy_since_s = None
            done.set_result(None)


class Listeners(Generic[T]):
    """The callbacks for one kind of news."""

    def __init__(self) -> None:
        self._callbacks: tuple[Callable[[T], object], ...] = ()

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[T], object]) -> None:
        """Call this one too, from the next news on."""
        if inspect.iscoroutinefunction(callback):
            raise TypeError(f"a callback is a plain function, not {callback!r}")
        self._callbacks = (*self._callbacks, callback)

    def tell(self, news: T, thread: CallbackThread) -> Future[None]:
        """Tell all of them on that thread; the future is done when all have returned."""
        return thread.run([functools.partial(callback, news) for callback in self._callbacks])
