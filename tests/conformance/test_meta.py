"""Every metadata store against every claim about metadata stores."""

import asyncio
from pathlib import Path

import pytest

from lakelog.meta.memory import MemoryMetadataStore
from lakelog.meta.port import MetadataStore
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.testing import conformance_log, conformance_meta
from lakelog.testing.conformance_meta import Check, ManualClock, MetadataSubject


class MemorySubject:
    def __init__(self) -> None:
        self._clock = ManualClock()
        self._store = MemoryMetadataStore(self._clock)

    async def open(self) -> MetadataStore:
        return self._store.another()

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)


class SqliteSubject:
    def __init__(self, directory: Path) -> None:
        self._clock = ManualClock()
        self._path = directory / "meta.db"

    async def open(self) -> MetadataStore:
        return await SqliteMetadataStore.open(self._path, self._clock)

    async def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)


@pytest.fixture(params=["memory", "sqlite"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> MetadataSubject:
    return MemorySubject() if request.param == "memory" else SqliteSubject(tmp_path)


@pytest.mark.parametrize(
    "check", conformance_meta.CHECKS + conformance_log.CHECKS, ids=lambda check: check.__name__
)
def test_the_store_keeps_the_claim(check: Check, subject: MetadataSubject) -> None:
    async def run() -> None:
        await check(subject)

    asyncio.run(run())
