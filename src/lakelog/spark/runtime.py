"""The loop of a Spark process, and what is open on it.

Spark calls Python from threads without a loop and uses its processes again, so one loop on a thread
of its own serves all calls of a process, and what was opened once stays open. Workers are forked:
a child that inherits this module makes a loop of its own.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from typing import Any, Final, TypeVar

from lakelog.clock import Tasks
from lakelog.config.named_options import ClusterOptions
from lakelog.lake.read.topic_source import ClusterAddress, TopicSource, find_cluster, open_source

CANCEL_S: Final = 10.0
"""How long a task that was cancelled is waited for; a process that ends has no loop any more."""

ResultT = TypeVar("ResultT")


class Runtime:
    """A loop on a thread, and open sources by where they are."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._reached: dict[ClusterOptions, ClusterAddress] = {}
        self._sources: dict[ClusterAddress, TopicSource] = {}
        self._tasks = Tasks()
        self.pool: Executor = ThreadPoolExecutor(1, thread_name_prefix="lakelog-rows")
        """Where rows are made; one thread, because Spark runs one task at a time in a process."""
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="lakelog-spark", daemon=True
        )
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run it on the loop and wait for it, from any thread but the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """Begin it on the loop, from any thread but the loop's."""

        async def begun() -> "asyncio.Task[None]":
            return self._tasks.spawn(work, name=name)

        return self.call(begun())

    def cancel(self, task: "asyncio.Task[None]") -> None:
        """End a task and wait a while until it has ended, from any thread.

        On the loop's own thread, where a forgotten iterator may be collected, nobody can wait.
        """
        if threading.current_thread() is self._thread:
            task.cancel()
        else:
            wait([asyncio.run_coroutine_threadsafe(_ended(task), self._loop)], timeout=CANCEL_S)

    def reached(self, connection: ClusterOptions) -> ClusterAddress:
        """Who is to be asked and where the objects are, found out once."""
        with self._lock:
            found = self._reached.get(connection)
            if found is None:
                environment = os.environ  # noqa: TID251 - a user's process has no other root
                found = self._reached[connection] = self.call(find_cluster(connection, environment))
            return found

    def source(self, reached: ClusterAddress) -> TopicSource:
        """The source at that place, opened once."""
        with self._lock:
            found = self._sources.get(reached)
            if found is None:
                found = self._sources[reached] = self.call(open_source(reached))
            return found

    def close(self) -> None:
        """Close what is open and end the loop; nothing may be asked of it any more."""
        with self._lock:
            for source in self._sources.values():
                self.call(source.close())
            self._sources.clear()
        self.call(self._tasks.close())
        self.pool.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task])


_runtimes: Final[dict[int, Runtime]] = {}
_making = threading.Lock()


def close_runtime() -> None:
    """Close the runtime of this process, if it has one; the next use makes another."""
    with _making:
        found = _runtimes.pop(os.getpid(), None)
    if found is not None:
        found.close()


def runtime() -> Runtime:
    """The runtime of this process."""
    process = os.getpid()
    with _making:
        found = _runtimes.get(process)
        if found is None:
            found = _runtimes[process] = Runtime()
        return found
