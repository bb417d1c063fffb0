"""One Spark session for all tests of a process: its start is most of their time."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.pipeline.files.wal_tasks import Bucket

from lakelog.pipeline.spark.engine import SparkEngine
from lakelog.pipeline.spark.settings import SparkOptions


@dataclass
class Stage:
    """An engine and the bucket that its executors see."""

    engine: SparkEngine
    bucket: Bucket
    streams: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000_000)))


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two slots on this machine."""
    root: Path = tmp_path_factory.mktemp("bucket")
    bucket = Bucket(root)
    engine = asyncio.run(SparkEngine.open(SparkOptions(master="local[2]"), bucket.url, {}))
    try:
        yield Stage(engine, bucket)
    finally:
        asyncio.run(engine.close())
