"""The processes that Spark starts, found and killed by tests, and waiting without guessing."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from lakelog.pipeline.spark.session import PREFIX

PATIENCE_S = 60.0


def workers() -> list[psutil.Process]:
    """The Python workers of Spark below this process: children of the daemon that forks them."""
    return [one for one in _below() if _is(one, "pyspark") and _is(_parent(one), "pyspark.daemon")]


def executors() -> list[psutil.Process]:
    """The Java processes that only execute."""
    return [one for one in _below() if _is(one, "CoarseGrainedExecutorBackend")]


def drivers() -> list[psutil.Process]:
    """The Java process that drives."""
    return [one for one in _below() if _is(one, "org.apache.spark.deploy.SparkSubmit")]


def _below() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.Error:  # it may end while it is looked at
        return None


def _is(process: psutil.Process | None, word: str) -> bool:
    try:
        return process is not None and any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; fail when it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.02)


def busy() -> bool:
    """Whether a worker builds a file: it has an unnamed one open in Spark's directory."""
    return any(PREFIX in target and "deleted" in target for target in _open_files())


def _open_files() -> Iterator[str]:
    for worker in workers():
        with contextlib.suppress(OSError):  # it may end while it is looked at
            for descriptor in Path(f"/proc/{worker.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    yield str(descriptor.readlink())
