"""A metadata file that is removed or replaced while it is in use: nothing more is acknowledged."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.clock import SystemClock
from lakelog.meta.sqlite import SqliteMetadataStore
from lakelog.model.failures import Conflict, OutcomeUnknown, Unavailable

NAME = "meta.db"
LOST = "was removed or replaced while it was in use"


def replace(folder: Path) -> None:
    """A copy takes the file's place, as a restored backup does."""
    shutil.copy(folder / NAME, folder / "copy")
    (folder / "copy").replace(folder / NAME)


HARMS: dict[str, Callable[[Path], object]] = {
    "the file is removed": lambda folder: (folder / NAME).unlink(),
    "its WAL is removed": lambda folder: (folder / f"{NAME}-wal").unlink(),
    "its shared memory is removed": lambda folder: (folder / f"{NAME}-shm").unlink(),
    "the directory is removed": shutil.rmtree,
    "the directory is renamed": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "another file has its place": replace,
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_written_to_a_lost_file_is_not_acknowledged(tmp_path: Path, harm: str) -> None:
    async def run() -> None:
        folder = tmp_path / "data"
        folder.mkdir()
        store = await SqliteMetadataStore.open(folder / NAME, SystemClock())
        failing = asyncio.gather(store.failed())
        log = store.log("l")
        assert await log.append(b"1") == 1
        version = await store.put("k", b"v", expect=0)
        HARMS[harm](folder)
        assert not failing.done()
        with pytest.raises(OutcomeUnknown, match=LOST):
            await log.append(b"2")
        with pytest.raises(Unavailable, match=LOST):
            async with asyncio.timeout(60):
                await failing
        for work in (log.append(b"3"), store.put("k", b"w", expect=version)):
            with pytest.raises(Unavailable, match=LOST):
                await work
        await store.close()

    asyncio.run(run())


def test_every_write_of_a_group_hears_of_it_and_a_conflict_stays_one(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SqliteMetadataStore.open(tmp_path / NAME, SystemClock())
        await store.put("k", b"v", expect=0)
        (tmp_path / NAME).unlink()
        outcomes = await asyncio.gather(
            store.put("k", b"w"),
            store.put("k", b"x", expect=7_000),
            store.log("l").append(b"1"),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, Conflict, OutcomeUnknown]
        await store.close()

    asyncio.run(run())


def test_a_file_that_took_the_place_of_ours_is_left_alone(tmp_path: Path) -> None:
    """The last connection tidies a WAL away by its name, and that name is another's by now."""

    async def run() -> None:
        lost = await SqliteMetadataStore.open(tmp_path / NAME, SystemClock())
        await lost.put("k", b"old")
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()
        found = await SqliteMetadataStore.open(tmp_path / NAME, SystemClock())
        await found.put("k", b"new")
        with pytest.raises(OutcomeUnknown, match=LOST):
            await lost.put("k", b"older")
        await lost.close()
        await found.put("l", b"newer")
        assert await found.get("k") is not None
        await found.close()
        again = await SqliteMetadataStore.open(tmp_path / NAME, SystemClock())
        assert [key.value for key in await again.range("")] == [b"new", b"newer"]
        await again.close()

    asyncio.run(run())
