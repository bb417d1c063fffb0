"""An object store in a local directory that survives power loss.

Rules: blocking calls run on two small pools, so that reads do not wait for syncs; a put is one hop;
a put that returned is on the disk, file and names alike; several processes may share a directory.

A hop to a thread and back costs several times as much as reading a small file that the system has
in memory, and whoever catches up on a quiet topic reads thousands of them.
"""

import asyncio
import errno
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from lakelog.clock import Clock, Entropy, SystemUptime, Uptime, lower_priority
from lakelog.model.failures import Failure, NotFound, Refused, Unavailable
from lakelog.model.ids import ByteRange
from lakelog.objects.local_clock import JUMP_MAX_MS, LocalClock
from lakelog.objects.local_files import INCOMING, LocalFiles, RootLost, make_root
from lakelog.objects.port import Buffer, ObjectInfo, confined, confined_prefix, whole

READS_PER_HOP: Final = 32
"""More are spread over the threads, so that a slow disk is asked for several things at once."""

Ranges = Sequence[ByteRange] | None
Read = Callable[[str, Ranges], list[memoryview]]


class _Asked(NamedTuple):
    key: str
    ranges: Ranges
    answer: "asyncio.Future[list[memoryview]]"


class BatchedReads:
    """Collects reads and hands them to a pool in bunches."""

    def __init__(self, pool: ThreadPoolExecutor, read: Read) -> None:
        self._pool = pool
        self._read = read
        self._asked: list[_Asked] = []

    async def read(self, key: str, ranges: Ranges) -> list[memoryview]:
        """What `read` returns or raises, read on a thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[memoryview]] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._send, loop)
        self._asked.append(_Asked(key, ranges, answer))
        return await answer

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        asked, self._asked = self._asked, []
        for start in range(0, len(asked), READS_PER_HOP):
            bunch = asked[start : start + READS_PER_HOP]
            try:
                self._pool.submit(self._work, loop, bunch)
            except RuntimeError as error:  # the pool was shut down meanwhile
                _deliver(bunch, [OSError(str(error))] * len(bunch))

    def _work(self, loop: asyncio.AbstractEventLoop, bunch: list[_Asked]) -> None:
        results: list[list[memoryview] | Exception] = []
        for asked in bunch:
            try:
                results.append(self._read(asked.key, asked.ranges))
            except (OSError, Failure) as error:
                results.append(error)
        loop.call_soon_threadsafe(_deliver, bunch, results)


def _deliver(bunch: list[_Asked], results: Sequence[list[memoryview] | Exception]) -> None:
    for asked, result in zip(bunch, results, strict=True):
        if asked.answer.done():
            continue  # nobody waits any more
        if isinstance(result, Exception):
            asked.answer.set_exception(result)
        else:
            asked.answer.set_result(result)


PUT_THREADS: Final = 4
GET_THREADS: Final = 4
LEFTOVER_S: Final = 3600.0
"""What an unfinished put left behind is removed at the next start when it is this old."""

LIST_CHUNK: Final = 1000
"""A listing comes back to the loop after this many objects."""

ResultT = TypeVar("ResultT")


class LocalObjectStore:
    """Objects as files below one directory."""

    def __init__(self, root: str, entropy: Entropy, clock: LocalClock) -> None:
        self._root = root
        self._clock = clock
        self._files = LocalFiles(root)
        # No other process, and no earlier life of this one, uses the same names.
        self._writer = entropy.token(8).hex()
        self._numbers = itertools.count()
        self._puts = ThreadPoolExecutor(PUT_THREADS, thread_name_prefix="lakelog-objects-put")
        self._gets = ThreadPoolExecutor(
            GET_THREADS, thread_name_prefix="lakelog-objects-get", initializer=lower_priority
        )
        self._reads = BatchedReads(self._gets, self._files.read)
        self._closed = False
        self._lost = asyncio.Event()
        self._reason = ""

    @classmethod
    async def open(
        cls,
        directory: Path | str,
        clock: Clock,
        entropy: Entropy,
        *,
        uptime: Uptime | None = None,
        clock_jump_max_ms: int = JUMP_MAX_MS,
    ) -> "LocalObjectStore":
        """Open the directory or make it; `Refused` says why that cannot be done."""
        root = _prepared(directory)
        judged = LocalClock(root, clock, uptime or SystemUptime(), jump_max_ms=clock_jump_max_ms)
        store = cls(root, entropy, judged)
        await store.clock_skew_ms()  # what comes later is compared with now
        await store._run(
            store._puts, lambda: store._files.sweep(before_s=clock.now_ms() / 1000 - LEFTOVER_S)
        )
        return store

    @property
    def url(self) -> str:
        """Where the objects are, for humans."""
        return Path(self._root).as_uri()

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store the parts, one after another, as one object, replacing what is there."""
        confined(key)
        temporary = f"{self._writer}-{next(self._numbers)}"
        try:
            await self._run(self._puts, lambda: self._files.put(key, parts, temporary))
        except RootLost as lost:
            self._reason = str(lost)
            self._lost.set()
            raise

    async def failed(self) -> None:
        """Wait until the directory was seen to be lost, then raise it: the process must end."""
        await self._lost.wait()
        raise Unavailable(self._reason)

    async def get(self, key: str) -> memoryview:
        """The whole object."""
        return (await self._read(key, None))[0]

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the order asked for."""
        return await self._read(key, whole(ranges))

    async def _read(self, key: str, ranges: Sequence[ByteRange] | None) -> list[memoryview]:
        confined(key)
        if self._closed:
            raise Unavailable("the object store is closed")
        try:
            return await self._reads.read(key, ranges)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound(f"{self._root}/{key}: no such object") from error
        except OSError as error:
            raise Unavailable(f"{self._root}/{key}: {error.strerror or error}") from error

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with `prefix`, in no order."""
        walk = self._files.walk(confined_prefix(prefix))
        while True:
            try:
                found = await self._run(
                    self._gets, lambda: list(itertools.islice(walk, LIST_CHUNK))
                )
            except OSError as error:
                raise Unavailable(f"{self._root}/{prefix}: {error.strerror or error}") from error
            for info in found:
                yield info
            if len(found) < LIST_CHUNK:
                return

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete these objects; those that are gone already are fine."""
        names = [confined(key) for key in keys]
        try:
            await self._run(self._puts, lambda: self._files.delete(names))
        except OSError as error:
            raise Unavailable(f"{self._root}: {error.strerror or error}") from error

    async def clock_skew_ms(self) -> int:
        """Nothing, unless this machine's clock jumped: the directory has no clock of its own."""
        return await self._run(self._gets, self._clock.skew_ms)

    async def close(self) -> None:
        """Finish what is being written and end the threads."""
        self._closed = True
        self._puts.shutdown()
        self._gets.shutdown()
        self._files.close()

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[], ResultT]) -> ResultT:
        if self._closed:
            raise Unavailable("the object store is closed")
        return await asyncio.get_running_loop().run_in_executor(pool, work)


def _prepared(directory: Path | str) -> str:
    root = os.path.abspath(directory)
    try:
        make_root(root)
    except OSError as error:
        raise _refusal(root, error) from error
    if not os.access(os.path.join(root, INCOMING), os.W_OK | os.X_OK):
        raise _refusal(root, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    return root


def _refusal(root: str, error: OSError) -> Refused:
    match error.errno:
        case errno.ENOTDIR | errno.EEXIST:
            return Refused(f"{root}: is not a directory; name a directory for the objects")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Refused(
                f"{root}: cannot be written ({error.strerror}); change its owner or permissions, "
                "or name another directory"
            )
        case errno.ENOSPC | errno.EDQUOT:
            return Refused(f"{root}: the disk is full; free some space")
        case errno.EINVAL:
            return Refused(f"{root}: this filesystem cannot sync a directory; name a local disk")
        case _:
            return Refused(f"{root}: cannot be used ({error.strerror or error})")
