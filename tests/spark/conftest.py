"""One Spark session for all tests of the data source, whose start takes longest, and brokers.

A broker ends with the tests of its module: others measure memory, which it would use meanwhile.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession
from tests.lake.running import Broker, running_broker

from lakelog.pipeline.spark.session import SessionStart
from lakelog.pipeline.spark.settings import SparkOptions
from lakelog.spark.runtime import close_runtime


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two slots on this machine; a process has one Spark, which other tests may have started."""
    there = SparkSession._instantiatedSession
    if there is not None:
        yield there
        close_runtime()
        return
    with ThreadPoolExecutor(1) as pool:
        session = pool.submit(SessionStart(SparkOptions(master="local[2]")).run).result()
    try:
        yield session.spark
    finally:
        session.close()
        close_runtime()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this module, whose objects are in a directory."""
    with running_broker(tmp_path_factory.mktemp("broker")) as running:
        yield running
