"""The local directory under faults: full disks, short writes, removed directories, leftovers."""

import asyncio
import errno
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.failures import OutcomeUnknown, Refused, Unavailable
from lakelog.objects.local import LEFTOVER_S, LocalObjectStore
from lakelog.objects.local_files import DIRECTORIES_OPEN_MAX, INCOMING
from lakelog.testing.conformance_objects import listed


def run_on(directory: Path, work: Callable[[LocalObjectStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await LocalObjectStore.open(directory, SystemClock(), SystemEntropy())
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())


def incoming(directory: Path) -> list[str]:
    return os.listdir(directory / INCOMING)


def test_missing_directories_are_made(tmp_path: Path) -> None:
    async def work(store: LocalObjectStore) -> None:
        await store.put("k", [b"x"])
        assert store.url == (tmp_path / "a" / "b").as_uri()

    run_on(tmp_path / "a" / "b", work)
    assert (tmp_path / "a" / "b" / "k").read_bytes() == b"x"


@pytest.mark.parametrize("below", ["", "below"])
def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(Refused, match="is not a directory"):
        asyncio.run(
            LocalObjectStore.open(tmp_path / "file" / below, SystemClock(), SystemEntropy())
        )
    assert (tmp_path / "file").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EROFS, "cannot be written"),
        (errno.EACCES, "cannot be written"),
        (errno.ENOSPC, "disk is full"),
        (errno.EIO, "cannot be used"),
    ],
)
def test_a_directory_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def fails(*_arguments: object, **_named: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "mkdir", fails)
    with pytest.raises(Refused, match=said):
        asyncio.run(LocalObjectStore.open(tmp_path / "o", SystemClock(), SystemEntropy()))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_unavailable_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    writev = os.writev

    def full(descriptor: int, parts: list[memoryview]) -> int:
        nonlocal written
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = writev(descriptor, [parts[0][:1]])
        return written

    async def work(store: LocalObjectStore) -> None:
        monkeypatch.setattr(os, "writev", full)
        with pytest.raises(Unavailable, match="disk is full"):
            await store.put("a/k", [b"content"])
        monkeypatch.setattr(os, "writev", writev)
        assert incoming(tmp_path) == []
        assert await listed(store, "") == {}
        await store.put("a/k", [b"content"])

    run_on(tmp_path, work)


def test_short_writes_go_on_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [bytes([number % 251]) * (number % 13) for number in range(3000)]
    writev = os.writev

    def short(descriptor: int, waiting: list[memoryview]) -> int:
        assert len(waiting) <= 1000
        piece = b"".join(waiting)[:777]
        return writev(descriptor, [piece])

    async def work(store: LocalObjectStore) -> None:
        monkeypatch.setattr(os, "writev", short)
        await store.put("k", parts)
        monkeypatch.setattr(os, "writev", writev)
        assert bytes(await store.get("k")) == b"".join(parts)

    run_on(tmp_path, work)


@pytest.mark.parametrize(("nth", "failure"), [(1, Unavailable), (2, OutcomeUnknown)])
def test_a_failed_sync_is_never_an_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, failure: type[Exception]
) -> None:
    """Of the file: it was not renamed, nothing is there. Of the directory: nobody knows."""

    async def work(store: LocalObjectStore) -> None:
        await store.put("a/first", [b"x"])
        synced = 0
        fsync = os.fsync

        def fails(descriptor: int) -> None:
            nonlocal synced
            synced += 1
            if synced == nth:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(failure):
            await store.put("a/second", [b"x"])
        monkeypatch.setattr(os, "fsync", fsync)
        assert incoming(tmp_path) == []
        assert ("a/second" in await listed(store, "")) == (failure is OutcomeUnknown)

    run_on(tmp_path, work)


def test_a_put_syncs_the_file_then_renames_then_syncs_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def name(descriptor: int) -> str:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}")).relative_to(tmp_path)
        return INCOMING if path.parts[:1] == (INCOMING,) else str(path)

    def record(call: str) -> None:
        original: Callable[..., Any] = getattr(os, call)

        def recorded(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if call == "fsync":
                seen.append((call, name(arguments[0])))
            elif call == "rename":
                seen.append((call, f"{name(named['dst_dir_fd'])}/{arguments[1]}"))
            elif call == "mkdir":
                seen.append((call, str(Path(arguments[0]).relative_to(tmp_path))))
            return result

        monkeypatch.setattr(os, call, recorded)

    async def work(store: LocalObjectStore) -> None:
        for call in ("fsync", "rename", "mkdir"):
            record(call)
        await store.put("wal/date=2026/1", [b"x"])
        await store.put("wal/date=2026/2", [b"x"])
        monkeypatch.undo()

    run_on(tmp_path, work)
    assert seen == [
        ("fsync", INCOMING),
        ("mkdir", "wal"),
        ("mkdir", "wal/date=2026"),
        ("fsync", "."),
        ("fsync", "wal"),
        ("rename", "wal/date=2026/1"),
        ("fsync", "wal/date=2026"),
        ("fsync", INCOMING),
        ("rename", "wal/date=2026/2"),
        ("fsync", "wal/date=2026"),
    ]


def test_a_directory_that_was_removed_is_made_and_synced_again(tmp_path: Path) -> None:
    async def work(store: LocalObjectStore) -> None:
        other = await LocalObjectStore.open(tmp_path, SystemClock(), SystemEntropy())
        await store.put("a/b/1", [b"x"])
        await other.delete(["a/b/1"])
        assert not (tmp_path / "a").exists()
        # Made again by somebody who may not have synced it: the old descriptor must not serve.
        (tmp_path / "a" / "b").mkdir(parents=True)
        await store.put("a/b/2", [b"y"])
        assert await listed(other, "") == {"a/b/2": 1}
        await other.close()

    run_on(tmp_path, work)


def test_a_key_below_an_object_is_refused_without_harm(tmp_path: Path) -> None:
    async def work(store: LocalObjectStore) -> None:
        await store.put("a", [b"x"])
        with pytest.raises(Unavailable, match="Not a directory"):
            await store.put("a/b", [b"y"])
        assert bytes(await store.get("a")) == b"x"
        assert incoming(tmp_path) == []

    run_on(tmp_path, work)


def test_leftovers_are_swept_when_they_are_old(tmp_path: Path) -> None:
    (tmp_path / INCOMING).mkdir()
    old, new = tmp_path / INCOMING / "old", tmp_path / INCOMING / "new"
    now = SystemClock().now_ms() / 1000
    for path, age in ((old, LEFTOVER_S + 60), (new, LEFTOVER_S - 60)):
        path.write_bytes(b"half an object")
        os.utime(path, (now - age, now - age))

    async def work(store: LocalObjectStore) -> None:
        assert incoming(tmp_path) == ["new"]
        assert await listed(store, "") == {}

    run_on(tmp_path, work)


def test_what_is_no_object_is_not_listed(tmp_path: Path) -> None:
    async def work(store: LocalObjectStore) -> None:
        await store.put("a/k", [b"x"])
        (tmp_path / "a" / "not a key").write_bytes(b"x")
        (tmp_path / "a" / ".hidden~").write_bytes(b"x")
        assert await listed(store, "") == {"a/k": 1}

    run_on(tmp_path, work)


def test_directories_threads_and_files_are_bounded_and_given_back(tmp_path: Path) -> None:
    gc.collect()  # what other tests left open must not be closed while it is counted here
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))

    async def work(store: LocalObjectStore) -> None:
        keys = [f"d{number}/k" for number in range(DIRECTORIES_OPEN_MAX * 3)]
        await asyncio.gather(*(store.put(key, [b"x"]) for key in keys))
        assert len(await listed(store, "")) == len(keys)
        assert len(os.listdir("/proc/self/fd")) <= files + DIRECTORIES_OPEN_MAX + 10

    run_on(tmp_path, work)
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads
