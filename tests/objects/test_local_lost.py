"""A directory of objects that is removed or replaced while it is in use."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.clock import SystemClock, SystemEntropy
from lakelog.model.failures import OutcomeUnknown, Unavailable
from lakelog.objects.local import LocalObjectStore

LOST = "was removed or replaced while it was in use"


async def opened(directory: Path) -> LocalObjectStore:
    return await LocalObjectStore.open(directory, SystemClock(), SystemEntropy())


def replace(root: Path) -> None:
    """A copy takes its place, as a restored backup does."""
    shutil.copytree(root, root.with_name("copy"))
    shutil.rmtree(root)
    root.with_name("copy").rename(root)


HARMS: dict[str, Callable[[Path], object]] = {
    "it is removed": shutil.rmtree,
    "it is renamed": lambda root: root.rename(root.with_name("elsewhere")),
    "another has its place": replace,
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_put_into_a_lost_directory_is_not_acknowledged(tmp_path: Path, harm: str) -> None:
    async def run() -> None:
        root = tmp_path / "objects"
        store = await opened(root)
        failing = asyncio.gather(store.failed())
        await store.put("a/1", [b"1"])
        HARMS[harm](root)
        assert not failing.done()
        with pytest.raises(OutcomeUnknown, match=LOST):
            await store.put("a/2", [b"2"])
        with pytest.raises(Unavailable, match=LOST):
            async with asyncio.timeout(60):
                await failing
        await store.close()

    asyncio.run(run())


def test_folders_below_it_may_come_and_go(tmp_path: Path) -> None:
    async def run() -> None:
        store = await opened(tmp_path)
        await store.put("a/1", [b"1"])
        shutil.rmtree(tmp_path / "a")
        await store.put("a/2", [b"2"])
        assert bytes(await store.get("a/2")) == b"2"
        await store.close()

    asyncio.run(run())


def test_another_store_on_the_same_directory_sees_no_loss(tmp_path: Path) -> None:
    async def run() -> None:
        first = await opened(tmp_path)
        await first.put("a", [b"1"])
        second = await opened(tmp_path)
        await second.put("b", [b"2"])
        await first.put("c", [b"3"])
        found = sorted([info.key async for info in second.list("")])
        assert found == ["a", "b", "c"]
        await first.close()
        await second.close()

    asyncio.run(run())
