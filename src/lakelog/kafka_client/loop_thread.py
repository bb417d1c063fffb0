"""One thread with one event loop, for libraries whose users do not write `await`.

Rules:

- The thread ends with `close`, which waits for it; what is still running on the loop is cancelled.
- A `LoopThread` that is forgotten, or that nobody closed when the interpreter exits, is ended all
  the same, and nothing hangs. So the thread is a daemon that a finalizer joins: the interpreter
  would wait for any other thread before it runs a finalizer.
- In a forked child the thread does not exist: everything but `close` raises Closed there.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import Any, Final, ParamSpec, TypeVar

from lakelog.kafka_client.failures import Closed, TimedOut

CLOSE_TIMEOUT_S: Final = 30.0
"""So long `close` waits for what was cancelled; only a bug makes it take longer."""

T = TypeVar("T")
P = ParamSpec("P")


class LoopThread:
    """A thread that runs an event loop until it is closed."""

    def __init__(self, name: str) -> None:
        self._core = _Core(name)
        self._core.start()
        # At garbage collection and at the interpreter's exit, whichever comes first.
        self._finalizer = weakref.finalize(self, self._core.end)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs on the thread."""
        return self._core.loop

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._core.is_ended

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for what it returns or raises.

        It is cancelled after `timeout_s` (TimedOut), when the caller is interrupted, and by `close`
        (Closed).
        """
        core = self._core
        assert not core.is_current(), "the loop would wait for itself"
        with core.lock:
            if not core.is_usable():
                work.close()
                raise Closed(f"{core.thread.name} is closed")
            future = asyncio.run_coroutine_threadsafe(work, core.loop)
        try:
            return future.result(timeout_s)
        except WaitTimeoutError:
            if future.done():
                raise  # the work's own
            future.cancel()
            raise TimedOut(f"not done within {timeout_s:g} s") from None
        except CancelledError:
            raise Closed(f"{core.thread.name} was closed meanwhile") from None
        except BaseException:
            future.cancel()  # the caller was interrupted: nobody waits any more
            raise

    def call(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have the loop call a function soon; does nothing once the thread is closed."""
        core = self._core
        with core.lock:
            if core.is_usable():
                core.loop.call_soon_threadsafe(lambda: function(*args, **kwargs))

    def close(self) -> None:
        """End the thread and wait for it; again is allowed."""
        self._finalizer.detach()
        self._core.end()

    def __enter__(self) -> "LoopThread":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Core:
    """What the thread needs; it does not know its LoopThread, which may be forgotten before it."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.lock = threading.Lock()  # nothing is handed over once the end has begun
        self.is_ended = False
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._process_id = os.getpid()

    def start(self) -> None:
        """Begin; the loop takes work from now on."""
        self.thread.start()

    def is_usable(self) -> bool:
        """Whether the loop takes work: not after the end, and not in a forked child."""
        return not self.is_ended and os.getpid() == self._process_id

    def is_current(self) -> bool:
        """Whether the caller runs on the thread.

        By the object: the number of a thread that has ended is given to the next one.
        """
        return threading.current_thread() is self.thread

    def end(self) -> None:
        """Stop the loop and wait for the thread."""
        if os.getpid() != self._process_id:
            return  # the parent's loop is not ours to stop
        with self.lock:
            if not self.is_ended:
                self.is_ended = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current():  # the collector runs on any thread
            self.thread.join(CLOSE_TIMEOUT_S)

    def _work(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            try:
                loop.run_until_complete(_wind_up(loop))
            finally:
                asyncio.set_event_loop(None)
                loop.close()


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs and wait until it has put its things back."""
    running = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=CLOSE_TIMEOUT_S / 2)
    await loop.shutdown_asyncgens()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - it is not there on every platform
    except ImportError:
        return asyncio.new_event_loop()
    made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return made
