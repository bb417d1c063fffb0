"""The embedded metadata store: one SQLite file, several processes on one host.

Rules: one thread writes, and groups what several callers want into one transaction; one thread
reads, beside it, so that a read never queues behind a commit; one copies the WAL back to the main
file, so that no append waits for that. Sessions end by the wall clock, which all processes of a
host share: set back it keeps sessions longer, set forward it ends them early, and a session
whose end decided anything is over for good.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

from lakelog.clock import Clock
from lakelog.meta import sqlite_statements as statements
from lakelog.meta.port import RECORD_BYTES_MAX, VALUE_BYTES_MAX, KeyValue, LogPage, Session
from lakelog.meta.sqlite_file import (
    POSITION_MASK,
    Connect,
    FileConnections,
    connect_file,
    open_file,
)
from lakelog.meta.sqlite_threads import FileWatch, WorkerThread
from lakelog.meta.sqlite_write import (
    FileWriter,
    Outcome,
    RenewedSessions,
    SqliteSession,
    SqliteWrite,
    Wake,
    checkpoint,
)
from lakelog.model.failures import Unavailable

BUSY_S: Final = 2.5
"""How long a write waits for the lock of another process before it is `Unavailable`."""

CHECKPOINT_PAGES: Final = 1000
"""Copy the WAL back after about this many written pages (4 MiB)."""

_PAGE_BYTES: Final = 4096

ResultT = TypeVar("ResultT")
Read: TypeAlias = Callable[[sqlite3.Connection], object]


class _FinishCheckpoint:
    """A job of the writer: copy the last frames, so that the next commit starts the WAL anew."""


class SqliteLog:
    """A log of a `SqliteMetadataStore`."""

    def __init__(self, store: "SqliteMetadataStore", name: str) -> None:
        self._store = store
        self._name = name

    async def append(self, record: bytes) -> int:
        """Add a record and return its position once it is durable."""
        assert len(record) <= RECORD_BYTES_MAX, len(record)
        return cast("int", await self._store.write(statements.Append(self._name, record)))

    async def read(self, *, after: int) -> LogPage:
        """Records from position `after + 1` on, at most a page of them."""
        assert 0 <= after < POSITION_MASK, after
        name = self._name
        page = await self._store.read(lambda file: statements.read_log(file, name, after))
        self._store.grown({name: page.end})
        return page

    async def wait(self, *, after: int, timeout_s: float) -> None:
        """Return when the log may have grown beyond `after`, or when the time is over."""
        await self._store.wait(self._name, after=after, timeout_s=timeout_s)

    async def trim(self, *, before: int) -> None:
        """Forget records below position `before`, but never the newest one."""
        before = min(before, POSITION_MASK)
        while await self._store.write(statements.TrimLog(self._name, before)):
            pass


class SqliteMetadataStore:
    """Keys, logs and sessions in one SQLite file that the processes of a host share."""

    def __init__(self, connections: FileConnections, clock: Clock, *, busy_s: float) -> None:
        self.clock = clock
        self._writer = FileWriter(connections.writer, connections.files, busy_s=busy_s)
        self._reader = reader = connections.reader
        self._checkpointer = connections.checkpointer
        self._closed = False
        self._watch = FileWatch(reader, clock)
        self._heads: dict[str, int] = {}
        self._waiters: dict[str, list[tuple[int, asyncio.Future[None]]]] = {}
        self._broken = asyncio.Event()
        self._pages = 0
        self._checkpointing = False
        self._kept = RenewedSessions(clock)
        self._writes: WorkerThread[SqliteWrite | _FinishCheckpoint] = WorkerThread(
            "lakelog-meta-write",
            self._run_writes,
            answered=self._written,
            idle=self._kept.pause_s,
            tick=self._keep_sessions,
        )
        self._reads: WorkerThread[Read] = WorkerThread(
            "lakelog-meta-read", self._run_reads, idle=self._watch.pause_s, tick=self._look
        )
        self._checkpoints: WorkerThread[None] = WorkerThread(
            "lakelog-meta-checkpoint", self._run_checkpoint
        )

    @classmethod
    async def open(
        cls,
        path: Path | str,
        clock: Clock,
        *,
        busy_s: float = BUSY_S,
        connect: Connect = connect_file,
    ) -> "SqliteMetadataStore":
        """Open the file or create it; `Refused` says what is wrong with it and what to do."""
        with ThreadPoolExecutor(1) as pool:
            opening = asyncio.get_running_loop().run_in_executor(
                pool, open_file, Path(path), connect
            )
            connections = await opening
        return cls(connections, clock, busy_s=busy_s)

    async def get(self, key: str) -> KeyValue | None:
        """The key's present value, or None."""
        now_ms = self.clock.now_ms()
        return await self.read(lambda file: statements.get_key(file, key, now_ms))

    async def range(self, prefix: str) -> list[KeyValue]:
        """All keys that begin with `prefix`, sorted by key, read at one moment."""
        now_ms = self.clock.now_ms()
        return await self.read(lambda file: statements.get_range(file, prefix, now_ms))

    async def put(
        self,
        key: str,
        value: bytes | None,
        *,
        expect: int | None = None,
        session: Session | None = None,
    ) -> int:
        """Set the key (None deletes it) and return its new version, 0 when it is deleted."""
        assert value is None or len(value) <= VALUE_BYTES_MAX, key
        owner = None if session is None else session.id
        put = statements.Put(key, value, expect, owner, self.clock.now_ms())
        return cast("int", await self.write(put))

    def log(self, name: str) -> SqliteLog:
        """The log of that name; it exists from its first record on."""
        return SqliteLog(self, name)

    async def session(self, *, ttl_s: float, keep_s: float = 0.0) -> SqliteSession:
        """Begin a session that ends when it is not renewed within `ttl_s` seconds.

        While nobody asks, the writing thread renews it, for at most `keep_s`.
        """
        assert ttl_s > 0, ttl_s
        began_s = self.clock.monotonic_s()
        begin = statements.BeginSession(round(ttl_s * 1000), self.clock.now_ms())
        name = cast("str", await self.write(begin))
        self._watch.own_sessions.add(name)
        session = SqliteSession(
            name, self.clock, self.write, ttl_s=ttl_s, keep_s=keep_s, began_s=began_s
        )
        if keep_s > 0:
            self._kept.add(session)
            await self.write(Wake())
        return session

    async def failed(self) -> None:
        """Wait until the file cannot be written any more, then raise why: the process must end."""
        await self._broken.wait()
        assert self._writer.broken is not None, "set before the event"
        raise self._writer.broken

    async def close(self) -> None:
        """Work off what was handed in and close the file; the data stays."""
        self._closed = True
        for lane in (self._checkpoints, self._writes, self._reads):
            await lane.close()
        for waiters in self._waiters.values():
            for _, waiter in waiters:
                _release(waiter)
        self._checkpointer.close()
        self._reader.close()
        self._writer.close()

    async def write(self, write: SqliteWrite) -> object:
        """Make one change durable, in a transaction with those of other callers."""
        return await self._writes.submit(write)

    async def read(self, read: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Read from the file, after everything that was acknowledged before."""
        return cast("ResultT", await self._reads.submit(read))

    async def wait(self, name: str, *, after: int, timeout_s: float) -> None:
        """Return when the log may have grown beyond `after`, or when the time is over."""
        if self._closed:
            raise Unavailable("the metadata store is closed")
        if self._heads.get(name, 0) > after or timeout_s <= 0:
            return
        self._watch.want(timeout_s)
        if self._watch.asleep:
            self._reads.submit(_nothing)
        loop = asyncio.get_running_loop()
        waiter = (after, loop.create_future())
        timer = loop.call_later(timeout_s, _release, waiter[1])
        waiters = self._waiters.setdefault(name, [])
        waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            timer.cancel()
            waiters.remove(waiter)

    def grown(self, heads: dict[str, int]) -> None:
        """These logs reach at least so far: wake who waits for it."""
        for name, head in heads.items():
            if head <= self._heads.get(name, 0):
                continue
            self._heads[name] = head
            for after, waiter in self._waiters.get(name, ()):
                if head > after:
                    _release(waiter)

    # What follows runs on the threads, except where it says otherwise.

    def _run_writes(self, jobs: Sequence[SqliteWrite | _FinishCheckpoint]) -> Sequence[Outcome]:
        self._keep_sessions()  # here as well: a thread that is never idle has no ticks
        writes = [job for job in jobs if not isinstance(job, _FinishCheckpoint)]
        outcomes = iter(self._writer.commit(writes) if writes else ())
        answers = [None if isinstance(job, _FinishCheckpoint) else next(outcomes) for job in jobs]
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(job, statements.Append) and isinstance(answer, int):
                self._watch.own_heads[job.log] = answer
            elif isinstance(job, _FinishCheckpoint):
                self._writer.checkpoint()
        return answers

    def _keep_sessions(self) -> None:
        self._kept.keep_alive(self._writer.commit)
        if self._writer.broken is not None:
            self._writes.call_loop(self._broken.set)

    def _written(
        self, jobs: Sequence[SqliteWrite | _FinishCheckpoint], answers: Sequence[object]
    ) -> None:
        """On the loop: wake those who wait for what was just appended, and see to the WAL."""
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(job, _FinishCheckpoint):
                self._checkpointing = False
                continue
            # A changed leaf, its log's head, and what the payload fills by itself.
            self._pages += 3
            if isinstance(job, statements.Append):
                self._pages += len(job.record) // _PAGE_BYTES
                if isinstance(answer, int):
                    self.grown({job.log: answer})
            elif isinstance(job, statements.Put):
                self._pages += len(job.value or b"") // _PAGE_BYTES
            elif isinstance(job, statements.EndSession):
                self._watch.own_sessions.discard(job.session)
        if self._writer.broken is not None:
            self._broken.set()
        if self._pages >= CHECKPOINT_PAGES and not self._checkpointing:
            self._start_checkpoint()

    def _start_checkpoint(self) -> None:
        """On the loop: most is copied beside the appends, the rest by the writer itself.

        Only when nothing is left to copy may a commit start the WAL from its beginning; a copier
        beside a busy writer never gets there alone.
        """
        try:
            copying = self._checkpoints.submit(None)
        except Unavailable:
            return  # closing: the last connection copies everything
        self._checkpointing = True
        self._pages = 0
        copying.add_done_callback(self._finish_checkpoint)

    def _finish_checkpoint(self, _copied: asyncio.Future[object]) -> None:
        try:
            self._writes.submit(_FinishCheckpoint())
        except Unavailable:
            return  # closing, as above

    def _run_checkpoint(self, jobs: Sequence[None]) -> Sequence[object]:
        return [checkpoint(self._checkpointer)] * len(jobs)

    def _run_reads(self, jobs: Sequence[Read]) -> Sequence[object]:
        return [self._run_read(job) for job in jobs]

    def _run_read(self, job: Read) -> object:
        try:
            return job(self._reader)
        except sqlite3.Error as error:
            return Unavailable(f"the metadata store cannot be read: {error}")

    def _look(self) -> None:
        try:
            grown = self._watch.look()
        except sqlite3.Error:
            return  # only a hint; a read will say what is wrong
        if grown:
            self._reads.call_loop(lambda: self.grown(grown))


def _nothing(_file: sqlite3.Connection) -> None:
    """A job that only wakes the reading thread, so that it begins to look."""


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
