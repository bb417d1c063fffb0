"""From a configuration to what Spark and its workers are told."""

import asyncio
from pathlib import Path

import pytest

from lakelog.clock import SystemClock
from lakelog.config.load import load
from lakelog.config.options import Options
from lakelog.config.stores import open_metadata
from lakelog.meta import keys
from lakelog.model.failures import Corrupt, Refused
from lakelog.pipeline.process import _cluster, _workers_url, check_stores, spark_options


def options_of(**flags: str) -> Options:
    return load(None, {}, {name.replace("__", "."): value for name, value in flags.items()})


def test_the_configuration_reaches_spark() -> None:
    options = load(
        None,
        {"LAKELOG_PIPELINE__DRIVER_MEMORY_BYTES": "2GiB"},
        {"pipeline.master": "local[3]", "pipeline.settings.spark.executor.memory": "4g"},
    )
    told = spark_options(options)
    assert (told.master, told.driver_memory_bytes) == ("local[3]", 2 << 30)
    assert told.settings == {"spark.executor.memory": "4g"}


def test_a_workers_url_means_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for written in ("file:a b", "file://a b", f"file:{tmp_path}/a b"):
        assert _workers_url(options_of(objects__url=written)) == f"file:{tmp_path}/a b"
    assert _workers_url(Options()) == f"file:{tmp_path}/.lakelog/objects"
    assert _workers_url(options_of(objects__url="s3://bucket/a")) == "s3://bucket/a"


def test_stores_that_only_the_broker_sees_are_refused() -> None:
    check_stores(Options())
    with pytest.raises(Refused, match="memory of one broker"):
        check_stores(options_of(metadata__url="memory:"))
    with pytest.raises(Refused, match="memory of one process"):
        check_stores(options_of(objects__url="memory:"))


def test_a_cluster_must_be_there_and_readable() -> None:
    async def scenario() -> None:
        meta = await open_metadata("memory:", SystemClock())
        with pytest.raises(Refused, match="x holds no cluster: start a broker first"):
            await _cluster(meta, "x")
        await meta.put(keys.CLUSTER, b"?", expect=0)
        with pytest.raises(Corrupt, match="cluster's record"):
            await _cluster(meta, "x")
        await meta.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("pipeline.interval_s", "0", "greater than 0"),
        ("pipeline.driver_memory_bytes", "100MiB", "at least"),
    ],
)
def test_settings_that_cannot_work_are_refused(key: str, value: str, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        load(None, {}, {key: value})
