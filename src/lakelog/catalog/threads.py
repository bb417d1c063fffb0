"""From the loop to a library that blocks, and back: PyIceberg runs in threads, stores on the loop.

One operation is one piece of work in a thread with one deadline. Whatever store call it makes, in
whichever thread of the library, is a coroutine on the loop that started the operation. When the
deadline has passed or the caller is gone, a call that runs is cancelled, later ones fail at once,
and so the thread ends by itself; the operation returns only then, and nothing works on unseen.
Only a library that hangs on a connection of its own is left behind: its outcome is unknown.

`ObjectFiles` are the files of a table as objects of the port, for code that blocks. Every file is
written once, under a name that nobody else uses, and before anything names it. So a put whose reply
was lost is simply repeated, and one that stays unknown is `Unavailable`: whether the object is
there or not, nothing was changed that anybody can see. Loads no PyIceberg.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from lakelog.catalog.definition import Locations
from lakelog.clock import Clock
from lakelog.model.failures import Failure, NotFound, OutcomeUnknown, Unavailable
from lakelog.objects.port import ObjectStore

T = TypeVar("T")

HANG_S: Final = 30.0
"""How long a thread may go on after its operation's time before it counts as hung."""


class Calls:
    """The store calls of one operation, made from threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, deadline_s: float) -> None:
        self._loop = loop
        self._clock = clock
        self._deadline_s = deadline_s
        self._lock = Lock()
        self._running: set[Future[Any]] = set()
        self._abandoned = False

    def read(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call that changes nothing; `Unavailable` when the time is over."""
        return self._make(call, lost=Unavailable)

    def write(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make a call that changes something; `OutcomeUnknown` when the time is over."""
        return self._make(call, lost=OutcomeUnknown)

    def abandon(self) -> None:
        """Cancel the calls that run and let no other begin."""
        with self._lock:
            self._abandoned = True
            running = list(self._running)
        for future in running:
            future.cancel()

    def _make(self, call: Callable[[], Coroutine[Any, Any, T]], *, lost: type[Failure]) -> T:
        left_s = self._deadline_s - self._clock.monotonic_s()
        with self._lock:
            if self._abandoned or left_s <= 0:
                raise Unavailable("the table operation is over, nothing more was asked for")
            future = asyncio.run_coroutine_threadsafe(call(), self._loop)
            self._running.add(future)
        try:
            return future.result(left_s)
        except TimeoutError:
            future.cancel()
            raise lost("no answer within the time of the table operation") from None
        except CancelledError:
            raise lost("the table operation was given up") from None
        finally:
            with self._lock:
                self._running.discard(future)


class LibraryThreads:
    """A small pool of threads for a library that blocks."""

    def __init__(self, clock: Clock, *, threads: int, hang_s: float = HANG_S) -> None:
        self._clock = clock
        self._hang_s = hang_s
        self._has_hung = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakelog-catalog")

    async def run(self, work: Callable[[Calls], T], *, timeout_s: float) -> T:
        """Run `work` in a thread; its store calls have to be over in `timeout_s` seconds."""
        loop = asyncio.get_running_loop()
        calls = Calls(loop, self._clock, deadline_s=self._clock.monotonic_s() + timeout_s)
        began = self._pool.submit(work, calls)
        running = asyncio.wrap_future(began)
        try:
            await asyncio.wait([running], timeout=timeout_s + self._hang_s)
            if not running.done():
                self._leave(calls, began)
            return running.result()
        except asyncio.CancelledError:
            calls.abandon()
            # The thread ends at its next call; whether it failed or not interests nobody now.
            await asyncio.wait([running], timeout=self._hang_s)
            self._has_hung |= not running.done()
            if running.done() and not running.cancelled():
                running.exception()
            raise

    def _leave(self, calls: Calls, began: "Future[T]") -> None:
        """Say of work that does not end what is known of it."""
        calls.abandon()
        if began.cancel():
            raise Unavailable("no thread was free for the table operation in its time")
        self._has_hung = True
        raise OutcomeUnknown("the catalog's library did not end in the time of the operation")

    async def close(self) -> None:
        """End the threads once their work is done; a thread that hangs is not waited for."""
        wait = not self._has_hung
        shut = partial(self._pool.shutdown, wait=wait, cancel_futures=not wait)
        await asyncio.get_running_loop().run_in_executor(None, shut)


class ObjectFiles:
    """Whole objects by location; `Refused` for a location outside the store's prefix."""

    def __init__(self, calls: Calls, objects: ObjectStore, *, put_attempts: int) -> None:
        self._calls = calls
        self._objects = objects
        self._locations = Locations.below(objects.url)
        self._put_attempts = put_attempts

    def check(self, location: str) -> None:
        """Refuse the location now if it would be refused later."""
        self._locations.key(location)

    def get(self, location: str) -> memoryview:
        """The bytes of an object; `NotFound` when it is not there."""
        key = self._locations.key(location)
        return self._calls.read(lambda: self._objects.get(key))

    def exists(self, location: str) -> bool:
        """Whether the object is there."""
        try:
            self.get(location)
        except NotFound:
            return False
        return True

    def put(self, location: str, content: bytes) -> None:
        """Store an object that nothing names yet, again when the reply was lost."""
        key = self._locations.key(location)
        said = ""
        for _ in range(self._put_attempts):
            try:
                return self._calls.write(lambda: self._objects.put(key, [content]))
            except OutcomeUnknown as error:
                said = str(error)
        raise Unavailable(f"{key}: may be stored or not, and nothing names it: {said}")

    def delete(self, location: str) -> None:
        """Delete an object; gone already is fine."""
        key = self._locations.key(location)
        self._calls.write(lambda: self._objects.delete([key]))
