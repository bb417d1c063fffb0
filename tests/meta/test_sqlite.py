"""The SQLite store as a whole: groups, faults, the WAL's size, what is left after closing."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.memory_cluster import MemoryCluster

from lakelog.clock import SystemClock
from lakelog.domain.events import Barrier
from lakelog.domain.options import DomainOptions
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.meta.sqlite_file import connect_file
from lakelog.model.failures import OutcomeUnknown, Unavailable

ResultT = TypeVar("ResultT")


class FsyncFails(sqlite3.Connection):
    """A file whose disk is gone from the moment `broken` is set."""

    broken = False

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if self.broken and sql.startswith(("INSERT INTO records", "COMMIT")):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return super().execute(sql, *arguments)


def connect_faulty(path: str, busy_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        factory=FsyncFails,
    )


def test_a_failed_sync_is_announced_and_every_later_call_fails(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(
            tmp_path / "meta.db", SystemClock(), connect=connect_faulty
        )
        failing = asyncio.gather(store.failed())
        log = store.log("l")
        assert await log.append(b"1") == 1
        assert not failing.done()
        FsyncFails.broken = True
        try:
            with pytest.raises(OutcomeUnknown):
                await log.append(b"2")
        finally:
            FsyncFails.broken = False
        with pytest.raises(Unavailable, match="broken"):
            async with asyncio.timeout(10):
                await failing
        for work in (log.append(b"3"), store.put("k", b"v"), store.session(ttl_s=1)):
            with pytest.raises(Unavailable, match="broken"):
                await work
        assert (await log.read(after=0)).end == 1
        await store.close()

    asyncio.run(run())


def test_a_file_that_stays_locked_is_unavailable_in_bounded_time(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock(), busy_s=0.05)
        log = store.log("l")
        await log.append(b"1")
        other = connect_file(str(tmp_path / "meta.db"), 1.0)
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match="locked by another process"):
                await log.append(b"2")
            # Readers do not mind the lock.
            assert (await log.read(after=0)).end == 1
        other.execute("ROLLBACK")
        other.close()
        assert await log.append(b"2") == 2
        await store.close()

    asyncio.run(run())


def test_the_wal_file_stays_small_under_load(tmp_path: Path) -> None:
    async def run() -> int:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        log = store.log("l")
        for _ in range(800):
            await log.append(b"x" * 40_000)
        size = os.path.getsize(tmp_path / "meta.db-wal")
        await store.close()
        return size

    # 32 MB were appended; without checkpoints the WAL would hold them all.
    assert asyncio.run(run()) < 12 << 20


def test_closing_ends_the_threads_and_files_and_leaves_one_tidy_file(tmp_path: Path) -> None:
    async def run() -> None:
        threads = threading.active_count()
        files = len(os.listdir("/proc/self/fd"))
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        waiting = asyncio.gather(store.log("l").wait(after=0, timeout_s=60))
        await asyncio.sleep(0)
        await store.log("m").append(b"1")
        async with asyncio.timeout(10):
            await store.close()
            await waiting
        assert threading.active_count() == threads
        assert len(os.listdir("/proc/self/fd")) == files

    asyncio.run(run())
    assert [path.name for path in tmp_path.iterdir()] == ["meta.db"]


def test_callers_share_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[int, int]:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        await store.log("l").append(b"0")
        commits = 0
        commit = store._writer.commit

        def counted(writes: Any) -> Any:
            nonlocal commits
            commits += 1
            return commit(writes)

        monkeypatch.setattr(store._writer, "commit", counted)
        positions = await asyncio.gather(*(store.log("l").append(b"x") for _ in range(200)))
        await store.close()
        assert sorted(positions) == list(range(2, 202))
        return commits, len(positions)

    commits, appends = asyncio.run(run())
    assert commits < appends / 4


def test_a_wait_looks_again_after_the_watch_fell_asleep(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        other = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        assert store._watch.pause_s() is None
        async with asyncio.timeout(10):
            waiting = asyncio.gather(store.log("l").wait(after=0, timeout_s=60))
            await asyncio.sleep(0)
            await other.log("l").append(b"x")
            await waiting
        await store.close()
        await other.close()

    asyncio.run(run())


def test_an_own_append_wakes_without_a_look_at_the_file(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        for number in range(5):
            waiting = asyncio.gather(store.log("l").wait(after=number, timeout_s=60))
            await asyncio.sleep(0)
            await store.log("l").append(b"x")
            # A look would come much later: data_version is asked every 2 to 100 ms.
            for _ in range(3):
                await asyncio.sleep(0)
            assert waiting.done()
        await store.close()

    asyncio.run(run())


def test_a_replica_reads_back_nothing_that_it_appended(tmp_path: Path) -> None:
    """Its tail is woken by its own appends; what they brought was learnt from their replies."""

    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / "meta.db", SystemClock())
        cluster = MemoryCluster(metadata=store)
        replica = cluster.replica(options=DomainOptions(idle_read_s=30.0))
        await replica.start(found=True)
        await replica.submit(Barrier())
        reads = 0
        read_before = store.read

        def counted(read: Callable[[sqlite3.Connection], ResultT]) -> Awaitable[ResultT]:
            nonlocal reads
            reads += 1
            return read_before(read)

        store.read = counted  # type: ignore[method-assign, assignment] # counts what goes through
        for _ in range(20):
            await replica.submit(Barrier())
        assert reads == 0
        await replica.close()
        await store.close()

    asyncio.run(run())
